// Row operations: everything a transformer layer does to one token's row besides products and
// attention.
//
// Each function sees one row, so a token's result cannot depend on its batch; sums run in an order
// fixed by the row's length and the SIMD target; elements at a row's ragged end go through the same
// instructions as the others (I13).
//
// Thread:     pure functions of their arguments.
// Memory:     none.
// Cost:       one pass over the row (two for rms_norm).
// Not here:   products (gemm.h), attention's softmax (attention/), sampling (model/).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "device/weight_type.h"

namespace stemma {

// out[i] = x[i] / sqrt(mean(x²) + epsilon) · weight[i]. `out` may be x.
// REQUIRES: x, weight and out have the same size, at least 1.
void rms_norm(std::span<const float> x, std::span<const float> weight, float epsilon,
              std::span<float> out);

// Rotates the pairs (x[i], x[i + half]) by the angle whose cosine and sine are cosines[i] and
// sines[i], for i < half = cosines.size(). Values from 2 · half on stay as they are (partial
// rotation). REQUIRES: sines.size() == half; x.size() >= 2 · half.
void rotate_halves(std::span<float> x, std::span<const float> cosines,
                   std::span<const float> sines);

// out[i] = silu(gate[i]) · up[i], silu(g) = g / (1 + exp(-g)). Relative error below 1e-6 for gates
// >= -88; below that, where silu is smaller than 1e-36, it may be zero. `out` may be gate or up.
// REQUIRES: the same size.
void silu_multiply(std::span<const float> gate, std::span<const float> up, std::span<float> out);

// The same with gelu(g) = g/2 · (1 + tanh(√(2/π) · (g + 0.044715 g³))).
void gelu_multiply(std::span<const float> gate, std::span<const float> up, std::span<float> out);

// x[i] = cap · tanh(x[i] / cap). REQUIRES: cap > 0.
void cap_by_tanh(std::span<float> x, float cap);

// x[i] += y[i]. REQUIRES: the same size.
void add_to(std::span<float> x, std::span<const float> y);

// out[i] = the i-th value at `values`, exactly. `values` may be unaligned.
void convert_to_f32(const void* values, WeightType type, std::span<float> out);

// The place of the largest value, the first one if there are several. NaN is never the largest; a
// row of nothing but NaN gives 0. REQUIRES: not empty.
std::int64_t argmax(std::span<const float> x);

// out[i] = exp((x[i] - zero) / unit), with a relative error below 1e-14; 0 for NaN and below
// 1e-300. REQUIRES: the same size; x[i] <= zero or NaN; zero is finite; unit > 0.
void exp_of_scaled(std::span<const float> x, double zero, double unit, std::span<double> out);

}  // namespace stemma
