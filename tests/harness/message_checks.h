// The messages that every Communicator must carry. Each rank calls check_messages() on its own
// communicator; failures are reported through GoogleTest.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "comm/backoff.h"
#include "comm/communicator.h"
#include "tests/harness/collective_checks.h"

namespace sidestep::testing {

inline Message receive_one(Communicator& comm) {
  Backoff backoff(100);
  for (;;) {
    if (const std::optional<Message> message = comm.receive()) return *message;
    backoff.pause();
  }
}

inline Message message_of(std::int64_t number) {
  return {MessageKind::arrival, -1, number, {number, -number, 3, 4, INT64_MAX}};
}

inline void expect_message(const Message& message, int from, std::int64_t number) {
  const Message expected = message_of(number);
  EXPECT_EQ(message.kind, expected.kind);
  EXPECT_EQ(message.from, from);
  EXPECT_EQ(message.round, expected.round);
  EXPECT_EQ(message.words, expected.words);
}

inline void check_message_to_self(Communicator& comm) {
  EXPECT_FALSE(comm.receive().has_value());
  for (int i = 0; i < 3; ++i) comm.send(comm.rank(), message_of(i));
  for (int i = 0; i < 3; ++i) expect_message(receive_one(comm), comm.rank(), i);
  EXPECT_FALSE(comm.receive().has_value());
}

/// More rounds than there may be messages under way.
inline void check_message_ring(Communicator& comm) {
  const int next = (comm.rank() + 1) % comm.size();
  const int previous = (comm.rank() + comm.size() - 1) % comm.size();
  for (int i = 0; i < kMessagesInFlight + 300; ++i) {
    comm.send(next, message_of(i));
    expect_message(receive_one(comm), previous, i);
  }
}

/// All ranks to one at once, also that one itself: each sender's come in its order.
inline void check_message_burst(Communicator& comm) {
  constexpr std::int64_t kBurst = 500;
  const int sink = comm.size() - 1;
  for (std::int64_t i = 0; i < kBurst; ++i) comm.send(sink, message_of(i));
  if (comm.rank() == sink) {
    std::vector<std::int64_t> seen(static_cast<std::size_t>(comm.size()));
    for (std::int64_t i = 0; i < kBurst * comm.size(); ++i) {
      const Message message = receive_one(comm);
      ASSERT_GE(message.from, 0);
      ASSERT_LT(message.from, comm.size());
      expect_message(message, static_cast<int>(message.from),
                     seen[static_cast<std::size_t>(message.from)]++);
    }
    for (const std::int64_t count : seen) EXPECT_EQ(count, kBurst);
  }
  barrier(comm);
  EXPECT_FALSE(comm.receive().has_value());
  barrier(comm);
}

/// What is sent or started on one communicator does not appear on the other.
inline void check_duplicate(Communicator& comm) {
  const auto other = comm.duplicate();
  const auto third = comm.duplicate();
  EXPECT_EQ(other->rank(), comm.rank());
  EXPECT_EQ(other->size(), comm.size());
  EXPECT_EQ(other->kind(), comm.kind());
  const int next = (comm.rank() + 1) % comm.size();
  const int previous = (comm.rank() + comm.size() - 1) % comm.size();
  comm.send(next, message_of(1));
  other->send(next, message_of(2));
  expect_message(receive_one(*other), previous, 2);
  EXPECT_FALSE(other->receive().has_value());
  EXPECT_FALSE(third->receive().has_value());
  expect_message(receive_one(comm), previous, 1);

  // Ranks may start them in different orders.
  std::vector<std::int64_t> a = {1};
  std::vector<std::int64_t> b = {10};
  std::unique_ptr<Request> on_comm;
  std::unique_ptr<Request> on_other;
  if (comm.rank() % 2 == 0) on_comm = comm.start_all_reduce(view_of(a), Reduce::sum);
  on_other = other->start_all_reduce(view_of(b), Reduce::sum);
  if (!on_comm) on_comm = comm.start_all_reduce(view_of(a), Reduce::sum);
  finish(std::move(on_other));
  finish(std::move(on_comm));
  EXPECT_EQ(a[0], comm.size());
  EXPECT_EQ(b[0], 10 * comm.size());
  barrier(comm);
}

inline void check_messages(Communicator& comm) {
  check_message_to_self(comm);
  barrier(comm);  // before a neighbour's first message
  check_message_ring(comm);
  barrier(comm);
  check_message_burst(comm);
  check_duplicate(comm);
}

}  // namespace sidestep::testing
