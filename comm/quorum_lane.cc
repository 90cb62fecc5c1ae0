#include "comm/quorum_lane.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "core/base/error.h"
#include "core/base/rng.h"
#include "core/optim/flat.h"

namespace sidestep {

QuorumLane::QuorumLane(ParamStore& store, const Optimizer& optimizer, CommThread& comm,
                       Stream& update, const Options& options)
    : store_(store),
      rounds_(store.twin()),
      comm_(comm),
      update_(update),
      options_(options),
      plan_(plan_buckets(store, options.buckets)),
      updater_(rounds_, optimizer, plan_, update, options.clip_norm, options.tracer),
      fill_(store.device(), store.values().bytes()),
      checks_(Device{}, 2 * kSlots * sizeof(std::int64_t), Buffer::Kind::pinned),
      reduced_(plan_.buckets.size()),
      readers_(plan_.buckets.size()),
      updated_(plan_.buckets.size()) {
  if (store.device().kind != DeviceKind::cpu)
    staged_ = Buffer(Device{}, store.values().bytes(), Buffer::Kind::pinned);
  for (int i = 0; i < kSlots; ++i) {
    Slot& slot = slots_.emplace_back(comm.size(), plan_.buckets.size());
    slot.round.header = &slot.header.header();
    slot.round.loss = &slot.header.loss();
    slot.round.scalars = &slot.scalars;
    slot.round.squares = slot.squares.data();
  }
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b)
    span_names_.push_back(fmt::format("all-reduce bucket {}", b));
}

std::size_t QuorumLane::bytes() const {
  return 3 * fill_.size() + staged_.size() + checks_.size() +
         kSlots * slots_.front().header.bytes();
}

std::int64_t QuorumLane::bytes_exchanged() const { return static_cast<std::int64_t>(fill_.size()); }

View QuorumLane::slice(const View& flat, std::size_t bucket) const {
  const Bucket& b = plan_.buckets[bucket];
  View part = flat;
  part.data += static_cast<std::size_t>(b.begin) * size_of(flat.dtype);
  part.shape = Shape{b.end - b.begin};
  return part;
}

Event QuorumLane::deposit() {
  copy(update_, fill_.view(0, store_.grads().shape, DType::f32), store_.grads());
  return update_.record();
}

void QuorumLane::weigh_fill(float factor) {
  scale(update_, fill_.view(0, store_.grads().shape, DType::f32), factor);
}

void QuorumLane::put(std::size_t bucket, const Gift& gift) {
  const View send = slice(rounds_.grads(), bucket);
  const View fill = slice(fill_.view(0, store_.grads().shape, DType::f32), bucket);
  if (gift.fresh != nullptr) {
    update_.wait((*gift.fresh)[bucket]);
    copy(update_, send, slice(store_.grads(), bucket));
    if (gift.fill) add_into(update_, send, fill);
  } else if (gift.fill) {
    copy(update_, send, fill);
  } else {
    fill_zero(update_, send);
  }
}

Event QuorumLane::send(Slot& slot, const Gift& gift) {
  const std::int64_t step = slot.round.step;
  const HeaderExchange::Done in = slot.header.launch(comm_, Event(), step);
  slot.round.header_in = in.header;
  slot.round.loss_in = in.loss;
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b) {
    put(b, gift);
    reduced_[b] = comm_.all_reduce(slice(rounds_.grads(), b), Reduce::sum, update_.record(),
                                   span_names_[b].c_str(), step);
  }
  return update_.record();
}

void QuorumLane::apply(Slot& slot, const Event& readers, bool flush) {
  std::fill(readers_.begin(), readers_.end(), readers);
  const std::int64_t round = slot.round.step;
  update_.wait(readers);
  update_.host([this, round] { version_.store(-round); });
  updater_.enqueue(slot.round, reduced_, readers_, updated_);
  update_.host([this, round, s = &slot] {
    version_.store(round);
    s->done_ns = now_ns();
    if (options_.applied) options_.applied(round, master());
  });
  if (flush) compare_checksums(slot);
  slot.round.updated = update_.record();
}

View QuorumLane::check_view(const Slot& slot, std::size_t which) const {
  const auto number = static_cast<std::size_t>(slot.round.step % kSlots);
  return checks_.view((2 * number + which) * sizeof(std::int64_t), Shape{1}, DType::i64);
}

void QuorumLane::compare_checksums(Slot& slot) {
  View bytes = master();
  if (staged_.size() > 0) {
    bytes = staged_.view(0, master().shape, DType::f32);
    copy(update_, bytes, master());
  }
  const View low = check_view(slot, 0), high = check_view(slot, 1);
  auto* const smallest = low.as<std::int64_t>();
  auto* const largest = high.as<std::int64_t>();
  const std::byte* const data = bytes.data;
  update_.host([s = &slot, data, size = bytes.bytes(), smallest, largest] {
    s->checksum = hash64(data, size);
    *smallest = *largest = std::bit_cast<std::int64_t>(s->checksum);
  });
  const Event hashed = update_.record();
  const std::int64_t round = slot.round.step;
  update_.wait(comm_.all_reduce(low, Reduce::min, hashed, "all-reduce checksum", round));
  update_.wait(comm_.all_reduce(high, Reduce::max, hashed, "all-reduce checksum", round));
  update_.host([smallest, largest, round] {
    if (*smallest == *largest) return;
    fail(Exit::internal,
         fmt::format("round {}: the ranks' weights differ: expected one checksum, found {:016x} "
                     "and {:016x}; go back to the last checkpoint",
                     round, std::bit_cast<std::uint64_t>(*smallest),
                     std::bit_cast<std::uint64_t>(*largest)));
  });
}

void QuorumLane::settle() {
  try {
    update_.record().wait();
  } catch (...) {  // whoever needs a result learns it from its own event
  }
}

}  // namespace sidestep
