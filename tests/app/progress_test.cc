#include "app/progress.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <string>

namespace sidestep {
namespace {

using testing::HasSubstr;
using testing::Not;

double clock_seconds = 0;
double now() { return clock_seconds; }

/// What is written to a FILE, in memory.
class Sink {
 public:
  Sink() : file_(open_memstream(&text_, &size_)) {}
  ~Sink() {
    std::fclose(file_);
    std::free(text_);
  }
  std::FILE* file() { return file_; }
  std::string text() {
    std::fflush(file_);
    return {text_, size_};
  }

 private:
  char* text_ = nullptr;
  std::size_t size_ = 0;
  std::FILE* file_;
};

ProgressState at_step(std::int64_t step) {
  return {.epoch = 0,
          .epochs = 2,
          .step = step,
          .steps = 100,
          .samples_seen = step * 10,
          .loss = 0.5,
          .lr = 0.1};
}

TEST(Progress, AFileGetsWholeLinesAtIntervals) {
  clock_seconds = 0;
  Sink sink;
  Progress progress(sink.file(), {.terminal = false, .every_seconds = 10, .now = now});
  for (int step = 1; step <= 30; ++step) {  // a step a second
    progress.update(at_step(step));
    clock_seconds += 1;
  }
  const std::string text = sink.text();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  EXPECT_EQ(text.find_first_of("\r\x1b"), std::string::npos);
  EXPECT_THAT(text, HasSubstr("epoch 1/2  step 11/100  loss 0.5000  lr 0.1  10 samples/s  elapsed "
                              "0:00:10  ETA 0:01:29\n"));
  progress.flush();
  EXPECT_THAT(sink.text(), HasSubstr("step 30/100"));
  const std::string flushed = sink.text();
  progress.flush();
  EXPECT_EQ(sink.text(), flushed) << "nothing new, nothing said";
}

TEST(Progress, ALineAStepIfAskedFor) {
  clock_seconds = 0;
  Sink sink;
  Progress progress(sink.file(), {.terminal = false, .every_seconds = 0, .now = now});
  for (int step = 1; step <= 3; ++step) progress.update(at_step(step));
  const std::string text = sink.text();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
}

TEST(Progress, ATerminalGetsOneLineThatIsWrittenOver) {
  clock_seconds = 0;
  Sink sink;
  {
    Progress progress(sink.file(), {.terminal = true, .now = now});
    for (int step = 1; step <= 5; ++step) {
      progress.update(at_step(step));
      clock_seconds += 1;
    }
    EXPECT_EQ(sink.text().find('\n'), std::string::npos);
    progress.say("test accuracy 90 %");
    EXPECT_THAT(sink.text(), testing::EndsWith("\rtest accuracy 90 %\n"));
    progress.update(at_step(6));
  }
  EXPECT_THAT(sink.text(), testing::EndsWith("\n"));
  EXPECT_EQ(sink.text().find('\x1b'), std::string::npos);
}

TEST(Progress, PausesAreNoTrainingTime) {
  clock_seconds = 0;
  Sink sink;
  Progress progress(sink.file(), {.terminal = false, .every_seconds = 10, .now = now});
  progress.update(at_step(1));
  clock_seconds = 5;
  progress.pause();
  clock_seconds = 105;
  progress.go_on();
  progress.update(at_step(6));
  EXPECT_EQ(sink.text(), "") << "5 seconds of training are less than 10";
  clock_seconds = 110;
  progress.update(at_step(11));
  EXPECT_THAT(sink.text(), HasSubstr("10 samples/s  elapsed 0:01:50  ETA 0:01:29"));
}

TEST(Progress, AResumedRunCountsFromWhereItBegan) {
  clock_seconds = 0;
  Sink sink;
  Progress progress(sink.file(), {.terminal = false, .every_seconds = 10, .now = now});
  progress.update(at_step(80));
  clock_seconds = 10;
  progress.update(at_step(90));
  EXPECT_THAT(sink.text(), HasSubstr("10 samples/s"));
  EXPECT_THAT(sink.text(), HasSubstr("ETA 0:00:10"));
  EXPECT_THAT(sink.text(), Not(HasSubstr("step 80")));
}

}  // namespace
}  // namespace sidestep
