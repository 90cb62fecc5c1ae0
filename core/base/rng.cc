#include "core/base/rng.h"

#include <cmath>
#include <numbers>

namespace sidestep {

__extension__ typedef unsigned __int128 Uint128;  // g++, clang and nvcc have it; ISO C++ does not

std::uint64_t hash64(const void* data, std::size_t bytes, std::uint64_t start) {
  std::uint64_t h = start;
  const auto* p = static_cast<const unsigned char*>(data);
  for (std::size_t i = 0; i < bytes; ++i) h = (h ^ p[i]) * 0x100000001b3u;
  h ^= h >> 33;
  h *= 0xff51afd7ed558ccdu;
  h ^= h >> 33;
  return h;
}

std::uint64_t rng_key(std::uint64_t seed, std::string_view purpose, std::uint64_t a,
                      std::uint64_t b) {
  const std::uint64_t words[3] = {seed, a, b};
  return hash64(words, sizeof words, hash64(purpose.data(), purpose.size()));
}

float random_normal(std::uint64_t key, std::uint64_t i) {
  const std::uint64_t bits = random_bits(key, i);
  const double u = (static_cast<double>(bits >> 32) + 1.0) / 4294967296.0;  // (0, 1]
  const double v = static_cast<double>(bits & 0xffffffffu) / 4294967296.0;
  return static_cast<float>(std::sqrt(-2.0 * std::log(u)) *
                            std::cos(2.0 * std::numbers::pi * v));
}

std::uint64_t random_below(std::uint64_t key, std::uint64_t i, std::uint64_t bound) {
  const std::uint64_t reject_below = (0 - bound) % bound;
  for (std::uint32_t attempt = 0;; ++attempt) {
    const Philox4 r = philox4x32(
        {{static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i >> 32), attempt, 1}}, key);
    const std::uint64_t x = (std::uint64_t{r.v[0]} << 32) | r.v[1];
    const Uint128 product = static_cast<Uint128>(x) * bound;
    if (static_cast<std::uint64_t>(product) >= reject_below)
      return static_cast<std::uint64_t>(product >> 64);
  }
}

}  // namespace sidestep
