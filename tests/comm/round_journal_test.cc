#include "comm/round_journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"

namespace sidestep::testing {
namespace {

JournalLine some_line() {
  return {.round = 7,
          .weight = 96,
          .ranks = {{true, true, 0, false}, {true, false, 5, true}, {false, false, 6, false}},
          .checksum = 0x00ab54a98ceb1f0aULL};
}

TEST(RoundJournal, ALineIsReadAsItWasWritten) {
  EXPECT_EQ(to_json(some_line()),
            R"({"round":7,"weight":96,"claimed":[1,1,0],"fresh":[1,0,0],"late":[0,5,6],)"
            R"("off":[0,1,0],"checksum":"00ab54a98ceb1f0a"})");
  EXPECT_EQ(parse_journal_line(to_json(some_line())), some_line());
  JournalLine plain = some_line();
  plain.checksum.reset();
  EXPECT_EQ(parse_journal_line(to_json(plain)), plain);
}

TEST(RoundJournal, OtherTextIsRefused) {
  const std::string good = to_json(some_line());
  std::string short_list = good, no_hex = good;
  short_list.replace(short_list.find("[0,5,6]"), 7, "[0,5]");
  no_hex.replace(no_hex.find("00ab"), 4, "00xy");
  for (const std::string& text : {std::string(), std::string("{}"), good.substr(0, 40), short_list,
                                  no_hex, std::string(R"({"round":"x"})"), std::string("[1]")}) {
    try {
      parse_journal_line(text);
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::data);
      EXPECT_THAT(e.what(), ::testing::HasSubstr("journal: expected a line of a round"));
    }
  }
}

}  // namespace
}  // namespace sidestep::testing
