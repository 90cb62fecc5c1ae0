#include "app/inspect.h"

#include <gtest/gtest.h>

namespace sidestep {
namespace {

TEST(Inspect, ListsAttributesAndDatasets) {
  CheckpointContent content;
  content.attributes["/run"] = {{"step", std::int64_t{7}},
                                {"config", std::string("a = 1\nb = 2\n")}};
  content.tensors.push_back({"/model/params/fc1.weight", Shape{20, 10}, DType::f32, {}});
  content.tensors.push_back({"/data/cursor", Shape{2}, DType::i64, {}});
  EXPECT_EQ(describe_checkpoint(content),
            "/run\n"
            "  config = \n"
            "      a = 1\n"
            "      b = 2\n"
            "  step = 7\n"
            "/model/params/fc1.weight  float32  [20, 10]\n"
            "/data/cursor              int64    [2]\n"
            "2 datasets, 816 B\n");
}

}  // namespace
}  // namespace sidestep
