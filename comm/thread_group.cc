#include "comm/thread_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>

#include "core/base/error.h"
#include "core/base/rng.h"

namespace sidestep {
namespace {

using Clock = std::chrono::steady_clock;
using Bytes = std::vector<std::byte>;

/// What a rank starts; all ranks must agree.
struct Signature {
  enum class Kind : std::uint8_t { all_reduce, all_gather, broadcast } kind;
  DType dtype;
  std::int64_t numel;
  int detail;  ///< the Reduce, or the root
  bool operator==(const Signature&) const = default;
};

std::string describe(const Signature& s) {
  constexpr const char* kNames[] = {"all_reduce", "all_gather", "broadcast"};
  return fmt::format("{} of {} {} ({})", kNames[static_cast<int>(s.kind)], s.numel,
                     to_string(s.dtype), s.detail);
}

struct Collective {
  Signature signature;
  std::vector<Bytes> in;  ///< by rank
  int arrived = 0;
  int finished = 0;
  Bytes result;
};

/// Integers modulo 2^n, as MPI adds them in practice: digests are sums.
template <class T>
T wrapping_sum(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
  } else {
    return a + b;
  }
}

template <class T>
void reduce_into(std::byte* to, const std::byte* from, std::int64_t n, Reduce op) {
  T* a = reinterpret_cast<T*>(to);
  const T* b = reinterpret_cast<const T*>(from);
  for (std::int64_t i = 0; i < n; ++i) {
    if (op == Reduce::sum) a[i] = wrapping_sum(a[i], b[i]);
    if (op == Reduce::max) a[i] = b[i] > a[i] ? b[i] : a[i];
    if (op == Reduce::min) a[i] = b[i] < a[i] ? b[i] : a[i];
  }
}

void reduce_into(std::byte* to, const std::byte* from, const Signature& s) {
  const auto op = static_cast<Reduce>(s.detail);
  switch (s.dtype) {
    case DType::f32:
      return reduce_into<float>(to, from, s.numel, op);
    case DType::f64:
      return reduce_into<double>(to, from, s.numel, op);
    case DType::i32:
      return reduce_into<std::int32_t>(to, from, s.numel, op);
    case DType::i64:
      return reduce_into<std::int64_t>(to, from, s.numel, op);
    case DType::u8:
      break;
  }
  check(false, "all_reduce of uint8");
}

void compute_result(Collective& c) {
  switch (c.signature.kind) {
    case Signature::Kind::all_reduce:
      c.result = c.in[0];
      for (std::size_t r = 1; r < c.in.size(); ++r)
        reduce_into(c.result.data(), c.in[r].data(), c.signature);
      break;
    case Signature::Kind::all_gather:
      for (const Bytes& part : c.in) c.result.insert(c.result.end(), part.begin(), part.end());
      break;
    case Signature::Kind::broadcast:
      c.result = c.in[static_cast<std::size_t>(c.signature.detail)];
      break;
  }
}

/// What a group and its duplicates have in common: they end together.
struct Job {
  std::mutex mutex;
  std::string abort_text;
};

/// A message on its way.
struct Letter {
  Clock::time_point deliver_at;
  Message message;
};

/// What the ranks of a group share.
class Group {
 public:
  Group(int ranks, const ThreadGroupOptions& options, std::shared_ptr<Job> job)
      : options_(options),
        job_(std::move(job)),
        left_(static_cast<std::size_t>(ranks), kStays),
        inboxes_(left_.size()),
        sent_(left_.size()),
        under_way_(left_.size()),
        last_delivery_(left_.size() * left_.size()) {}

  int size() const { return static_cast<int>(left_.size()); }

  std::shared_ptr<Collective> join(int rank, std::uint64_t number, const Signature& signature,
                                   const View& in) {
    const std::lock_guard lock(job_->mutex);
    check_not_aborted();
    std::shared_ptr<Collective>& entry = collectives_[number];
    if (!entry) entry = std::make_shared<Collective>(Collective{signature, {}, 0, 0, {}});
    const std::shared_ptr<Collective> c = entry;
    c->in.resize(left_.size());
    if (!(c->signature == signature)) {
      job_->abort_text = fmt::format("collective {}: rank {} started {}, its peers {}", number,
                                     rank, describe(signature), describe(c->signature));
      check_not_aborted();
    }
    c->in[static_cast<std::size_t>(rank)].assign(in.data, in.data + in.bytes());
    if (++c->arrived == size()) compute_result(*c);
    return c;
  }

  /// True when the result is in `out`; `deliver_at` is the request's own.
  bool test(Collective& c, int rank, std::uint64_t number, const View& out,
            Clock::time_point& deliver_at) {
    const std::lock_guard lock(job_->mutex);
    if (c.arrived < size()) {
      check_not_aborted();
      check_all_stay(number);
      return false;
    }
    if (deliver_at == Clock::time_point{})
      deliver_at = Clock::now() + delay("thread group delay", rank, number);
    if (Clock::now() < deliver_at) return false;
    if (!c.result.empty()) std::memcpy(out.data, c.result.data(), c.result.size());
    if (++c.finished == size()) collectives_.erase(number);
    return true;
  }

  void abort(int rank, int exit_code) noexcept {
    const std::lock_guard lock(job_->mutex);
    if (job_->abort_text.empty())
      job_->abort_text = fmt::format("rank {} ended the job with exit code {}", rank, exit_code);
  }

  void leave(int rank, std::uint64_t next_number) {
    const std::lock_guard lock(job_->mutex);
    const auto r = static_cast<std::size_t>(rank);
    left_[r] = next_number;
    for (const Letter& letter : inboxes_[r]) --under_way_[sender(letter)];
    inboxes_[r].clear();
  }

  void send(int to, const Message& message) {
    const std::lock_guard lock(job_->mutex);
    check_not_aborted();
    const auto from = static_cast<std::size_t>(message.from);
    const auto receiver = static_cast<std::size_t>(to);
    if (left_[receiver] != kStays) return;  // nobody will read it
    if (under_way_[from] == kMessagesInFlight) {
      fail(Exit::communication,
           fmt::format("rank {} has {} messages under way and none is received", from,
                       kMessagesInFlight));
    }
    ++under_way_[from];
    // Never before an earlier one of the same sender.
    Clock::time_point& last = last_delivery_[from * left_.size() + receiver];
    last = std::max(
        last, Clock::now() + delay("thread group message", static_cast<int>(from), sent_[from]++));
    inboxes_[receiver].push_back({last, message});
  }

  std::optional<Message> receive(int rank) {
    const std::lock_guard lock(job_->mutex);
    check_not_aborted();
    std::vector<Letter>& inbox = inboxes_[static_cast<std::size_t>(rank)];
    if (inbox.empty()) return std::nullopt;
    const auto now = Clock::now();
    const auto letter = std::find_if(inbox.begin(), inbox.end(),
                                     [now](const Letter& l) { return l.deliver_at <= now; });
    if (letter == inbox.end()) return std::nullopt;
    const Message message = letter->message;
    --under_way_[sender(*letter)];
    inbox.erase(letter);
    return message;
  }

  /// The duplicate of that number; the first rank to ask makes it.
  std::shared_ptr<Group> duplicate(std::size_t number) {
    const std::lock_guard lock(job_->mutex);
    if (number == duplicates_.size())
      duplicates_.push_back(std::make_shared<Group>(size(), options_, job_));
    return duplicates_[number];
  }

 private:
  static constexpr std::uint64_t kStays = ~std::uint64_t{0};

  static std::size_t sender(const Letter& letter) {
    return static_cast<std::size_t>(letter.message.from);
  }

  void check_not_aborted() const {
    if (!job_->abort_text.empty()) fail(Exit::communication, job_->abort_text);
  }

  void check_all_stay(std::uint64_t number) const {
    for (std::size_t r = 0; r < left_.size(); ++r) {
      if (left_[r] <= number)
        fail(Exit::communication, fmt::format("rank {} left before collective {}", r, number));
    }
  }

  std::chrono::microseconds delay(const char* of, int rank, std::uint64_t number) const {
    const std::uint64_t key = rng_key(options_.seed, of, static_cast<std::uint64_t>(rank));
    return std::chrono::microseconds(
        random_below(key, number, static_cast<std::uint64_t>(options_.max_delay_us) + 1));
  }

  const ThreadGroupOptions options_;
  const std::shared_ptr<Job> job_;  ///< its mutex guards all that follows
  std::map<std::uint64_t, std::shared_ptr<Collective>> collectives_;  ///< by number, unfinished
  std::vector<std::uint64_t> left_;  ///< by rank: the first collective it does not take part in
  std::vector<std::vector<Letter>> inboxes_;      ///< by rank, in the order in which they were sent
  std::vector<std::uint64_t> sent_;               ///< by rank, like the next
  std::vector<int> under_way_;                    ///< sent and not received
  std::vector<Clock::time_point> last_delivery_;  ///< by sender and receiver
  std::vector<std::shared_ptr<Group>> duplicates_;
};

class ThreadRequest final : public Request {
 public:
  ThreadRequest(std::shared_ptr<Group> group, std::shared_ptr<Collective> collective, int rank,
                std::uint64_t number, const View& out)
      : group_(std::move(group)),
        collective_(std::move(collective)),
        rank_(rank),
        number_(number),
        out_(out) {}

  bool test() override {
    if (!done_) done_ = group_->test(*collective_, rank_, number_, out_, deliver_at_);
    return done_;
  }

 private:
  std::shared_ptr<Group> group_;
  std::shared_ptr<Collective> collective_;
  int rank_;
  std::uint64_t number_;
  View out_;
  Clock::time_point deliver_at_{};
  bool done_ = false;
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<Group> group, int rank)
      : group_(std::move(group)), rank_(rank) {}
  ~ThreadCommunicator() override { group_->leave(rank_, next_); }

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }
  std::string_view kind() const override { return "threads"; }

  std::unique_ptr<Request> start_all_reduce(View inout, Reduce op) override {
    check(inout.dtype != DType::u8, "all_reduce of uint8");
    return start({Signature::Kind::all_reduce, inout.dtype, inout.numel(), static_cast<int>(op)},
                 inout, inout);
  }

  std::unique_ptr<Request> start_all_gather(View mine, View all) override {
    check(all.dtype == mine.dtype && all.numel() == size() * mine.numel(),
          "all_gather: the target holds one part per rank");
    return start({Signature::Kind::all_gather, mine.dtype, mine.numel(), 0}, mine, all);
  }

  std::unique_ptr<Request> start_broadcast(View inout, int root) override {
    check(root >= 0 && root < size(), "broadcast: the root is a rank");
    return start({Signature::Kind::broadcast, inout.dtype, inout.numel(), root}, inout, inout);
  }

  void send(int to, Message message) override {
    check(to >= 0 && to < size(), "send: the receiver is a rank");
    message.from = rank_;
    group_->send(to, message);
  }
  std::optional<Message> receive() override { return group_->receive(rank_); }
  std::unique_ptr<Communicator> duplicate() override {
    return std::make_unique<ThreadCommunicator>(group_->duplicate(duplicates_++), rank_);
  }

  void abort(int exit_code) noexcept override { group_->abort(rank_, exit_code); }

 private:
  std::unique_ptr<Request> start(const Signature& signature, const View& in, const View& out) {
    auto collective = group_->join(rank_, next_, signature, in);
    return std::make_unique<ThreadRequest>(group_, std::move(collective), rank_, next_++, out);
  }

  std::shared_ptr<Group> group_;
  int rank_;
  std::uint64_t next_ = 0;      ///< number of the next collective
  std::size_t duplicates_ = 0;  ///< how many this rank has asked for
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_thread_group(int ranks,
                                                             const ThreadGroupOptions& options) {
  const auto group = std::make_shared<Group>(ranks, options, std::make_shared<Job>());
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int r = 0; r < ranks; ++r)
    communicators.push_back(std::make_unique<ThreadCommunicator>(group, r));
  return communicators;
}

}  // namespace sidestep
