// GEMM: C = A · Wᵀ + bias, where the bits of a row of C depend on that row of A alone.
//
// Every output is one chain of f32 fused multiply-adds over k = 0, 1, ..., K-1, started at zero, to
// which the bias is added last. No shape, tile position or thread count changes that order, so a
// token's result does not depend on which other tokens share its step (I13). Targets without fused
// multiply-add round twice, in the same order.
//
// Rounded weights (int8, int4) meet activations of 16 bits: for each row and group of
// PackedWeights::kGroupInputs inputs, code = value x (32767 / largest magnitude), to nearest even,
// and scale = largest magnitude / 32767. A group's dot product of codes is exact; an output is one
// chain of f32 fused multiply-adds over groups 0, 1, ...: dot x (scale of weights x scale of
// activations), each rounded once, then the bias. Where a group of weights has a shift, its dot
// product is that of the codes and the shift times the sum of the activations' codes, exact too,
// rounded once. A group below 2^-109 counts as zero; one with
// infinity or NaN makes all outputs of its row NaN. So activations cost about 2^-16 of their
// group's largest, and the rest of what such a product is off is the rounding of the weights.
//
// Thread:     called by the thread that owns `pool`.
// Memory:     about 115 KiB of each worker's stack; nothing on the heap.
// Cost:       2 M N K operations. One row runs at the bandwidth at which the weights can be read.
// Not here:   packing (packed_weights.h), everything that acts on one row alone (row_ops.h).
#pragma once

#include <cstdint>
#include <span>

#include "base/function_ref.h"
#include "base/thread_pool.h"
#include "device/packed_weights.h"

namespace stemma {

// Rows of f32 values, `row_stride` values apart. Borrows its memory.
struct ConstMatrixView {
  const float* values = nullptr;  // [rows, columns]
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t row_stride = 0;
};
struct MatrixView {
  float* values = nullptr;  // [rows, columns]
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t row_stride = 0;
};

// Writes c[m, n] = sum over k of a[m, k] · w[n, k], plus bias[n] unless `bias` is empty.
// REQUIRES: a is [m, w.k()], c is [m, w.n()]; bias has 0 or w.n() values; c overlaps neither a nor
// bias.
void gemm(const ConstMatrixView& a, const PackedWeights& w, std::span<const float> bias,
          const MatrixView& c, ThreadPool& pool);

// One of several products of the same rows: c = a · wᵀ + bias.
struct GemmOutput {
  const PackedWeights& w;
  std::span<const float> bias;  // of 0 or w.n() values
  MatrixView c;
};

// Computes each of `outputs`, with the bits that gemm gives it, spread over the threads together:
// one fork for all that reads the same activations. REQUIRES: as gemm, for each; no c overlaps
// another; at most kGemmOutputsMax.
inline constexpr std::size_t kGemmOutputsMax = 4;
void gemm_all(const ConstMatrixView& a, std::span<const GemmOutput> outputs, ThreadPool& pool);

// A product without bias: c = a · wᵀ.
struct Product {
  ConstMatrixView a;
  const PackedWeights& w;
  MatrixView c;
};

// Computes product(0) ... product(count - 1), with the bits that gemm gives each, spread over the
// threads together: for products that are each too small to share, as those of attention's heads.
// `product` is called on any thread. REQUIRES: as gemm, for each; all have the shape of the first,
// and no c overlaps another's a or c.
void gemm_each(std::int64_t count, FunctionRef<Product(std::int64_t index)> product,
               ThreadPool& pool);

}  // namespace stemma
