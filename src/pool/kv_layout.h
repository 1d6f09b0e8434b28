// KvLayout: where each element of a pool lies. The only place where strides are computed.
//
// Thread:     pure functions.
// Memory:     none.
// Cost:       a few multiplications.
// Not here:   the bytes (mha_pool), which page holds what (alloc/).
#pragma once

#include <cstdint>

#include "stemma/kv_shape.h"

namespace stemma {

// Distances in elements between neighbours along each dimension of the logical view
// [2, layers, pages, page_size, heads, head_dim]. Elements of one head are adjacent.
struct KvStrides {
  std::int64_t side = 0;  // from K to V
  std::int64_t layer = 0;
  std::int64_t page = 0;
  std::int64_t token = 0;
  std::int64_t head = 0;
};

// REQUIRES: validate(shape) is ok.
KvStrides kv_strides(const KvShape& shape, KvLayout layout);

// The same of the scales [2, layers, pages, heads, page_size] of a shape of scaled dtype, in
// scales. A head's lie side by side in a page, so that they are read in order.
KvStrides scale_strides(const KvShape& shape, KvLayout layout);

}  // namespace stemma
