// CopiedRows: the rows of x that a thread copies for a product's tile, found once.
//
// Included by *_cuda.cu alone.
//
// Thread:     code of kernels.
// Memory:     registers.
// Cost:       none.
// Not here:   which rows of a tile a thread copies (gemm_tiles_cuda.h, rounded_stage_cuda.h).
#pragma once

#include <cstdint>

#include "device/cuda_dialect.h"
#include "device/gemm_tiles_cuda.h"

namespace stemma {

template <typename Shape>
struct CopiedRows {
  std::int64_t rows[Shape::kCopiedRows];
  STEMMA_ON_DEVICE std::int64_t operator()(int i) const { return rows[i]; }
};

// kRowOf(i): the tile's row that the thread's copy i is of.
template <typename Shape, int (*kRowOf)(int)>
STEMMA_ON_DEVICE CopiedRows<Shape> copied_rows(const TileRows& all) {
  CopiedRows<Shape> copied;
  STEMMA_UNROLLED
  for (int i = 0; i < Shape::kCopiedRows; ++i) copied.rows[i] = all(kRowOf(i));
  return copied;
}

}  // namespace stemma
