#include "app/banner.h"

#include <gmock/gmock.h>

#include "app/options.h"

namespace sidestep {
namespace {

using testing::HasSubstr;

std::string banner(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "train");
  const Settings settings = parse_command_line(arguments).settings;
  const std::vector<RankInfo> ranks{
      {0, "h1", 0, "cpu", "", "3"}, {1, "h1", 1, "cpu", "", "c"}, {2, "h2", 0, "cpu", "", "3"}};
  BannerInfo info;
  info.settings = &settings;
  info.ranks = &ranks;
  info.parameters = 61706;
  info.train_data = "fashion-mnist";
  info.train_samples = 60000;
  info.classes = 10;
  info.steps_per_epoch = 469;
  info.total_steps = 2345;
  info.shares = {43, 43, 42};
  info.threads = 2;
  info.lr_in_use = scaled_lr(settings);
  info.buckets = 2;
  info.bytes_per_rank = 12'300'000;
  info.start = "fresh";
  std::string text;
  for (const std::string& line : banner_lines(info)) {
    EXPECT_EQ(line.find('\n'), std::string::npos);
    text += line + "\n";
  }
  return text;
}

TEST(Banner, SaysWhatIsPerRankAndWhatIsGlobal) {
  const std::string text = banner({"--seed", "7"});
  EXPECT_THAT(text, HasSubstr("lenet, 61,706 parameters, 10 classes"));
  EXPECT_THAT(text, HasSubstr("3 ranks on 2 hosts (2 on h1, 1 on h2), 2 threads each"));
  EXPECT_THAT(text, HasSubstr("global 128, per rank 43 on 2 ranks, 42 on 1"));
  EXPECT_THAT(text, HasSubstr("base 0.05, scaling none (not changed by ranks or batch"));
  EXPECT_THAT(text, HasSubstr("in use 0.05, schedule constant, no warm-up"));
  EXPECT_THAT(text, HasSubstr("planned 12.3 MB per rank, 24.6 MB on the fullest host"));
  EXPECT_THAT(text, HasSubstr("7 (command line)"));
  EXPECT_THAT(text, HasSubstr("test data none"));
}

TEST(Banner, SaysTheScalingRule) {
  const std::string text =
      banner({"--batch", "256", "--lr", "0.1", "--lr-scale", "linear", "--warmup-epochs", "2"});
  EXPECT_THAT(text, HasSubstr("base 0.1, scaling linear (base * 256 / 128), in use 0.2"));
  EXPECT_THAT(text, HasSubstr("warm-up over 2 epochs"));
}

TEST(Banner, SaysThatClippingWaits) {
  EXPECT_THAT(banner({"--clip-norm", "1"}), HasSubstr("the update waits for the whole exchange"));
}

TEST(Banner, Numbers) {
  EXPECT_EQ(count_text(0), "0");
  EXPECT_EQ(count_text(999), "999");
  EXPECT_EQ(count_text(1234567), "1,234,567");
  EXPECT_EQ(count_text(-123456), "-123,456");
  EXPECT_EQ(bytes_text(999), "999 B");
  EXPECT_EQ(bytes_text(3.1e9), "3.1 GB");
}

}  // namespace
}  // namespace sidestep
