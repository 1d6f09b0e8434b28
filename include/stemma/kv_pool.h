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
// Not here:   free pages (PageAllocator), when pages move between tiers (cache/), attention
//             (attention/).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "stemma/ids.h"
#include "stemma/kv_shape.h"
#include "stemma/result.h"

namespace stemma {

class HostPool;   // pool/host_pool.h
class PageMover;  // pool/page_mover.h

// One layer of a pool as kernels read it. The row of K of (page, offset, head) begins at element
// page × page_stride + offset × token_stride + head × head_stride of `k`; V likewise. Rows of K
// have head_dim elements, those of V value_dim; of a pool of latent rows `v` is `k`.
struct KvLayerView {
  const void* k = nullptr;
  const void* v = nullptr;
  DType dtype = DType::kF32;
  std::int64_t pages = 0;
  std::int64_t page_size = 0;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t value_dim = 0;
  std::int64_t page_stride = 0;  // in elements, as all strides
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;

  // Of pools of KvKind::kDoubleSparse; else null and 0. The label of (page, offset, head) begins at
  // element page × label_page_stride + offset × label_token_stride + head × label_head_stride of
  // `labels`: its element i is that of K in channel heavy_channels[head × label_channels + i].
  const void* labels = nullptr;
  const std::int32_t* heavy_channels = nullptr;  // [heads, label_channels], of this layer
  std::int64_t label_channels = 0;
  std::int64_t label_page_stride = 0;
  std::int64_t label_token_stride = 0;
  std::int64_t label_head_stride = 0;

  // Of pools of scaled dtypes; else null and 0. Elements of the row of K of (page, offset, head)
  // are codes, to be multiplied by k_scales[page × scale_page_stride + offset + head ×
  // scale_head_stride]; V likewise.
  const float* k_scales = nullptr;
  const float* v_scales = nullptr;
  std::int64_t scale_page_stride = 0;
  std::int64_t scale_head_stride = 0;
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

// Dense bytes that every page has: those of `page` begin at page0 + page × page_stride_bytes. The
// address is one of the pool's device.
template <typename Byte>
struct PagePiece {
  Byte* page0 = nullptr;  // where it begins in page 0
  std::int64_t page_stride_bytes = 0;
  std::int64_t bytes = 0;  // of one page

  // Where it begins in `page`. REQUIRES: `page` is one of the pool's.
  Byte* of(PageId page) const noexcept { return page0 + page.value() * page_stride_bytes; }
};

// All that a page holds in one layer, whatever the pool's kind and layout: what is copied when the
// page moves, between pools, to the host and to a store (pool/page_image). Pieces come in one order
// in every pool of a kind (K, V; the latent rows; K, V, labels; of scaled dtypes then the scales of
// K and of V, or of the rows), so that the bytes of one pool mean the same in another.
template <typename Byte>
class LayerPieces {
 public:
  static constexpr std::size_t kPiecesMax = 4;

  // REQUIRES: fewer than kPiecesMax were pushed.
  void push_back(const PagePiece<Byte>& piece) noexcept { pieces_[count_++] = piece; }

  // In their order.
  const PagePiece<Byte>* begin() const noexcept { return pieces_.data(); }
  const PagePiece<Byte>* end() const noexcept { return pieces_.data() + count_; }

 private:
  std::array<PagePiece<Byte>, kPiecesMax> pieces_;
  std::size_t count_ = 0;
};

class KvPool {
 public:
  virtual ~KvPool() = default;

  virtual const KvShape& shape() const = 0;
  virtual KvLayout layout() const = 0;
  virtual DeviceKind device() const = 0;

  // Writes row i of k and v to slots[i] of `layer`. Rows of the pool's dtype are copied; f32 rows
  // are rounded to the pool's dtype (nearest, ties to even). A pool of a scaled dtype takes rows of
  // any other, and scales them (DType). Nothing is written unless everything is right:
  // kInvalidArgument names what is not (layer, shape, dtype, device, a slot outside the pool).
  // Slots of one call must differ. A pool of latent rows takes them as `k`, and a `v` of no rows.
  virtual Status store(std::int64_t layer, std::span<const std::int64_t> slots, const KvRows& k,
                       const KvRows& v) = 0;
  virtual Status store(std::int64_t layer, std::span<const std::int32_t> slots, const KvRows& k,
                       const KvRows& v) = 0;

  // REQUIRES: 0 <= layer < shape().layers.
  virtual KvLayerView layer_view(std::int64_t layer) const = 0;

  // The bytes of the pages in one layer, to be read, or to be written by whoever owns the pages.
  // REQUIRES: 0 <= layer < shape().layers.
  virtual LayerPieces<const std::byte> layer_pieces(std::int64_t layer) const = 0;
  virtual LayerPieces<std::byte> layer_pieces(std::int64_t layer) = 0;
  // Bytes of one page in one layer: of all its pieces. Every layer has as many.
  std::int64_t layer_bytes() const {
    std::int64_t bytes = 0;
    for (const auto& piece : layer_pieces(0)) bytes += piece.bytes;
    return bytes;
  }

  // All of it as [2, layers, pages, page_size, heads, head_dim], whatever the layout in memory; the
  // first extent is 1 in a pool of latent rows. Labels and scales are not part of it.
  virtual TensorView logical_view() = 0;

  // Copies all of a page to another of this pool. REQUIRES: nobody writes `from`, and the caller
  // owns `to` (I6). Only devices other than the CPU can fail.
  virtual Status copy_page(PageId from, PageId to) = 0;

  // The first layer in which the bits of two pages differ; nullopt: in none. REQUIRES: nobody
  // writes them. Only devices other than the CPU can fail.
  virtual Result<std::optional<std::int64_t>> first_different_layer(PageId a, PageId b) = 0;

  // What moves pages between this pool and `host`. Both must outlive it, and `host` has one at a
  // time. kUnsupported names what this pool's device cannot do; kOutOfMemory.
  virtual Result<std::unique_ptr<PageMover>> make_mover(HostPool& host) = 0;
};

}  // namespace stemma
