#include "comm/comm_thread.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "comm/backoff.h"
#include "core/base/error.h"
#include "core/base/log.h"

namespace sidestep {
namespace {

/// A collective that waits for its turn.
struct Job {
  enum class Kind : std::uint8_t { all_reduce, broadcast, all_gather } kind;
  View in, out;    ///< the same but for all_gather
  int detail = 0;  ///< the Reduce, or the root
  Event after;
  const char* name = "";
  std::int64_t step = 0;
  std::uint64_t number = 0;  ///< its point on the timeline
};

/// A collective that is on its way.
struct Flight {
  std::unique_ptr<Request> request;
  TraceSpan span;
  std::uint64_t number = 0;
  bool done = false;
};

/// A FIFO that doubles when it is full: a steady load allocates nothing.
template <class T>
class Ring {
 public:
  explicit Ring(std::size_t capacity) : slots_(capacity) {}
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  T& operator[](std::size_t i) { return slots_[(head_ + i) % slots_.size()]; }

  void push(T&& item) {
    if (size_ == slots_.size()) grow();
    (*this)[size_++] = std::move(item);
  }
  T pop() {
    T item = std::exchange((*this)[0], T{});
    head_ = (head_ + 1) % slots_.size();
    --size_;
    return item;
  }

 private:
  void grow() {
    std::vector<T> larger(2 * slots_.size());
    for (std::size_t i = 0; i < size_; ++i) larger[i] = std::move((*this)[i]);
    slots_ = std::move(larger);
    head_ = 0;
  }

  std::vector<T> slots_;
  std::size_t head_ = 0;
  std::size_t size_ = 0;
};

constexpr std::size_t kQueueCapacity = 256;

}  // namespace

struct CommThread::Impl {
  Impl(std::unique_ptr<Communicator> communicator, const Options& o)
      : comm(std::move(communicator)),
        options(o),
        flights(static_cast<std::size_t>(o.max_in_flight)),
        backoff(o.poll_us) {
    check(o.max_in_flight > 0, "at least one collective may be in flight");
    if (o.control) control = comm->duplicate();
    worker = std::thread([this] { work(); });
  }

  Event enqueue(Job job) {
    bool wake = false;
    std::uint64_t number = 0;
    {
      const std::lock_guard lock(mutex);
      check(!stopping, "a collective was enqueued after stop()");
      number = job.number = ++enqueued;
      queue.push(std::move(job));
      wake = sleeping;
    }
    if (wake) ready.notify_one();
    return {timeline, number};
  }

  void add_agent(CommAgent& agent) {
    check(control != nullptr, "an agent needs a control communicator (Options::control)");
    {
      const std::lock_guard lock(mutex);
      check(!stopping, "an agent was added after stop()");
      agents.push_back(&agent);
      ++agents_version;
    }
    ready.notify_one();
  }

  void remove_agent(CommAgent& agent) {
    std::unique_lock lock(mutex);
    std::erase(agents, &agent);
    ++agents_version;
    ready.notify_one();
    agents_changed.wait(lock, [&] { return ended || !contains(active, &agent); });
  }

  void wake() {
    {
      const std::lock_guard lock(mutex);
      woken = true;
    }
    ready.notify_one();
  }

  void stop(bool drop) {
    if (drop) dropped = true;
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    ready.notify_one();
    if (worker.joinable()) worker.join();
  }

  void work() {
    pthread_setname_np(pthread_self(), "comm");
    prctl(PR_SET_TIMERSLACK, 1000UL);  // the default of 50 us would round each pause up
    while (take_job()) {
      try {
        if (timeline->failed()) std::rethrow_exception(timeline->failure());
        if (dropped) fail(Exit::communication, "the exchange was given up: the run ends early");
        busy = start_next() || test_flights();
        if (serve_agents()) busy = true;
        if (busy) {
          backoff.reset();
          late_ns = options.late_ns;
        } else if (!flights.empty() || has_next) {
          if (!flights.empty()) warn_if_late(flights[0].span);
          std::this_thread::sleep_for(backoff.take(longest_pause()));
        }
      } catch (...) {
        busy = false;
        give_up(std::current_exception());
      }
    }
    const std::lock_guard lock(mutex);
    ended = true;
    agents_changed.notify_all();
  }

  /// Sees to it that `next` is a job if there is one. Sleeps when there is nothing to do, but for
  /// agents; false when there never will be.
  bool take_job() {
    if (agents_version != agents_seen) change_agents();
    if (has_next) return true;
    std::unique_lock lock(mutex);
    if (queue.empty() && flights.empty()) {
      if (!busy) sleep(lock);
      woken = false;
      if (queue.empty()) return !stopping;
    }
    if (queue.empty()) return true;
    next = queue.pop();
    has_next = true;
    return true;
  }

  /// Until something is asked of this thread, or an agent wants to be polled again.
  void sleep(std::unique_lock<std::mutex>& lock) {
    const auto roused = [this] {
      return !queue.empty() || stopping || woken || agents_version != agents_seen;
    };
    sleeping = true;
    if (with_agents()) {
      ready.wait_for(lock, backoff.take(shortest_idle()), roused);
    } else {
      ready.wait(lock, roused);
    }
    sleeping = false;
  }

  bool with_agents() const { return !active.empty() && !timeline->failed(); }

  std::chrono::microseconds shortest_idle() const {
    int idle = active.front()->idle_us();
    for (const CommAgent* agent : active) idle = std::min(idle, agent->idle_us());
    return std::chrono::microseconds(idle);
  }

  /// Between two tests of what is on its way: who has waited for long can wait a fiftieth longer, and
  /// leaves the core to others.
  std::chrono::microseconds longest_pause() {
    constexpr std::int64_t kLongestUs = 1000;
    const std::int64_t waited_us = flights.empty() ? 0 : (now_ns() - flights[0].span.begin_ns) / 1000;
    const std::chrono::microseconds own(
        std::clamp<std::int64_t>(waited_us / 50, options.poll_us, std::max<std::int64_t>(kLongestUs, options.poll_us)));
    return with_agents() ? std::min(own, shortest_idle()) : own;
  }

  /// Takes over the list of agents; those that go are polled for the last time.
  void change_agents() {
    std::vector<CommAgent*> wanted;
    std::uint64_t version = 0;
    {
      const std::lock_guard lock(mutex);
      wanted = agents;
      version = agents_version;
    }
    try {
      for (CommAgent* agent : active)
        if (!contains(wanted, agent) && with_agents()) agent->poll(*control);
    } catch (...) {
      give_up(std::current_exception());
    }
    const std::lock_guard lock(mutex);
    active = std::move(wanted);
    agents_seen = version;
    agents_changed.notify_all();
  }

  static bool contains(const std::vector<CommAgent*>& list, const CommAgent* agent) {
    return std::find(list.begin(), list.end(), agent) != list.end();
  }

  /// True when there was anything to do. Without the mutex: agents may enqueue.
  bool serve_agents() {
    if (active.empty()) return false;
    bool progress = false;
    while (const std::optional<Message> message = control->receive()) {
      offer(*message);
      progress = true;
    }
    for (CommAgent* agent : active) progress = agent->poll(*control) || progress;
    return progress;
  }

  void offer(const Message& message) {
    for (CommAgent* agent : active)
      if (agent->take(message)) return;
    if (message.kind == MessageKind::heartbeat) return;  // its reader comes later, or has gone
    fail(Exit::internal,
         fmt::format("a message of kind {} from rank {} for round {} is taken by no agent",
                     static_cast<std::int64_t>(message.kind), message.from, message.round));
  }

  /// Starts the next collective if it may start now; waits for its event while there is nothing
  /// else to do. Rethrows a failure of the event.
  bool start_next() {
    if (!has_next || flights.size() == static_cast<std::size_t>(options.max_in_flight))
      return false;
    if ((!flights.empty() || with_agents()) && !next.after.done()) return false;
    wait_for_event();
    Flight flight;
    flight.number = next.number;
    flight.span = {next.name, now_ns(), 0, next.step, TraceRow::communication};
    if (options.before_start) options.before_start(next.out.bytes(), next.step);
    flight.request = start(next);
    next = Job{};
    has_next = false;
    flights.push(std::move(flight));
    return true;
  }

  void wait_for_event() {
    try {
      next.after.wait();
    } catch (...) {
      finish_flights();
      throw;
    }
  }

  std::unique_ptr<Request> start(const Job& job) {
    switch (job.kind) {
      case Job::Kind::all_reduce:
        return comm->start_all_reduce(job.out, static_cast<Reduce>(job.detail));
      case Job::Kind::broadcast:
        return comm->start_broadcast(job.out, job.detail);
      case Job::Kind::all_gather:
        break;
    }
    return comm->start_all_gather(job.in, job.out);
  }

  /// Tests what is on its way and reports in order; true when something has finished.
  bool test_flights() {
    bool progress = false;
    for (std::size_t i = 0; i < flights.size(); ++i) progress = test(flights[i]) || progress;
    while (!flights.empty() && flights[0].done) report_first();
    return progress;
  }

  /// True when the flight has just come back.
  static bool test(Flight& flight) {
    if (flight.done || !flight.request->test()) return false;
    flight.span.end_ns = now_ns();
    return flight.done = true;
  }

  void report_first() {
    const Flight flight = flights.pop();
    if (options.tracer != nullptr) options.tracer->add(flight.span);
    timeline->advance(flight.number);
  }

  /// After a failure: what has come back all the same, in order, is still a result.
  void report_finished() noexcept {
    try {
      while (!flights.empty() && (flights[0].done || test(flights[0]))) report_first();
    } catch (const Error&) {
    }
  }

  /// Says what this rank waits for, so that a frozen peer does not look like a silent job.
  void warn_if_late(const TraceSpan& span) {
    const std::int64_t waited = now_ns() - span.begin_ns;
    if (waited < late_ns) return;
    log_warning(fmt::format("step {}: waiting for the other ranks in {} for {:.0f} s", span.step,
                            span.name, static_cast<double>(waited) * 1e-9));
    late_ns = 2 * waited;
  }

  /// Peers may need this rank, and its agents, to finish what it has started with them. That they
  /// cannot any more is not the cause of the failure at hand.
  void finish_flights() noexcept {
    backoff.reset();
    try {
      while (!flights.empty() && !dropped) {
        const bool progress = test_flights();
        if (!serve_agents() && !progress)
          std::this_thread::sleep_for(backoff.take(longest_pause()));
      }
    } catch (...) {
    }
  }

  /// Everything not finished fails. Unfinished requests are kept: MPI knows no way to cancel them.
  void give_up(std::exception_ptr cause) {
    report_finished();
    for (CommAgent* agent : active) agent->failed(cause);
    timeline->fail(std::move(cause));
    for (; !flights.empty(); flights.pop()) abandoned.push_back(std::move(flights[0].request));
    const std::lock_guard lock(mutex);
    while (!queue.empty()) queue.pop();
    next = Job{};
    has_next = false;
  }

  std::unique_ptr<Communicator> comm;
  std::unique_ptr<Communicator> control;  ///< null without Options::control
  const Options options;
  std::shared_ptr<Timeline> timeline = std::make_shared<Timeline>();

  std::mutex mutex;
  std::condition_variable ready;
  Ring<Job> queue{kQueueCapacity};  ///< under mutex, like the rest of this group
  std::uint64_t enqueued = 0;
  bool sleeping = false;
  bool stopping = false;
  bool ended = false;
  bool woken = false;
  std::vector<CommAgent*> agents;  ///< those wanted
  std::condition_variable agents_changed;

  std::atomic<std::uint64_t> agents_version{0};  ///< of `agents`; changed under mutex
  std::vector<CommAgent*> active;  ///< those polled; the worker's, who changes it under mutex
  std::atomic<bool> dropped{false};
  Job next;  ///< the worker's, like the rest
  bool has_next = false;
  bool busy = false;              ///< the last turn did something: there may be more
  std::uint64_t agents_seen = 0;  ///< version of `active`
  std::int64_t late_ns = options.late_ns;
  Ring<Flight> flights;
  Backoff backoff;
  std::vector<std::unique_ptr<Request>> abandoned;
  std::thread worker;
};

CommThread::CommThread(std::unique_ptr<Communicator> comm, const Options& options)
    : impl_(std::make_unique<Impl>(std::move(comm), options)),
      exceptions_at_start_(std::uncaught_exceptions()) {}

CommThread::~CommThread() {
  // Peers may never answer a rank that is on its way out with an error.
  impl_->stop(std::uncaught_exceptions() > exceptions_at_start_);
}

void CommThread::add_agent(CommAgent& agent) { impl_->add_agent(agent); }
void CommThread::remove_agent(CommAgent& agent) { impl_->remove_agent(agent); }
void CommThread::wake() { impl_->wake(); }

int CommThread::rank() const { return impl_->comm->rank(); }
int CommThread::size() const { return impl_->comm->size(); }

Event CommThread::all_reduce(View inout, Reduce op, const Event& after, const char* name,
                             std::int64_t step) {
  if (size() == 1) return after;
  return impl_->enqueue(
      {Job::Kind::all_reduce, inout, inout, static_cast<int>(op), after, name, step, 0});
}

Event CommThread::broadcast(View inout, int root, const Event& after, const char* name,
                            std::int64_t step) {
  if (size() == 1) return after;
  return impl_->enqueue({Job::Kind::broadcast, inout, inout, root, after, name, step, 0});
}

Event CommThread::all_gather(View mine, View all, const Event& after, const char* name,
                             std::int64_t step) {
  return impl_->enqueue({Job::Kind::all_gather, mine, all, 0, after, name, step, 0});
}

void CommThread::give_up() { impl_->stop(true); }

std::unique_ptr<Communicator> CommThread::stop() {
  impl_->stop(false);
  return std::move(impl_->comm);
}

}  // namespace sidestep
