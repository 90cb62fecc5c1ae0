#include "io/ledger.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace sidestep {
namespace {

std::int64_t total(std::span<const Range> ranges) {
  std::int64_t sum = 0;
  for (const Range& range : ranges) sum += range.size();
  return sum;
}

}  // namespace

std::int64_t Block::size() const { return total(ranges); }

void Block::slice(std::int64_t begin, std::int64_t end, std::vector<Range>& out) const {
  check(0 <= begin && begin <= end && end <= size(), "a slice lies outside its block");
  for (const Range& range : ranges) {
    const std::int64_t from = std::clamp<std::int64_t>(begin, 0, range.size());
    const std::int64_t to = std::clamp<std::int64_t>(end, 0, range.size());
    if (to > from) out.push_back({range.begin + from, range.begin + to});
    begin -= range.size();
    end -= range.size();
  }
}

Ledger::Ledger(std::int64_t dataset_size) : size_(dataset_size) {}

void Ledger::restore(const Cursor& cursor, std::vector<Range> returned) {
  check(cursor.epoch >= 0 && cursor.position >= 0 && cursor.position <= size_,
        "a cursor lies outside the data");
  for (const Range& range : returned)
    check(0 <= range.begin && range.begin < range.end && range.end <= cursor.position,
          "a returned range lies outside of what was handed out");
  cursor_ = cursor;
  returned_ = std::move(returned);
}

std::int64_t Ledger::returned() const { return total(returned_); }

void Ledger::take(std::int64_t n, Block& block) {
  check(n > 0 && n <= available(), "more samples were taken than there are");
  block.epoch = cursor_.epoch;
  block.ranges.clear();
  if (fresh() > 0) {
    block.ranges.push_back({cursor_.position, cursor_.position + n});
    cursor_.position += n;
    return;
  }
  std::size_t used = 0;
  for (; n > 0; ++used) {
    Range& range = returned_[used];
    const std::int64_t part = std::min(n, range.size());
    block.ranges.push_back({range.begin, range.begin + part});
    range.begin += part;
    n -= part;
    if (range.size() > 0) break;
  }
  returned_.erase(returned_.begin(), returned_.begin() + static_cast<std::ptrdiff_t>(used));
}

void Ledger::give_back(std::span<const Range> ranges) {
  for (const Range& range : ranges)
    if (range.size() > 0) returned_.push_back(range);
}

void Ledger::next_epoch() {
  check(available() == 0, "an epoch ended before all of its samples were served");
  cursor_ = {cursor_.epoch + 1, 0};
}

}  // namespace sidestep
