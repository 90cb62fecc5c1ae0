// Which samples of an epoch have been handed out and which came back. Every rank keeps one and feeds
// it the same rounds, so all hand out the same samples without a message. One thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "io/sampler.h"

namespace sidestep {

/// Positions [begin, end) of an epoch's order.
struct Range {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// Positions of one epoch that are handed out together, in this order.
struct Block {
  std::int64_t epoch = 0;
  std::vector<Range> ranges;
  std::int64_t size() const;
  /// Its samples number begin to end - 1, as ranges; appended to `out`.
  void slice(std::int64_t begin, std::int64_t end, std::vector<Range>& out) const;
};

class Ledger {
 public:
  explicit Ledger(std::int64_t dataset_size);

  void restore(const Cursor& cursor, std::vector<Range> returned);
  /// Never handed out in this epoch; came back.
  std::int64_t fresh() const { return size_ - cursor_.position; }
  std::int64_t returned() const;
  /// What the next block can be taken from: what is fresh, and only then what came back.
  std::int64_t available() const { return fresh() > 0 ? fresh() : returned(); }
  /// Hands out n of the available samples; reuses the block's memory.
  void take(std::int64_t n, Block& block);
  /// These were not applied: they are served before the epoch ends.
  void give_back(std::span<const Range> ranges);
  /// After everything was handed out and nothing came back.
  void next_epoch();

  const Cursor& cursor() const { return cursor_; }
  const std::vector<Range>& returned_ranges() const { return returned_; }

 private:
  std::int64_t size_;
  Cursor cursor_;
  std::vector<Range> returned_;
};

}  // namespace sidestep
