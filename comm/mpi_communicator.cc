#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>

#include "comm/mpi_check.h"
#include "comm/mpi_job.h"
#include "comm/mpi_mailbox.h"
#include "core/base/error.h"

namespace sidestep {

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  std::string name = call;
  name.erase(std::min(name.find('('), name.size()));
  fail(Exit::communication,
       fmt::format("{} failed: {}; is a rank or the network gone? See the first error above, then "
                   "run again with --resume latest",
                   name, std::string(text, static_cast<std::size_t>(length))));
}

namespace {

MPI_Datatype mpi_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return MPI_FLOAT;
    case DType::f64:
      return MPI_DOUBLE;
    case DType::i32:
      return MPI_INT32_T;
    case DType::i64:
      return MPI_INT64_T;
    case DType::u8:
      return MPI_BYTE;
  }
  return MPI_DATATYPE_NULL;
}

MPI_Op mpi_op(Reduce op) {
  switch (op) {
    case Reduce::sum:
      return MPI_SUM;
    case Reduce::max:
      return MPI_MAX;
    case Reduce::min:
      return MPI_MIN;
  }
  return MPI_OP_NULL;
}

/// One collective, as one MPI request or several parts.
class MpiRequest final : public Request {
 public:
  explicit MpiRequest(std::atomic<bool>& inside) : inside_(inside) {}

  MPI_Request* add() {
    parts_.push_back(MPI_REQUEST_NULL);
    return &parts_.back();
  }

  bool test() override {
    const InsideMpi guard(inside_);
    int done = 0;
    SIDESTEP_MPI(
        MPI_Testall(static_cast<int>(parts_.size()), parts_.data(), &done, MPI_STATUSES_IGNORE));
    return done != 0;
  }

 private:
  std::atomic<bool>& inside_;
  std::vector<MPI_Request> parts_;
};

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(MPI_Comm parent, std::int64_t max_count,
                  std::shared_ptr<std::atomic<bool>> inside)
      : max_count_(max_count), inside_owner_(std::move(inside)) {
    SIDESTEP_MPI(MPI_Comm_dup(parent, &comm_));
    SIDESTEP_MPI(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
    SIDESTEP_MPI(MPI_Comm_rank(comm_, &rank_));
    SIDESTEP_MPI(MPI_Comm_size(comm_, &size_));
  }
  ~MpiCommunicator() override {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized != 0) {
      static_cast<void>(mailbox_.release());  // its requests are MPI's no more
      return;
    }
    mailbox_.reset();
    MPI_Comm_free(&comm_);
  }
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view kind() const override { return "mpi"; }

  std::unique_ptr<Request> start_all_reduce(View inout, Reduce op) override {
    check(inout.dtype != DType::u8, "all_reduce of uint8");
    check_host(inout);
    auto request = std::make_unique<MpiRequest>(inside_);
    const InsideMpi guard(inside_);
    for_each_part(inout, [&](std::byte* data, int count) {
      SIDESTEP_MPI(MPI_Iallreduce(MPI_IN_PLACE, data, count, mpi_type(inout.dtype), mpi_op(op),
                                  comm_, request->add()));
    });
    return request;
  }

  std::unique_ptr<Request> start_all_gather(View mine, View all) override {
    check(all.dtype == mine.dtype && all.numel() == size_ * mine.numel(),
          "all_gather: the target holds one part per rank");
    check_host(mine);
    check_host(all);
    auto request = std::make_unique<MpiRequest>(inside_);
    const InsideMpi guard(inside_);
    const MPI_Datatype type = mpi_type(mine.dtype);
    if (mine.numel() > max_count_) {
      gather_by_broadcasts(mine, all, *request);
    } else if (mine.numel() > 0) {
      const int count = static_cast<int>(mine.numel());
      SIDESTEP_MPI(
          MPI_Iallgather(mine.data, count, type, all.data, count, type, comm_, request->add()));
    }
    return request;
  }

  std::unique_ptr<Request> start_broadcast(View inout, int root) override {
    check(root >= 0 && root < size_, "broadcast: the root is a rank");
    check_host(inout);
    auto request = std::make_unique<MpiRequest>(inside_);
    const InsideMpi guard(inside_);
    broadcast_parts(inout, root, *request);
    return request;
  }

  void send(int to, Message message) override {
    check(to >= 0 && to < size_, "send: the receiver is a rank");
    message.from = rank_;
    const InsideMpi guard(inside_);
    mailbox().send(to, message);
  }

  std::optional<Message> receive() override {
    const InsideMpi guard(inside_);
    return mailbox().receive();
  }

  std::unique_ptr<Communicator> duplicate() override {
    const InsideMpi guard(inside_);
    return std::make_unique<MpiCommunicator>(comm_, max_count_, inside_owner_);
  }

  void abort(int exit_code) noexcept override { MpiJob::abort(exit_code); }

 private:
  static void check_host(const View& view) {
    check(view.device.kind == DeviceKind::cpu, "MPI is given host memory");
  }

  /// Made on first use: most communicators carry no messages.
  MpiMailbox& mailbox() {
    if (!mailbox_) mailbox_ = std::make_unique<MpiMailbox>(comm_);
    return *mailbox_;
  }

  template <class F>
  void for_each_part(const View& view, F f) const {
    for (std::int64_t at = 0; at < view.numel(); at += max_count_) {
      f(view.data + static_cast<std::size_t>(at) * size_of(view.dtype),
        static_cast<int>(std::min(max_count_, view.numel() - at)));
    }
  }

  void broadcast_parts(const View& view, int root, MpiRequest& request) {
    for_each_part(view, [&](std::byte* data, int count) {
      SIDESTEP_MPI(MPI_Ibcast(data, count, mpi_type(view.dtype), root, comm_, request.add()));
    });
  }

  /// Blocks beyond max_count do not lie where MPI_Iallgather would put their parts.
  void gather_by_broadcasts(const View& mine, const View& all, MpiRequest& request) {
    for (int r = 0; r < size_; ++r) {
      View block = mine;
      block.data = all.data + static_cast<std::size_t>(r) * mine.bytes();
      if (r == rank_ && mine.bytes() > 0) std::memcpy(block.data, mine.data, mine.bytes());
      broadcast_parts(block, r, request);
    }
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  std::int64_t max_count_;
  int rank_ = 0;
  int size_ = 1;
  std::unique_ptr<MpiMailbox> mailbox_;
  std::shared_ptr<std::atomic<bool>> inside_owner_;  ///< shared with the duplicates
  std::atomic<bool>& inside_ = *inside_owner_;
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm parent, std::int64_t max_count) {
  return std::make_unique<MpiCommunicator>(parent, max_count,
                                           std::make_shared<std::atomic<bool>>(false));
}

}  // namespace sidestep
