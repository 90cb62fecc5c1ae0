// The table of collectives that every Communicator must pass: op x dtype x size. Each rank calls
// check_collectives() on its own communicator; failures are reported through GoogleTest.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "comm/backoff.h"
#include "comm/communicator.h"

namespace sidestep::testing {

inline void finish(std::unique_ptr<Request> request) {
  Backoff backoff(100);
  while (!request->test()) backoff.pause();
}

template <class T>
View view_of(std::vector<T>& data) {
  return {reinterpret_cast<std::byte*>(data.data()), Shape{static_cast<std::int64_t>(data.size())},
          dtype_of<T>, Device{}};
}

/// Small whole numbers, so that sums are exact in every dtype and order.
template <class T>
T element(int rank, std::int64_t i) {
  const std::int64_t value = (i * 7 + rank * 13) % 101;
  return static_cast<T>(dtype_of<T> == DType::u8 ? value : value - 50);
}

template <class T>
std::vector<T> elements(int rank, std::int64_t n) {
  std::vector<T> data(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) data[static_cast<std::size_t>(i)] = element<T>(rank, i);
  return data;
}

template <class T>
void check_all_reduce(Communicator& comm, std::int64_t n, Reduce op) {
  std::vector<T> expected = elements<T>(0, n);
  for (int r = 1; r < comm.size(); ++r) {
    for (std::int64_t i = 0; i < n; ++i) {
      T& sum = expected[static_cast<std::size_t>(i)];
      const T x = element<T>(r, i);
      sum = op == Reduce::sum ? sum + x : op == Reduce::max ? std::max(sum, x) : std::min(sum, x);
    }
  }
  std::vector<T> data = elements<T>(comm.rank(), n);
  finish(comm.start_all_reduce(view_of(data), op));
  EXPECT_EQ(data, expected) << to_string(dtype_of<T>) << " [" << n << "], op "
                            << static_cast<int>(op);
}

template <class T>
void check_all_gather(Communicator& comm, std::int64_t n) {
  std::vector<T> expected;
  for (int r = 0; r < comm.size(); ++r) {
    const std::vector<T> part = elements<T>(r, n);
    expected.insert(expected.end(), part.begin(), part.end());
  }
  std::vector<T> mine = elements<T>(comm.rank(), n);
  std::vector<T> all(expected.size());
  finish(comm.start_all_gather(view_of(mine), view_of(all)));
  EXPECT_EQ(all, expected) << to_string(dtype_of<T>) << " [" << n << "]";
}

template <class T>
void check_broadcast(Communicator& comm, std::int64_t n) {
  for (int root = 0; root < comm.size(); ++root) {
    std::vector<T> data = elements<T>(comm.rank(), n);
    finish(comm.start_broadcast(view_of(data), root));
    EXPECT_EQ(data, elements<T>(root, n)) << to_string(dtype_of<T>) << " [" << n << "]";
  }
}

/// Numbers whose float sums depend on the order: the result must still be one on all ranks.
inline void check_same_bits(Communicator& comm, std::int64_t n) {
  std::vector<float> data(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < data.size(); ++i)
    data[i] = 1.0f / static_cast<float>(i + 3 + 1000u * static_cast<unsigned>(comm.rank()));
  finish(comm.start_all_reduce(view_of(data), Reduce::sum));
  std::vector<float> all(data.size() * static_cast<std::size_t>(comm.size()));
  finish(comm.start_all_gather(view_of(data), view_of(all)));
  if (data.empty()) return;  // it came back, which is all that can be said
  for (int r = 0; r < comm.size(); ++r) {
    const float* theirs = all.data() + static_cast<std::size_t>(r) * data.size();
    EXPECT_EQ(std::memcmp(theirs, data.data(), data.size() * sizeof(float)), 0) << "rank " << r;
  }
}

template <class T>
void check_dtype_collectives(Communicator& comm, std::int64_t n) {
  for (const Reduce op : {Reduce::sum, Reduce::max, Reduce::min}) check_all_reduce<T>(comm, n, op);
  check_all_gather<T>(comm, n);
  check_broadcast<T>(comm, n);
}

inline void check_collectives(Communicator& comm, std::initializer_list<std::int64_t> sizes) {
  for (const std::int64_t n : sizes) {
    check_dtype_collectives<float>(comm, n);
    check_dtype_collectives<double>(comm, n);
    check_dtype_collectives<std::int32_t>(comm, n);
    check_dtype_collectives<std::int64_t>(comm, n);
    check_all_gather<std::uint8_t>(comm, n);
    check_broadcast<std::uint8_t>(comm, n);
    check_same_bits(comm, n);
  }
}

/// Several at once, tested in the opposite order.
inline void check_many_in_flight(Communicator& comm) {
  constexpr int kCount = 5;
  std::vector<std::vector<std::int64_t>> data(kCount);
  std::vector<std::unique_ptr<Request>> requests;
  for (int k = 0; k < kCount; ++k) {
    data[static_cast<std::size_t>(k)] = {comm.rank() + k, 1};
    requests.push_back(
        comm.start_all_reduce(view_of(data[static_cast<std::size_t>(k)]), Reduce::sum));
  }
  for (; !requests.empty(); requests.pop_back()) finish(std::move(requests.back()));
  const std::int64_t n = comm.size();
  for (int k = 0; k < kCount; ++k) {
    const std::vector<std::int64_t> expected = {n * (n - 1) / 2 + n * k, n};
    EXPECT_EQ(data[static_cast<std::size_t>(k)], expected);
  }
}

inline std::string text_of(int rank) {
  if (rank == 1) return "";
  return std::string(static_cast<std::size_t>(3 * rank + 1), 'a') + std::string("\n\0\xff", 3);
}

inline void check_blocking_helpers(Communicator& comm) {
  const std::vector<std::string> texts = gather_texts(comm, text_of(comm.rank()));
  ASSERT_EQ(texts.size(), static_cast<std::size_t>(comm.size()));
  for (int r = 0; r < comm.size(); ++r) EXPECT_EQ(texts[static_cast<std::size_t>(r)], text_of(r));
  for (const std::string& none : gather_texts(comm, "")) EXPECT_EQ(none, "");
  const int last = comm.size() - 1;
  EXPECT_EQ(broadcast_text(comm, comm.rank() == last ? "from the last" : "x", last),
            "from the last");
  barrier(comm);
}

}  // namespace sidestep::testing
