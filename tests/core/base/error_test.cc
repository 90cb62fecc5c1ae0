#include "core/base/error.h"

#include <gtest/gtest.h>

namespace sidestep {
namespace {

TEST(Error, FailThrowsCodeAndMessage) {
  try {
    fail(Exit::data, "train.idx: expected 784 bytes, found 3");
    FAIL() << "fail() returned";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::data);
    EXPECT_STREQ(error.what(), "train.idx: expected 784 bytes, found 3");
  }
}

TEST(Error, IsCaughtAsStandardException) {
  EXPECT_THROW(fail(Exit::numbers, "loss is not finite"), std::runtime_error);
}

TEST(Error, ExitCodesAreThoseUsersKnow) {
  EXPECT_EQ(static_cast<int>(Exit::done), 0);
  EXPECT_EQ(static_cast<int>(Exit::settings), 2);
  EXPECT_EQ(static_cast<int>(Exit::data), 3);
  EXPECT_EQ(static_cast<int>(Exit::checkpoint), 4);
  EXPECT_EQ(static_cast<int>(Exit::communication), 5);
  EXPECT_EQ(static_cast<int>(Exit::numbers), 6);
  EXPECT_EQ(static_cast<int>(Exit::device), 7);
  EXPECT_EQ(static_cast<int>(Exit::stopped), 75);
}

TEST(Check, PassesSilentlyAndNamesThePlaceOtherwise) {
  EXPECT_NO_THROW(check(true, "never seen"));
  const int line = __LINE__ + 2;
  try {
    check(false, "slots are ordered");
    FAIL() << "check(false) returned";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(error.code(), Exit::internal);
    EXPECT_NE(text.find("slots are ordered"), std::string::npos) << text;
    EXPECT_NE(text.find("error_test.cc:" + std::to_string(line)), std::string::npos) << text;
    EXPECT_EQ(text.find("/error_test.cc"), std::string::npos) << "folder in: " << text;
  }
}

}  // namespace
}  // namespace sidestep
