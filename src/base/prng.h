// Prng: small, seedable, the same numbers on every machine (xoshiro256**, Blackman and Vigna 2018;
// splitmix64 seeds it).
//
// Thread:     values; one thread a generator.
// Memory:     32 bytes.
// Cost:       about 1 ns a number.
// Not here:   secrets: this is not a cryptographic generator.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace stemma {

// One step of splitmix64: a bijection of 64-bit integers that mixes well. Also used to derive seeds
// from counters.
constexpr std::uint64_t mix64(std::uint64_t x) noexcept {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

class Prng {
 public:
  using result_type = std::uint64_t;

  explicit constexpr Prng(std::uint64_t seed) noexcept {
    for (std::uint64_t& word : state_) {
      word = mix64(seed);
      seed += 0x9E3779B97F4A7C15u;
    }
  }

  static constexpr result_type min() noexcept { return 0; }
  static constexpr result_type max() noexcept { return std::numeric_limits<result_type>::max(); }

  constexpr std::uint64_t operator()() noexcept {
    const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
    const std::uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }

  // Uniform in [0, bound), without bias worth measuring (bias < bound / 2^64). REQUIRES: bound > 0.
  constexpr std::int64_t below(std::int64_t bound) noexcept {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::int64_t>((Wide{(*this)()} * static_cast<std::uint64_t>(bound)) >> 64);
  }

  // Uniform in [0, 1): 53 bits.
  constexpr double unit() noexcept { return static_cast<double>((*this)() >> 11) * 0x1.0p-53; }

 private:
  std::uint64_t state_[4] = {};
};

}  // namespace stemma
