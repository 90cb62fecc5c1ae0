// Streams of a GPU. Kernels go to a cudaStream_t; host work, and waits for events that the GPU does
// not know, run in a companion CPU stream while the cudaStream_t stands at a gate: a counter in
// pinned memory that the companion raises. (cudaLaunchHostFunc may serialise the functions of all
// streams in one thread, where a blocking one can wait for another for ever.)
//
// A failure skips later host work. Kernels enqueued after it still run, on whatever data there is;
// nobody sees their results, since the events after them are failed.
#include <cuda.h>
#include <cudaTypedefs.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <vector>

#include "core/device/cuda_check.h"
#include "core/device/stream.h"
#include "core/device/task_ring.h"

namespace sidestep {
namespace {

/// Events of a CUDA stream: point n is slot n modulo the ring's size. A slot is used again when its
/// event is over; otherwise the ring doubles. A failure also fails earlier points that nobody has
/// seen complete.
class CudaTimeline final : public Timeline {
 public:
  explicit CudaTimeline(int device) : device_(device), slots_(kFirstCapacity) {
    for (Slot& s : slots_) s.event = make_event();
  }

  /// Enqueuing thread only.
  std::uint64_t record(cudaStream_t stream) {
    const std::lock_guard lock(mutex_);
    const std::uint64_t value = last_ + 1;
    if (in_use(slot(value))) grow();
    Slot& s = slot(value);
    if (s.value != 0) advance(s.value);
    if (!s.event) s.event = make_event();
    SIDESTEP_CUDA_CHECK(cudaEventRecord(s.event.get(), stream));
    s.value = value;
    last_ = value;
    return value;
  }

  bool done(std::uint64_t value) const override {
    if (Timeline::done(value)) return true;
    const std::lock_guard lock(mutex_);
    const Slot& s = slot(value);
    // An event that cannot complete any more (an error) is done; wait() reports it.
    return s.value != value || cudaEventQuery(s.event.get()) != cudaErrorNotReady;
  }

  void wait(std::uint64_t value) const override {
    if (!Timeline::done(value)) {
      if (const cudaEvent_t event = pin(value)) {
        const cudaError_t status = cudaEventSynchronize(event);
        unpin(value);
        check_cuda(status, "cudaEventSynchronize");
      }
    }
    rethrow_failure(value);
  }

  bool wait_on_gpu(void* native_stream, std::uint64_t value,
                   const std::shared_ptr<Timeline>& follower) const override {
    {
      const std::lock_guard lock(mutex_);
      const Slot& s = slot(value);
      if (reached() >= value) return true;
      if (!failed() && s.value == value) {
        SIDESTEP_CUDA_CHECK(cudaStreamWaitEvent(static_cast<cudaStream_t>(native_stream),
                                                s.event.get(), cudaEventWaitDefault));
        std::erase_if(followers_, [this](const Follower& f) { return f.value <= reached(); });
        followers_.push_back({follower, value});
      }
    }
    if (failed()) follower->fail(failure());
    return true;
  }

  /// Fails also the streams that wait for points not reached.
  void fail(std::exception_ptr cause) override {
    std::vector<Follower> followers;
    {
      const std::lock_guard lock(mutex_);
      Timeline::fail(cause);
      followers = std::move(followers_);
      followers_.clear();
    }
    for (const Follower& f : followers) {
      const auto timeline = f.timeline.lock();
      if (timeline && f.value > reached()) timeline->fail(cause);
    }
  }

 private:
  static constexpr std::size_t kFirstCapacity = 256;

  struct Slot {
    CudaEvent event;
    std::uint64_t value = 0;
    int waiters = 0;  ///< threads inside cudaEventSynchronize
  };
  struct Follower {
    std::weak_ptr<Timeline> timeline;
    std::uint64_t value;
  };

  Slot& slot(std::uint64_t value) const { return slots_[value % slots_.size()]; }

  static bool in_use(const Slot& s) {
    return s.value != 0 && (s.waiters > 0 || cudaEventQuery(s.event.get()) == cudaErrorNotReady);
  }

  CudaEvent make_event() const {
    const CudaDeviceScope scope(device_);
    cudaEvent_t event = nullptr;
    SIDESTEP_CUDA_CHECK(
        cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync));
    return CudaEvent(event);
  }

  void grow() {
    std::vector<Slot> larger(2 * slots_.size());
    for (Slot& s : slots_)
      if (s.value != 0) larger[s.value % larger.size()] = std::move(s);
    slots_ = std::move(larger);
  }

  /// The event of a point, kept from being used again until unpin(); null if the point is passed.
  cudaEvent_t pin(std::uint64_t value) const {
    const std::lock_guard lock(mutex_);
    Slot& s = slot(value);
    if (s.value != value) return nullptr;
    ++s.waiters;
    return s.event.get();
  }

  void unpin(std::uint64_t value) const {
    const std::lock_guard lock(mutex_);
    --slot(value).waiters;
  }

  int device_;
  mutable std::mutex mutex_;
  mutable std::vector<Slot> slots_;
  mutable std::vector<Follower> followers_;
  std::uint64_t last_ = 0;
};

/// A counter that a CUDA stream waits for and the host raises.
class Gate {
 public:
  Gate() {
    void* flag = nullptr;
    SIDESTEP_CUDA_CHECK(cudaHostAlloc(&flag, sizeof(std::uint32_t), cudaHostAllocPortable));
    flag_ = static_cast<std::uint32_t*>(flag);
    *flag_ = 0;
    // The driver's library is not linked: it does not exist on machines without a GPU.
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t status = cudaGetDriverEntryPointByVersion(
        "cuStreamWaitValue32", &entry, kDriverVersion, cudaEnableDefault, &found);
    if (status == cudaSuccess && found == cudaDriverEntryPointSuccess)
      wait_value_ = reinterpret_cast<PFN_cuStreamWaitValue32_v11070>(entry);
    if (wait_value_ != nullptr) return;
    cudaFreeHost(flag_);
    fail(Exit::device,
         "CUDA: expected a driver with stream memory operations, found one without; update the "
         "driver or run on the CPU (--device cpu)");
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate() { cudaFreeHost(flag_); }

  /// Later work of `stream` starts after open(ticket). The GPU compares modulo 2^32.
  void close(cudaStream_t stream, std::uint32_t ticket) {
    const CUresult status =
        wait_value_(stream, reinterpret_cast<CUdeviceptr>(flag_), ticket, CU_STREAM_WAIT_VALUE_GEQ);
    if (status != CUDA_SUCCESS) {
      fail(Exit::device, "CUDA: expected success of cuStreamWaitValue32, found error " +
                             std::to_string(static_cast<int>(status)));
    }
  }

  void open(std::uint32_t ticket) noexcept {
    std::atomic_ref<std::uint32_t>(*flag_).store(ticket, std::memory_order_seq_cst);
  }

 private:
  static constexpr unsigned kDriverVersion = 12000;

  std::uint32_t* flag_ = nullptr;  ///< unified addressing: the same address on the GPU
  PFN_cuStreamWaitValue32_v11070 wait_value_ = nullptr;
};

class CudaStream final : public Stream::Impl {
 public:
  CudaStream(Device where, std::string_view stream_name, int priority) {
    device = where;
    name = stream_name;
    const CudaDeviceScope scope(where.index);
    cudaStream_t stream = nullptr;
    SIDESTEP_CUDA_CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority));
    stream_ = CudaStreamHandle(stream);
    timeline_ = std::make_shared<CudaTimeline>(where.index);
    gate_.emplace();
    companion_.emplace(Stream::create(Device{}, stream_name));
  }

  ~CudaStream() override {
    cudaStreamSynchronize(stream_.get());
    companion_.reset();  // its tasks use the other members
  }

  Event record() override { return {timeline_, timeline_->record(stream_.get())}; }

  void wait(const Event& event) override {
    if (event.covered_by(timeline_.get())) return;
    if (event.timeline()->wait_on_gpu(native(), event.value(), timeline_)) return;
    const std::uint32_t ticket = ++tickets_;
    companion_->host([this, event, ticket] {
      guarded([&] { event.wait(); });
      gate_->open(ticket);
    });
    gate_->close(stream_.get(), ticket);
  }

  void host(Task task) override {
    const Event before = record();
    const std::uint32_t ticket = ++tickets_;
    {
      const std::lock_guard lock(tasks_mutex_);
      tasks_.push(std::move(task));
    }
    companion_->host([this, before, ticket] {
      Task next = take_task();
      guarded([&] {
        before.wait();
        if (timeline_->advance(before.value())) next();
      });
      next = Task();
      gate_->open(ticket);
    });
    gate_->close(stream_.get(), ticket);
  }

  void synchronize() override { record().wait(); }
  void* native() const override { return stream_.get(); }

 private:
  /// Runs work of the companion, which must go on whatever happens, to open the gates.
  template <class Work>
  void guarded(Work work) noexcept {
    try {
      work();
    } catch (...) {
      timeline_->fail(std::current_exception());
    }
  }

  Task take_task() {
    const std::lock_guard lock(tasks_mutex_);
    return tasks_.pop();
  }

  CudaStreamHandle stream_;
  std::shared_ptr<CudaTimeline> timeline_;
  std::optional<Gate> gate_;
  std::uint32_t tickets_ = 0;
  std::mutex tasks_mutex_;
  TaskRing tasks_;  ///< of host(): a Task holds no other Task
  std::optional<Stream> companion_;
};

}  // namespace

std::unique_ptr<Stream::Impl> make_cuda_stream(Device device, std::string_view name, int priority) {
  const CudaProbe probe = probe_cuda();
  if (device.index < 0 || device.index >= probe.devices) {
    fail(Exit::device, "stream '" + std::string(name) + "': expected " + to_string(device) +
                           ", found " + std::to_string(probe.devices) + " GPUs" +
                           (probe.explanation.empty() ? "" : " (" + probe.explanation + ")") +
                           "; use the CPU (--device cpu)");
  }
  return std::make_unique<CudaStream>(device, name, priority);
}

}  // namespace sidestep
