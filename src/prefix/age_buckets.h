// AgeBuckets: ages since the last use, cut into buckets a factor 2^(1/4) apart, from 0.25 s on.
//
// Thread:     values and pure functions.
// Memory:     none.
// Cost:       a few instructions.
// Not here:   what is counted by bucket (hazard_table).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace stemma {

struct AgeBuckets {
  static constexpr int kBuckets = 88;  // the last one begins after eight days
  static constexpr double kFirstEnd_us = 250'000;

  // Bucket 0 ends at kFirstEnd_us; the last one has no end.
  static int of(std::int64_t age_us) noexcept {
    const double steps = static_cast<double>(age_us) / kFirstEnd_us;
    if (steps < 1) return 0;
    const auto bits = std::bit_cast<std::uint64_t>(steps);
    const auto octave = static_cast<int>(bits >> 52) - 1023;
    const auto mantissa = std::bit_cast<double>((bits & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000);
    const int quarter = (mantissa >= kQuarters[0] ? 1 : 0) + (mantissa >= kQuarters[1] ? 1 : 0) +
                        (mantissa >= kQuarters[2] ? 1 : 0);
    return std::min(1 + octave * 4 + quarter, kBuckets - 1);
  }

  // Where a bucket begins, in seconds.
  static double begin_s(int bucket) noexcept {
    if (bucket == 0) return 0;
    const int step = bucket - 1;
    const double quarter = step % 4 == 0 ? 1 : kQuarters[static_cast<std::size_t>(step % 4 - 1)];
    return std::ldexp(kFirstEnd_us / 1e6 * quarter, step / 4);
  }
  static double width_s(int bucket) noexcept { return begin_s(bucket + 1) - begin_s(bucket); }

 private:
  static constexpr std::array<double, 3> kQuarters = {1.189207115002721, 1.4142135623730951,
                                                      1.681792830507429};
};

}  // namespace stemma
