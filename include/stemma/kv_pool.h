// KvPool: the bytes of keys and values, page by page, on one device.
//
// A pool does not know which page holds what: slots come from the control plane. `store` writes new
// rows; attention reads layers through KvLayerView. Both layouts are read through one logical view
// [2, layers, pages, page_size, heads, head_dim].
//
// Thread:     store of disjoint slots from several threads is safe; reading a slot while it is
//             stored is not.
// Memory:     all of it at construction; nothing is given back before destruction.
// Cost:       store moves each byte once, at memcpy speed for rows of 2 KiB.
// Not here:   free pages (PageAllocator), copies between tiers (tier/), attention (attention/).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "stemma/ids.h"
#include "stemma/kv_shape.h"
#include "stemma/result.h"

namespace stemma {

// One layer of a pool as kernels read it. The row of K of (page, offset, head) begins at element
// page × page_stride + offset × token_stride + head × head_stride of `k`; V likewise.
struct KvLayerView {
  const void* k = nullptr;
  const void* v = nullptr;
  DType dtype = DType::kF32;
  std::int64_t pages = 0;
  std::int64_t page_size = 0;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t page_stride = 0;  // in elements, as all strides
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;
};

// New rows of K or V.   [rows, heads, head_dim], the last two dense, rows `row_stride` elements
// apart.
struct KvRows {
  const void* elements = nullptr;
  DType dtype = DType::kF32;
  DeviceKind device = DeviceKind::kCpu;  // whose memory `elements` is; must be the pool's
  std::int64_t rows = 0;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t row_stride = 0;
};

class KvPool {
 public:
  virtual ~KvPool() = default;

  // "mha", and with later kinds "mla", "double_sparse".
  virtual std::string_view kind() const = 0;
  virtual const KvShape& shape() const = 0;
  virtual KvLayout layout() const = 0;
  virtual DeviceKind device() const = 0;

  // Writes row i of k and v to slots[i] of `layer`. Rows of the pool's dtype are copied; f32 rows
  // are rounded to the pool's dtype (nearest, ties to even). Nothing is written unless everything
  // is right: kInvalidArgument names what is not (layer, shape, dtype, device, a slot outside the
  // pool). Slots of one call must differ.
  virtual Status store(std::int64_t layer, std::span<const std::int64_t> slots, const KvRows& k,
                       const KvRows& v) = 0;
  virtual Status store(std::int64_t layer, std::span<const std::int32_t> slots, const KvRows& k,
                       const KvRows& v) = 0;

  // REQUIRES: 0 <= layer < shape().layers.
  virtual KvLayerView layer_view(std::int64_t layer) const = 0;

  // All of it as [2, layers, pages, page_size, heads, head_dim], whatever the layout in memory.
  virtual TensorView logical_view() = 0;
};

}  // namespace stemma
