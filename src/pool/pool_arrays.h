// PoolArrays: where everything of a pool lies in one piece of memory, on whatever device: K and V
// one behind the other, or latent rows that are both; then labels, or scales.
//
// Thread:     a value.
// Memory:     none of its own: it names that of its pool, and follows no address.
// Cost:       none worth noting.
// Not here:   strides (kv_layout), the memory (row_pool, cuda_pool), storing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "pool/row_array.h"
#include "stemma/kv_pool.h"
#include "stemma/kv_shape.h"

namespace stemma {

class PoolArrays {
 public:
  // The bytes that a pool of `shape` lies in: scales of scaled dtypes begin a cache line, for which
  // there is one more. REQUIRES: validate(shape) is ok.
  static std::int64_t total_bytes(const KvShape& shape);
  // The pool that begins at `begin`. REQUIRES: as total_bytes; `begin` is aligned to 64.
  PoolArrays(const KvShape& shape, KvLayout layout, std::byte* begin);

  const KvShape& shape() const noexcept { return shape_; }
  KvLayout layout() const noexcept { return layout_; }
  bool is_latent() const noexcept { return shape_.kind == KvKind::kMla; }
  // Arrays that rows are stored to: K and V, or latent rows alone.
  std::size_t sides() const noexcept { return is_latent() ? 1 : 2; }

  const RowArray& keys() const noexcept { return keys_; }
  const RowArray& values() const noexcept { return values_; }  // of latent rows the keys themselves
  // REQUIRES: the kind is kDoubleSparse.
  const RowArray& labels() const { return *labels_; }

  // That rows of `device` can be stored to `slots` of a layer: kInvalidArgument names what is
  // wrong. Slots themselves are not looked at.
  Status check_rows(std::int64_t layer, std::int64_t slot_count, const KvRows& k, const KvRows& v,
                    DeviceKind device) const;

  // As KvPool says, but for heavy_channels.
  KvLayerView layer_view(std::int64_t layer) const;
  TensorView logical_view() const;
  template <typename Byte>
  LayerPieces<Byte> layer_pieces(std::int64_t layer) const;

 private:
  RowArray rows_of_side(std::byte* begin, std::int64_t side) const;

  KvShape shape_;
  KvLayout layout_;
  std::byte* begin_;
  RowArray keys_;
  RowArray values_;                 // right behind the keys
  std::optional<RowArray> labels_;  // right behind the values
};

}  // namespace stemma
