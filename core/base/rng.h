// Counter-based random numbers: a value is a pure function of a key and a counter, so it does not
// depend on ranks, threads, micro-batches or restarts. Any thread, host and device.
//
// Source: Philox4x32-10, Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/base/host_device.h"

namespace sidestep {

struct Philox4 {
  std::uint32_t v[4];
};

/// Ten rounds of Philox4x32 on (counter, key).
SIDESTEP_HD inline Philox4 philox4x32(Philox4 counter, std::uint64_t key) {
  std::uint32_t k0 = static_cast<std::uint32_t>(key);
  std::uint32_t k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * counter.v[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * counter.v[2];
    counter = {{static_cast<std::uint32_t>(p1 >> 32) ^ counter.v[1] ^ k0,
                static_cast<std::uint32_t>(p1),
                static_cast<std::uint32_t>(p0 >> 32) ^ counter.v[3] ^ k1,
                static_cast<std::uint32_t>(p0)}};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return counter;
}

/// A 64-bit key for a purpose: mixes the run's seed with what is drawn ("init", "shuffle", a
/// parameter's name) and up to two numbers (epoch, step, ...).
std::uint64_t rng_key(std::uint64_t seed, std::string_view purpose, std::uint64_t a = 0,
                      std::uint64_t b = 0);

/// 64 random bits for counter i under key.
SIDESTEP_HD inline std::uint64_t random_bits(std::uint64_t key, std::uint64_t i) {
  const Philox4 r =
      philox4x32({{static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i >> 32), 0, 0}}, key);
  return (std::uint64_t{r.v[0]} << 32) | r.v[1];
}

/// Uniform in [0, 1) with 24 bits.
SIDESTEP_HD inline float random_uniform(std::uint64_t key, std::uint64_t i) {
  return static_cast<float>(random_bits(key, i) >> 40) * (1.0f / 16777216.0f);
}

/// Standard normal (Box-Muller on two 32-bit uniforms).
float random_normal(std::uint64_t key, std::uint64_t i);

/// Uniform integer in [0, bound), without bias (bound > 0; Lemire's multiply-shift with rejection
/// on the counter's upper words).
std::uint64_t random_below(std::uint64_t key, std::uint64_t i, std::uint64_t bound);

/// 64-bit FNV-1a over bytes, then a finalising mix: the digest used for names and index digests.
std::uint64_t hash64(const void* data, std::size_t bytes, std::uint64_t start = 0xcbf29ce484222325u);

}  // namespace sidestep
