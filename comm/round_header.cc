#include "comm/round_header.h"

#include <new>

namespace sidestep {
namespace {

constexpr std::size_t kLine = 64;  // the loss and staged values each on a cache line of their own

std::size_t aligned(std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

std::size_t counted_bytes(int ranks) {
  return aligned(sizeof(RoundHeader) + static_cast<std::size_t>(ranks) * sizeof(RankEntry));
}

}  // namespace

HeaderExchange::HeaderExchange(int ranks)
    : ranks_(ranks), memory_(Device{}, counted_bytes(ranks) + 3 * kLine, Buffer::Kind::pinned) {
  std::byte* const data = memory_.data();
  header_ = new (data) RoundHeader{};
  entries_ = reinterpret_cast<RankEntry*>(data + sizeof(RoundHeader));
  std::uninitialized_default_construct_n(entries_, ranks);
  std::byte* const rest = data + counted_bytes(ranks);
  loss_ = new (rest) double{0};
  staged_loss_ = new (rest + kLine) double{0};
  staged_counts_ = new (rest + 2 * kLine) std::int64_t[2]{};
  clear();
}

void HeaderExchange::clear() {
  *header_ = RoundHeader{};
  for (int r = 0; r < ranks_; ++r) entries_[r] = RankEntry{};
  *loss_ = 0;
}

void HeaderExchange::add(Stream& compute, const View& loss, const View& weight,
                         const View& correct) {
  const std::size_t staged = counted_bytes(ranks_) + kLine;
  copy(compute, memory_.view(staged, Shape{1}, DType::f64), loss);
  copy(compute, memory_.view(staged + kLine, Shape{1}, DType::i64), weight);
  copy(compute, memory_.view(staged + kLine + sizeof(std::int64_t), Shape{1}, DType::i64), correct);
  compute.host([this] {
    *loss_ += *staged_loss_;
    header_->weight += staged_counts_[0];
    header_->correct += staged_counts_[1];
  });
}

HeaderExchange::Done HeaderExchange::launch(CommThread& comm, const Event& ready,
                                            std::int64_t step) {
  const auto fields = static_cast<std::int64_t>(kHeaderFields) +
                      static_cast<std::int64_t>(ranks_) * static_cast<std::int64_t>(kEntryFields);
  const View counted = memory_.view(0, Shape{fields}, DType::i64);
  const View loss = memory_.view(counted_bytes(ranks_), Shape{1}, DType::f64);
  return {.header = comm.all_reduce(counted, Reduce::sum, ready, "all-reduce header", step),
          .loss = comm.all_reduce(loss, Reduce::sum, ready, "all-reduce loss", step)};
}

}  // namespace sidestep
