// CopiedRows: the rows of x that a thread copies for a product's tile, found once.
//
// Included by *_cuda.cu alone.
//
// Thread:     code of kernels.
// Memory:     registers.
// Cost:       none.
// Not here:   which rows these are (the kernels).
#pragma once

#include <cstdint>

#include "device/cuda_dialect.h"

namespace stemma {

template <typename Shape>
struct CopiedRows {
  std::int64_t rows[Shape::kCopiedRows];
  STEMMA_ON_DEVICE std::int64_t operator()(int i) const { return rows[i]; }
};

}  // namespace stemma
