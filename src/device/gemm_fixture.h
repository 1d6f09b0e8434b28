// For the tests of GEMM: a product in memory of its own, and the comparison of bits.
//
// Thread:     one test.
// Memory:     the product.
// Cost:       none worth noting.
// Not here:   what is expected (the tests).
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "device/gemm.h"

namespace stemma {

// Stands where nothing was written.
inline constexpr float kGuard = -12345.5f;

// The first `rows` rows of `a` [*, k] times `w`, dense.
inline std::vector<float> product(const std::vector<float>& a, std::int64_t rows,
                                  const PackedWeights& w, std::span<const float> bias,
                                  ThreadPool& pool) {
  std::vector<float> c(static_cast<std::size_t>(rows * w.n()), kGuard);
  gemm(ConstMatrixView{a.data(), rows, w.k(), w.k()}, w, bias,
       MatrixView{c.data(), rows, w.n(), w.n()}, pool);
  return c;
}

inline testing::AssertionResult same_bits(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return testing::AssertionFailure() << "sizes differ";
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i])) {
      return testing::AssertionFailure() << "value " << i << ": " << a[i] << " and " << b[i];
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace stemma
