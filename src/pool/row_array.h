// RowArray: rows of one width, one for each slot and layer of a pool, and their scales, if their
// dtype is scaled. Pools are made of a few of them: K and V, or latent rows.
//
// Thread:     a value; as KvPool.
// Memory:     none of its own: a part of the pool's.
// Cost:       none worth noting.
// Not here:   which arrays a kind of pool has (row_pool), strides (kv_layout), storing
//             (store_kernel).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "pool/kv_layout.h"
#include "pool/store_kernel.h"
#include "stemma/kv_pool.h"
#include "stemma/kv_shape.h"
#include "stemma/result.h"

namespace stemma {

class RowArray {
 public:
  // The array [layers, pages, page_size, heads, head_dim] of `shape`, in `layout`, that begins at
  // `begin`. REQUIRES: validate(shape) is ok.
  RowArray(const KvShape& shape, KvLayout layout, std::byte* begin)
      : RowArray(shape, kv_strides(shape, layout), begin) {}
  // Of a scaled dtype: the scales [layers, pages, heads, page_size], in `layout` too, begin at
  // `scales`.
  RowArray(const KvShape& shape, KvLayout layout, std::byte* begin, float* scales)
      : shape_(shape),
        strides_(kv_strides(shape, layout)),
        scale_strides_(scale_strides(shape, layout)),
        begin_(begin),
        scales_(scales) {}
  // The same with heads and tokens in another order inside a page.
  RowArray(const KvShape& shape, const KvStrides& strides, std::byte* begin)
      : shape_(shape), strides_(strides), begin_(begin) {}

  // Without scales.
  std::int64_t total_bytes() const noexcept { return strides_.side * dtype_bytes(shape_.dtype); }
  const KvStrides& strides() const noexcept { return strides_; }
  const KvStrides& strides_of_scales() const noexcept { return scale_strides_; }

  // Where a layer's row of (page 0, offset 0, head 0) begins.
  std::byte* layer_begin(std::int64_t layer) const noexcept {
    return begin_ + layer * strides_.layer * dtype_bytes(shape_.dtype);
  }

  // A layer's rows of every page.
  template <typename Byte>
  PagePiece<Byte> piece(std::int64_t layer) const noexcept {
    const std::int64_t element_bytes = dtype_bytes(shape_.dtype);
    return {.page0 = layer_begin(layer),
            .page_stride_bytes = strides_.page * element_bytes,
            .bytes = shape_.page_size * shape_.row_elements() * element_bytes};
  }

  // The scale of a layer's (page 0, offset 0, head 0); null if the dtype is not scaled.
  float* layer_scales(std::int64_t layer) const noexcept {
    return scales_ == nullptr ? nullptr : scales_ + layer * scale_strides_.layer;
  }

  // A layer's scales of every page. REQUIRES: the dtype is scaled.
  template <typename Byte>
  PagePiece<Byte> scale_piece(std::int64_t layer) const noexcept {
    return {.page0 = reinterpret_cast<Byte*>(layer_scales(layer)),
            .page_stride_bytes = scale_strides_.page * kScaleBytes,
            .bytes = shape_.page_size * shape_.heads * kScaleBytes};
  }

  // Whether `rows` can be stored to so many slots of a pool on `device`: kInvalidArgument names
  // `side` and what is wrong.
  Status check(std::string_view side, std::int64_t slot_count, const KvRows& rows,
               DeviceKind device) const;
  // What stores `rows` into slots of `layer`. REQUIRES: checked, and so is the layer; a token's
  // heads lie side by side.
  StoreTask store_task(std::int64_t layer, const KvRows& rows) const;

 private:
  KvShape shape_;
  KvStrides strides_;
  KvStrides scale_strides_;
  std::byte* begin_;
  float* scales_ = nullptr;
};

// That `layer` is one of a pool of `shape`, and every slot; kInvalidArgument names what is not.
template <typename Slot>
Status check_places(const KvShape& shape, std::int64_t layer, std::span<const Slot> slots);

}  // namespace stemma
