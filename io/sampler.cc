#include "io/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/base/error.h"
#include "core/base/rng.h"

namespace sidestep {

Sampler::Sampler(std::int64_t dataset_size, std::int64_t batch, std::uint64_t seed, bool shuffle)
    : size_(dataset_size), batch_(batch), seed_(seed), shuffle_(shuffle) {
  if (batch_ < 1)
    fail(Exit::settings, fmt::format("--batch: expected at least 1 sample, found {}", batch_));
  if (size_ < 1)
    fail(Exit::data, fmt::format("expected at least 1 training sample, found {}", size_));
}

std::int64_t Sampler::batch_at(const Cursor& cursor) const {
  check(cursor.epoch >= 0 && cursor.position >= 0 && cursor.position < size_,
        "a cursor lies outside the data");
  return std::min(batch_, size_ - cursor.position);
}

Cursor Sampler::next(const Cursor& cursor) const {
  const std::int64_t position = cursor.position + batch_at(cursor);
  return position == size_ ? Cursor{cursor.epoch + 1, 0} : Cursor{cursor.epoch, position};
}

std::int64_t Sampler::steps_per_epoch() const {
  return size_ / batch_ + (size_ % batch_ != 0 ? 1 : 0);
}

void Sampler::ids(const Cursor& cursor, std::int64_t begin, std::int64_t end,
                  std::vector<std::int64_t>& ids) {
  check(0 <= begin && begin <= end && end <= batch_at(cursor),
        "a rank's range lies outside the global batch");
  ids.clear();
  append_ids(cursor.epoch, cursor.position + begin, cursor.position + end, ids);
}

void Sampler::append_ids(std::int64_t epoch, std::int64_t begin, std::int64_t end,
                         std::vector<std::int64_t>& ids) {
  check(0 <= begin && begin <= end && end <= size_, "positions lie outside the epoch");
  const auto before = static_cast<std::ptrdiff_t>(ids.size());
  ids.resize(ids.size() + static_cast<std::size_t>(end - begin));
  if (!shuffle_) {
    std::iota(ids.begin() + before, ids.end(), begin);
    return;
  }
  if (epoch != loaded_epoch_) load_epoch(epoch);
  std::copy_n(order_.begin() + begin, end - begin, ids.begin() + before);
}

std::vector<std::int64_t> Sampler::batch_sizes() const {
  if (batch_ >= size_) return {size_};
  const std::int64_t tail = size_ % batch_;
  return tail == 0 ? std::vector{batch_} : std::vector{batch_, tail};
}

void Sampler::load_epoch(std::int64_t epoch) {
  order_.resize(static_cast<std::size_t>(size_));
  std::iota(order_.begin(), order_.end(), std::int64_t{0});
  const std::uint64_t key = rng_key(seed_, "shuffle", static_cast<std::uint64_t>(epoch));
  for (std::uint64_t i = order_.size() - 1; i > 0; --i)
    std::swap(order_[i], order_[random_below(key, i, i + 1)]);
  loaded_epoch_ = epoch;
}

std::uint64_t index_digest(std::span<const std::int64_t> ids, std::int64_t epoch) {
  const std::uint64_t key = rng_key(0, "index digest", static_cast<std::uint64_t>(epoch));
  std::uint64_t sum = 0;
  for (const std::int64_t id : ids) sum += random_bits(key, static_cast<std::uint64_t>(id));
  return sum;
}

}  // namespace sidestep
