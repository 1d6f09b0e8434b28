// OpenBlas: another library's matrix product, to measure ours against. It is looked for when a
// benchmark asks: nothing else of Stemma uses it, or needs it to be there.
//
// Thread:     one; it starts threads of its own and keeps them.
// Memory:     the library's own.
// Cost:       loading it once.
// Not here:   what is compared (gemm_bench).
#pragma once

#include <cstdint>
#include <optional>

#include "device/gemm.h"

namespace stemma {

class OpenBlas {
 public:
  // libopenblas.so.0, with kernels for the chosen SIMD target or less; nothing where there is none.
  // It is never unloaded: its threads would outlive its code.
  static std::optional<OpenBlas> try_load();

  // Of products from now on.
  void set_threads(int threads) const;

  // c = a · wᵀ, of w [c.columns, a.columns] in f32, dense.
  void multiply(const ConstMatrixView& a, const float* w, const MatrixView& c) const;

 private:
  // cblas_sgemm: order, transpositions, m, n, k, alpha, A, its stride, B, its stride, beta, C, its
  // stride.
  using Sgemm = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int,
                         float, float*, int);
  using SetThreads = void (*)(int);

  OpenBlas(Sgemm sgemm, SetThreads threads) : sgemm_(sgemm), set_threads_(threads) {}

  Sgemm sgemm_;
  SetThreads set_threads_;
};

}  // namespace stemma
