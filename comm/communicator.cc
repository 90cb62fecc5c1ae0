#include "comm/communicator.h"

#include <algorithm>
#include <cstring>

#include "comm/backoff.h"

namespace sidestep {
namespace {

constexpr int kLongestPauseUs = 200;

void finish(std::unique_ptr<Request> request) {
  Backoff backoff(kLongestPauseUs);
  while (!request->test()) backoff.pause();
}

template <class T>
View host_view(std::vector<T>& data) {
  return {.data = reinterpret_cast<std::byte*>(data.data()),
          .shape = Shape{static_cast<std::int64_t>(data.size())},
          .dtype = dtype_of<T>,
          .device = Device{}};
}

}  // namespace

void all_reduce(Communicator& comm, View inout, Reduce op) {
  finish(comm.start_all_reduce(inout, op));
}

void broadcast(Communicator& comm, View inout, int root) {
  finish(comm.start_broadcast(inout, root));
}

std::vector<std::string> gather_texts(Communicator& comm, const std::string& mine) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  std::vector<std::int64_t> my_length = {static_cast<std::int64_t>(mine.size())};
  std::vector<std::int64_t> lengths(ranks);
  finish(comm.start_all_gather(host_view(my_length), host_view(lengths)));

  // Every rank sends as many bytes as the longest text has.
  const auto longest = static_cast<std::size_t>(*std::max_element(lengths.begin(), lengths.end()));
  std::vector<std::uint8_t> padded(longest);
  std::copy(mine.begin(), mine.end(), padded.begin());
  std::vector<std::uint8_t> all(ranks * longest);
  finish(comm.start_all_gather(host_view(padded), host_view(all)));

  std::vector<std::string> texts;
  texts.reserve(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(r * longest);
    texts.emplace_back(begin, begin + lengths[r]);
  }
  return texts;
}

std::string broadcast_text(Communicator& comm, const std::string& text, int root) {
  std::vector<std::int64_t> length = {static_cast<std::int64_t>(text.size())};
  broadcast(comm, host_view(length), root);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(length[0]));
  if (comm.rank() == root) std::copy(text.begin(), text.end(), bytes.begin());
  broadcast(comm, host_view(bytes), root);
  return {bytes.begin(), bytes.end()};
}

void barrier(Communicator& comm) {
  std::vector<std::int64_t> token(1);
  all_reduce(comm, host_view(token), Reduce::sum);
}

}  // namespace sidestep
