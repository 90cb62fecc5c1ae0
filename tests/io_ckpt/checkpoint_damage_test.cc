// Damage at seeded places: reading gives the identical content or Exit::checkpoint, never a crash.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/rng.h"
#include "io/checkpoint_file.h"
#include "io/checkpoint_seal.h"
#include "tests/io_ckpt/io_ckpt_util.h"

namespace sidestep::testing {
namespace {

constexpr std::uint64_t kSeed = 20240611;

/// Whether the damage was reported; content that is read must be the original's.
bool found(const std::filesystem::path& path, const CheckpointContent& original) {
  try {
    expect_equal(read_checkpoint(path), original);
    return false;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::checkpoint) << error.what();
    return true;
  }
}

class CheckpointDamage : public ::testing::Test {
 protected:
  CheckpointDamage() : content_(sample_content()) {
    // Small against the structure, so that flips hit both.
    std::erase_if(content_.tensors,
                  [](const auto& t) { return t.path == "/model/params/conv1.weight"; });
    write_checkpoint(path_, content_);
    file_ = slurp(path_);
  }
  std::uint64_t draw(std::uint64_t i, std::uint64_t bound) const {
    return random_below(rng_key(kSeed, "damage"), i, bound);
  }
  std::string flipped(std::string text, std::uint64_t i) const {
    text[draw(2 * i, text.size())] ^= static_cast<char>(1 + draw(2 * i + 1, 255));
    return text;
  }

  ScratchFolder folder_;
  std::filesystem::path path_ = folder_ / "a.h5";
  CheckpointContent content_;
  std::string file_;
};

TEST_F(CheckpointDamage, FlippedBytesAreFound) {
  for (std::uint64_t i = 0; i < 200; ++i) {
    spill(path_, flipped(file_, i));
    EXPECT_TRUE(found(path_, content_)) << "flip " << i;
  }
}

TEST_F(CheckpointDamage, OutlineSurvivesFlippedBytes) {
  for (std::uint64_t i = 0; i < 200; ++i) {
    spill(path_, flipped(file_, i));
    try {
      EXPECT_EQ(read_checkpoint_outline(path_).attributes, content_.attributes) << "flip " << i;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Exit::checkpoint) << error.what();
    }
  }
}

// Without the seal (as after a change by another program) HDF5's checksums and our digests remain.
// In a process of its own: HDF5 1.10 loses memory when it gives up on a damaged file.
TEST_F(CheckpointDamage, FlippedBytesWithoutSealAreHarmless) {
  const std::string unsealed = file_.substr(0, hdf5_end(file_));
  spill(path_, unsealed);
  ASSERT_FALSE(found(path_, content_));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    int reported = 0;
    for (std::uint64_t i = 0; i < 200; ++i) {
      spill(path_, flipped(unsealed, i));
      reported += found(path_, content_) ? 1 : 0;
    }
    ::_exit(HasFailure() || reported == 0 ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(CheckpointDamage, CutFilesAreFound) {
  for (std::uint64_t i = 0; i < 100; ++i) {
    std::uint64_t size = draw(i, file_.size());
    if (size == hdf5_end(file_)) size += 1;  // exactly this cut loses nothing
    spill(path_, file_.substr(0, size));
    EXPECT_TRUE(found(path_, content_)) << "cut to " << size;
  }
}

// What a power failure leaves on some file systems.
TEST_F(CheckpointDamage, ZeroedEndsAreFound) {
  for (std::uint64_t i = 0; i < 100; ++i) {
    const auto kept = draw(i, file_.size());
    std::string text = file_.substr(0, kept);
    text.resize(file_.size(), '\0');
    spill(path_, text);
    EXPECT_TRUE(found(path_, content_)) << "zeros from " << kept;
  }
}

TEST_F(CheckpointDamage, NamesTheDamagedDataset) {
  const auto* bias = content_.find("/model/params/conv1.bias");
  const std::string bytes(reinterpret_cast<const char*>(bias->bytes.data()), bias->bytes.size());
  std::string text = file_;
  const auto at = text.find(bytes);
  ASSERT_NE(at, std::string::npos);
  for (std::size_t i = 0; i < 4; ++i) text[at + i] ^= 0x40;
  spill(path_, text);
  expect_names(error_of(Exit::checkpoint, [&] { read_checkpoint(path_); }),
               {"a.h5", "dataset /model/params/conv1.bias", "damaged"});
  // Its bytes are not looked at for an outline.
  EXPECT_EQ(read_checkpoint_outline(path_).tensors.size(), content_.tensors.size());
}

TEST_F(CheckpointDamage, CutFileSaysHowMuchIsThere) {
  spill(path_, file_.substr(0, hdf5_end(file_) - 1000));
  expect_names(
      error_of(Exit::checkpoint, [&] { read_checkpoint(path_); }),
      {"cut short", std::to_string(hdf5_end(file_) - 1000), std::to_string(hdf5_end(file_))});
}

TEST(CheckpointSeal, HashOfOneBlockIsHash64) {
  const std::string text = "some bytes";
  EXPECT_EQ(block_hash(text), hash64(text.data(), text.size()));
  const std::string large(std::size_t{5} << 20, 'a');
  std::string other = large;
  other.back() = 'b';
  EXPECT_NE(block_hash(large), block_hash(other));
}

}  // namespace
}  // namespace sidestep::testing
