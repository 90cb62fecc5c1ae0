#include "app/coverage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/comm/ranks.h"

namespace sidestep {
namespace {

using Class = Coverage::Class;

TEST(Coverage, AClassThatIsStarvedRaisesTheAlarm) {
  const std::vector<Class> fair(10, {4000, 3600});
  EXPECT_EQ(starved_class(fair), "");
  std::vector<Class> starved = fair;
  starved[3] = {4000, 3200};
  EXPECT_THAT(starved_class(starved), ::testing::HasSubstr("class 3 got"));
}

TEST(Coverage, ChanceIsNoAlarm) {
  std::vector<Class> few(10, {40, 36});
  few[3] = {40, 33};
  EXPECT_EQ(starved_class(few), "");
  EXPECT_EQ(starved_class(std::vector<Class>(10)), "");
}

TEST(Coverage, RanksAddUpTheirCounts) {
  testing::run_ranks(2, [](auto communicator) {
    CommThread comm(std::move(communicator), {});
    Coverage coverage(3);
    const std::vector<std::int32_t> labels = {0, 1, 1, 2, -1};
    for (int i = 0; i < 2000; ++i) {
      coverage.begin_round();
      coverage.count(labels, true);
      if (i % 2 == 0) coverage.write_off();
      coverage.count(std::vector<std::int32_t>{2}, false);
    }
    EXPECT_THAT(coverage.review(comm, 1), ::testing::HasSubstr("class 2"));
    EXPECT_EQ(coverage.totals()[1].handed_out, 8000);
    EXPECT_EQ(coverage.totals()[1].applied, 4000);
    EXPECT_EQ(coverage.totals()[2].handed_out, 8000);
    EXPECT_EQ(coverage.totals()[2].applied, 2000);
  });
}

}  // namespace
}  // namespace sidestep
