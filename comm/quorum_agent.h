// The part of the quorum engine that runs on the comm thread: announces and deposits this rank's
// work, closes rounds on rank 0, launches closed rounds in order, and keeps their results. One
// mutex orders it with main. Methods say whose they are.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "comm/arrival_board.h"
#include "comm/comm_agent.h"
#include "comm/comm_thread.h"
#include "comm/quorum_engine.h"
#include "comm/quorum_lane.h"

namespace sidestep {

/// What a rank does for the round it has claimed. Main's until hand_over(), then the agent's; but
/// `state` and `missed`, which the mutex guards.
struct QuorumWork {
  /// announced: has arrived, as far as the coordinator will hear in time. reporting: deposited
  /// late, until the coordinator has said that it knows; so a claimed round always takes such work
  /// in.
  enum class State : std::uint8_t { none, taking, working, handed_over, announced, reporting };
  explicit QuorumWork(std::size_t buckets) : grads(buckets) {}

  State state = State::none;
  bool missed = false;  ///< the round was closed without this work
  std::int64_t round = 0;
  RoundInfo info;
  HeaderExchange counted{1};  ///< weight, correct and loss of the micro-batches
  std::int64_t samples = 0, units = 0;
  std::uint64_t index_digest = 0;
  bool stop = false, flushed = false;
  Event committed;           ///< the last backward begins
  Event complete;            ///< all gradients are final
  std::vector<Event> grads;  ///< by bucket: its gradient is final
};

class QuorumAgent final : public CommAgent {
 public:
  using Options = QuorumEngine::Options;
  using Counts = QuorumEngine::Counts;

  QuorumAgent(CommThread& comm, QuorumLane& lane, const Optimizer& optimizer,
              const Options& options);

  bool poll(Communicator& control) override;
  bool take(const Message& message) override;
  void failed(const std::exception_ptr& cause) noexcept override;
  int idle_us() const override { return 100; }

  // Main's.
  /// Round `first` opens; its version is in master after `master_ready`. Before add_agent().
  void open_first(std::int64_t first, const Event& master_ready);
  /// Waits for a round to work on and takes it; 0 if there is none any more. `compute` gives the
  /// end of what main has enqueued: rounds that rest after a flush go on behind it.
  std::int64_t take_round(Stream& compute);
  /// Events of the work taken: earlier gradients may be overwritten; the version to read is
  /// complete.
  const Event& consumed() const { return consumed_; }
  const Event& readable() const { return readable_; }
  /// The taken round's version was copied; no later round is applied before that.
  void taken(const Event& copied);
  QuorumWork& work() { return work_; }
  void begin(const RankEntry& times);
  void hand_over();
  bool missed() const;
  RoundResult result(std::int64_t step, bool& flushed);
  std::int64_t newest_closed() const;
  std::int64_t exchange_ns() const;
  Counts counts() const;
  bool idle() const;  ///< nothing launched that is not applied, and no failure
  std::unique_lock<std::mutex> lock() const { return std::unique_lock(mutex_); }

 private:
  using State = QuorumWork::State;
  struct Close {
    std::int64_t round = 0;
    std::uint8_t bits = 0;
  };
  /// Work that a round went on without, until a close takes it in.
  struct Late {
    bool waiting = false;
    bool written_off = false;
    std::int64_t round = 0, samples = 0, weight = 0;
    std::uint64_t index_digest = 0;
  };
  struct Kept {
    RoundResult result;
    std::vector<RankEntry> entries;
    std::vector<std::uint8_t> directives;  ///< rank 0's
    bool flush = false;
  };

  bool turn(Communicator& control);
  bool announce(Communicator& control);
  bool settle_round();
  bool harvest();
  bool decide(Communicator& control);
  bool serve_close();
  bool deposit(Communicator& control);

  void open(std::int64_t round);
  bool claimable() const;
  bool holds_back(std::int64_t round) const;
  void launch(const Close& close);
  void give_fresh(HeaderExchange& header, RankEntry& own);
  void give_late(std::int64_t round, HeaderExchange& header, RankEntry& own);
  void keep(const QuorumLane::Slot& slot);
  void count(const Kept& kept);
  void write_journal(const Kept& kept, const QuorumLane::Slot& slot) const;
  void report(Communicator& control, bool late);
  void arrived(int rank, const Message& message);
  void fail_with(const std::exception_ptr& cause);
  const JournalLine* recorded(std::int64_t round) const;

  CommThread& comm_;
  QuorumLane& lane_;
  const Optimizer& optimizer_;
  const Options options_;
  const int rank_, ranks_;
  std::map<std::int64_t, JournalLine> replay_;

  mutable std::mutex mutex_;  ///< guards what follows
  std::condition_variable changed_;
  std::exception_ptr failure_;
  QuorumWork work_;
  Event consumed_, readable_;
  Event readers_;  ///< master is read before it
  std::int64_t first_ = 0, last_taken_ = 0;
  std::int64_t ready_ns_ = 0;  ///< the work was announced
  RankEntry times_;
  bool stop_ = false;
  Late late_;
  Counts counts_;

  std::int64_t open_ = 0;      ///< newest round that is open here
  RoundInfo info_;             ///< of it
  bool ended_ = false;         ///< no round opens any more
  bool held_ = false;          ///< rounds rest after a flush until main takes one
  std::int64_t received_ = 0;  ///< newest close message
  std::uint8_t own_bits_ = 0;
  int parts_ = 0;  ///< of the close message that is coming in
  std::int64_t launched_ = 0;  ///< newest round launched, header in, applied
  std::int64_t newest_closed_ = 0;
  std::int64_t finished_ = 0;
  std::int64_t exchange_ns_ = 0;
  std::deque<Close> closes_;
  std::deque<Kept> kept_;
  std::vector<Kept> spare_;  ///< memory to use again

  ArrivalBoard board_;                                     ///< rank 0's
  std::vector<std::uint8_t> directives_;                   ///< of the round that rank 0 closed last
  std::vector<std::pair<int, std::int64_t>> acknowledge_;  ///< rank and round of deposits to answer
};

}  // namespace sidestep
