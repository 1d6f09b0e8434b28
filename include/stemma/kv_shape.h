// KvShape: what one pool holds, how many bytes that is, and how a tensor is described at the edges.
//
// Thread:     values.
// Memory:     none.
// Cost:       none.
// Not here:   strides and addresses (pool/kv_layout), bytes (KvPool).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "stemma/device.h"
#include "stemma/result.h"

namespace stemma {

// How one element is stored. Computation is always in f32.
//
// The last three are scaled: each row of one token and head has a scale of its own, an f32, and an
// element is its code times that. The scale is m / c, m being the row's largest magnitude and c the
// largest code, so that what a row becomes does not depend on other rows (I13); codes are nearest,
// ties to even. How far an element x of a finite row may come back from what it was:
//   kFp8E4M3  fp8 of 4 exponent and 3 mantissa bits, c = 448:    max(|x| / 16, m / 458,752)
//   kFp8E5M2  fp8 of 5 exponent and 2 mantissa bits, c = 57,344: max(|x| / 8, m / 2^32)
//   kInt8     -127 ... 127:                                      m / 254
// and m / 2^23, or 2^-133 if that is more, for the rounding of the scale. A row with an infinity or
// a NaN has a scale of NaN: all of it comes back as NaN.
enum class DType : std::uint8_t { kF32, kF16, kBF16, kFp8E4M3, kFp8E5M2, kInt8 };

std::string_view dtype_name(DType dtype);  // "f32", "f16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8"
// The inverse, and "fp8" for fp8_e4m3; nullopt for any other name.
std::optional<DType> try_parse_dtype(std::string_view name);
constexpr bool is_scaled(DType dtype) noexcept {
  return dtype >= DType::kFp8E4M3;
}
// Of an element; of scaled ones, of the code.
constexpr std::int64_t dtype_bytes(DType dtype) noexcept {
  return is_scaled(dtype) ? 1 : (dtype == DType::kF32 ? 4 : 2);
}
inline constexpr std::int64_t kScaleBytes = 4;

// What one token's row of a layer holds.
//   kMha   K and V, [heads, head_dim] each: multi-head attention (MHA, GQA, MQA)
//   kMla   one latent row that all query heads share, [1, head_dim]: head_dim columns are K, the
//          first latent_dim of them V (multi-head latent attention, DeepSeek-V2, arXiv 2405.04434)
//   kDoubleSparse  K and V as kMha, and labels, [heads, label_channels]: the elements of K in each
//          head's heavy channels, from which attention guesses the tokens that matter (double
//          sparsity, arXiv 2408.07092)
enum class KvKind : std::uint8_t { kMha, kMla, kDoubleSparse };

std::string_view kv_kind_name(KvKind kind);  // "mha", "mla", "double_sparse"

// Order of the outer dimensions in memory; inside a page it is always [page_size, heads, head_dim]
// (NHD).
//   kLayerFirst  [2, layers, pages, page_size, heads, head_dim]
//                a layer's pages lie together: best for attention
//   kPageFirst   [2, pages, layers, page_size, heads, head_dim]
//                a page's layers lie together: best for moving pages
// The first extent is that of K and V; kMla has one array instead, and the labels of kDoubleSparse
// follow in an array of their own. So do the scales of scaled dtypes, [2, layers, pages, heads,
// page_size] or with layers and pages swapped: codes then lie as aligned as other elements do,
// whatever the page size, and the scales of a head's tokens side by side.
enum class KvLayout : std::uint8_t { kLayerFirst, kPageFirst };

std::string_view kv_layout_name(KvLayout layout);  // "layer_first", "page_first"
std::optional<KvLayout> try_parse_kv_layout(std::string_view name);

// The extent of a pool of keys and values.
struct KvShape {
  std::int64_t layers = 0;  // 0: all of the model's are in another pool; pages then have no bytes
  std::int64_t pages = 0;
  std::int64_t page_size = 0;  // tokens per page, any value >= 1
  std::int64_t heads = 0;  // KV heads held here: the model's, divided by the tensor-parallel size
  std::int64_t head_dim = 0;
  DType dtype = DType::kF32;
  KvKind kind = KvKind::kMha;
  std::int64_t latent_dim = 0;      // kMla: the columns of a row that are V too; else 0
  std::int64_t label_channels = 0;  // kDoubleSparse: elements of a head's label; else 0

  std::int64_t slots() const noexcept { return pages * page_size; }
  // Elements of K (or V) of one token in one layer.
  std::int64_t row_elements() const noexcept { return heads * head_dim; }
  // Columns of V of one head.
  std::int64_t value_dim() const noexcept { return kind == KvKind::kMla ? latent_dim : head_dim; }
  // Elements of everything that one token has in one layer.
  std::int64_t token_elements() const noexcept {
    return kind == KvKind::kMla ? row_elements() : 2 * row_elements() + heads * label_channels;
  }
  // Scales of everything that one token has in one layer.
  std::int64_t token_scales() const noexcept {
    if (!is_scaled(dtype)) return 0;
    return kind == KvKind::kMla ? heads : 2 * heads;
  }
  // Bytes of one token in one layer, its scales included.
  std::int64_t token_bytes() const noexcept {
    return token_elements() * dtype_bytes(dtype) + token_scales() * kScaleBytes;
  }
  // Bytes of one page over all layers.
  std::int64_t page_bytes() const noexcept { return layers * page_size * token_bytes(); }
  std::int64_t total_bytes() const noexcept { return pages * page_bytes(); }

  friend bool operator==(const KvShape&, const KvShape&) = default;
};

// kInvalidArgument naming the field, unless every extent but `layers` is at least 1, those of its
// kind are right (kMla: one head, latent_dim below head_dim; kDoubleSparse: label_channels a
// multiple of 8 below head_dim, and no scaled dtype) and the bytes fit 63 bits.
Status validate(const KvShape& shape);

// The KV heads that one of `tp_size` tensor-parallel ranks holds.
// kInvalidArgument if `kv_heads` does not divide, unless `replicate` allows ranks to share a head.
Result<std::int64_t> heads_per_rank(std::int64_t kv_heads, std::int64_t tp_size, bool replicate);

// A strided tensor that somebody else owns; valid as long as its owner. At most six dimensions.
struct TensorView {
  static constexpr int kDimsMax = 6;

  void* bytes = nullptr;
  DType dtype = DType::kF32;
  int dims = 0;
  std::array<std::int64_t, kDimsMax> shape = {};
  std::array<std::int64_t, kDimsMax> stride = {};  // in elements
};

}  // namespace stemma
