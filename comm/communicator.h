// Collectives among the ranks of a job. Implementations: MPI, and in-process ranks (thread group)
// for tests. Only the comm thread calls them once it runs (decision 9); before it starts and after
// it has stopped the main thread does, for the start agreement and the final exchange.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/message.h"
#include "core/device/buffer.h"

namespace sidestep {

enum class Reduce : std::uint8_t { sum, max, min };

/// A started collective; test() until it is true. Destroying one that has not finished is an error
/// of ours, except after abort().
class Request {
 public:
  virtual ~Request() = default;
  /// True when finished; never blocks. Fails with Exit::communication.
  virtual bool test() = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// "mpi", "threads"
  virtual std::string_view kind() const = 0;

  /// In place, element by element; f32, f64, i32, i64. All ranks start the same collectives in the
  /// same order. Zero elements are allowed. The result is the same bits on every rank.
  virtual std::unique_ptr<Request> start_all_reduce(View inout, Reduce op) = 0;
  /// `all` holds size() * mine.numel() elements.
  virtual std::unique_ptr<Request> start_all_gather(View mine, View all) = 0;
  virtual std::unique_ptr<Request> start_broadcast(View inout, int root) = 0;

  /// Sends a small message; never blocks, at most kMessagesInFlight are on their way (then it fails
  /// with Exit::communication: the receiver has stopped listening for good). Any rank, also itself.
  virtual void send(int to, Message message) = 0;
  /// The next message, if one has arrived; never blocks.
  virtual std::optional<Message> receive() = 0;
  /// Another communicator of the same ranks, whose collectives and messages are its own. Collective;
  /// before the comm thread runs.
  virtual std::unique_ptr<Communicator> duplicate() = 0;

  /// Ends the job for all ranks at once with this exit code; does not return for MPI.
  virtual void abort(int exit_code) noexcept = 0;
};

/// Blocking forms for the start agreement and tests: start, then test with back-off.
void all_reduce(Communicator& comm, View inout, Reduce op);
void broadcast(Communicator& comm, View inout, int root);
/// Every rank's text (they may differ in length), in rank order.
std::vector<std::string> gather_texts(Communicator& comm, const std::string& mine);
std::string broadcast_text(Communicator& comm, const std::string& text, int root);
void barrier(Communicator& comm);

}  // namespace sidestep
