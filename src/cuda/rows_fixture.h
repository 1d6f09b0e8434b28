// Random rows, and the norm that kernels are compared with, for tests of kernels over rows.
//
// Thread:     any.
// Memory:     what is returned.
// Cost:       O(values).
// Not here:   devices (device/cuda_fixture).
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "base/prng.h"

namespace stemma {

// Values within `reach` of 0.
inline std::vector<float> random_floats(std::int64_t count, Prng& random, double reach = 1) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>(reach * (2 * random.unit() - 1));
  return values;
}

// The same, others for every --gtest_random_seed.
inline std::vector<float> random_floats(std::int64_t count, std::uint64_t seed, double reach = 1) {
  Prng random(seed + static_cast<std::uint64_t>(testing::UnitTest::GetInstance()->random_seed()));
  return random_floats(count, random, reach);
}

// x / rms(x) × weight, in double.
inline std::vector<double> normed(std::vector<double> x, const std::vector<float>& weight,
                                  double epsilon) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + epsilon);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] *= scale * weight[i];
  return x;
}

}  // namespace stemma
