// Work that the comm thread does beside its queue of collectives: control messages. Comm thread only.
#pragma once

#include <exception>

#include "comm/message.h"

namespace sidestep {

class Communicator;

class CommAgent {
 public:
  virtual ~CommAgent() = default;
  /// Called again and again, at least every idle_us() microseconds; may send on `control`; never
  /// blocks. True when it has done something. A throw fails everything that is queued.
  virtual bool poll(Communicator& control) = 0;
  /// A message has come in: true if it was for this agent.
  virtual bool take(const Message& message) = 0;
  /// The comm thread has failed: nothing is exchanged any more, and this agent is left alone.
  virtual void failed(const std::exception_ptr& /*cause*/) noexcept {}
  /// How long the comm thread may sleep while it has nothing else to do.
  virtual int idle_us() const = 0;
};

}  // namespace sidestep
