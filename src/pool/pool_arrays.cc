#include "pool/pool_arrays.h"

#include <algorithm>

#include "base/check.h"
#include "base/math.h"

namespace stemma {

namespace {

constexpr std::int64_t kLineBytes = 64;

// Labels as rows of a pool by themselves: as many, of fewer columns.
KvShape label_rows(const KvShape& shape) {
  KvShape rows = shape;
  rows.head_dim = shape.label_channels;
  return rows;
}

// A page's labels lie head by head, so that those of one head are read in order.
KvStrides label_strides(const KvShape& shape, KvLayout layout) {
  KvStrides strides = kv_strides(label_rows(shape), layout);
  strides.token = shape.label_channels;
  strides.head = shape.page_size * shape.label_channels;
  return strides;
}

}  // namespace

std::int64_t PoolArrays::total_bytes(const KvShape& shape) {
  return shape.total_bytes() + (is_scaled(shape.dtype) ? kLineBytes : 0);
}

PoolArrays::PoolArrays(const KvShape& shape, KvLayout layout, std::byte* begin)
    : shape_(shape),
      layout_(layout),
      begin_(begin),
      keys_(rows_of_side(begin, 0)),
      values_(rows_of_side(begin, is_latent() ? 0 : 1)) {
  if (shape.kind != KvKind::kDoubleSparse) return;
  std::byte* const behind_values = values_.layer_begin(0) + values_.total_bytes();
  labels_.emplace(label_rows(shape), label_strides(shape, layout), behind_values);
}

// The codes of both sides, or the elements, then the scales of both.
RowArray PoolArrays::rows_of_side(std::byte* begin, std::int64_t side) const {
  const std::int64_t side_bytes = kv_strides(shape_, layout_).side * dtype_bytes(shape_.dtype);
  std::byte* const side_begin = begin + side * side_bytes;
  if (!is_scaled(shape_.dtype)) return RowArray(shape_, layout_, side_begin);
  const std::int64_t codes_bytes = round_up((is_latent() ? 1 : 2) * side_bytes, kLineBytes);
  auto* const scales = reinterpret_cast<float*>(begin + codes_bytes);
  return RowArray(shape_, layout_, side_begin, scales + side * scale_strides(shape_, layout_).side);
}

Status PoolArrays::check_rows(std::int64_t layer, std::int64_t slot_count, const KvRows& k,
                              const KvRows& v, DeviceKind device) const {
  STEMMA_RETURN_IF_ERROR(keys_.check("k", slot_count, k, device));
  if (!is_latent()) {
    STEMMA_RETURN_IF_ERROR(values_.check("v", slot_count, v, device));
  } else if (v.rows != 0) {
    return Error{ErrorCode::kInvalidArgument, "store: v has rows, but latent rows are k alone", 0};
  }
  return check_places<std::int64_t>(shape_, layer, {});
}

// Where there are no layers, one of no pages in memory says how many bytes it would have.
template <typename Byte>
LayerPieces<Byte> PoolArrays::layer_pieces(std::int64_t layer) const {
  STEMMA_CHECK(layer >= 0 && layer < std::max<std::int64_t>(shape_.layers, 1),
               "a layer of the pool");
  LayerPieces<Byte> pieces;
  pieces.push_back(keys_.piece<Byte>(layer));
  if (!is_latent()) pieces.push_back(values_.piece<Byte>(layer));
  if (labels_.has_value()) pieces.push_back(labels_->piece<Byte>(layer));
  if (!is_scaled(shape_.dtype)) return pieces;
  pieces.push_back(keys_.scale_piece<Byte>(layer));
  if (!is_latent()) pieces.push_back(values_.scale_piece<Byte>(layer));
  return pieces;
}

template LayerPieces<std::byte> PoolArrays::layer_pieces(std::int64_t) const;
template LayerPieces<const std::byte> PoolArrays::layer_pieces(std::int64_t) const;

KvLayerView PoolArrays::layer_view(std::int64_t layer) const {
  STEMMA_CHECK(layer >= 0 && layer < shape_.layers, "a layer of the pool");
  KvLayerView view;
  view.k = keys_.layer_begin(layer);
  view.v = values_.layer_begin(layer);
  view.dtype = shape_.dtype;
  view.pages = shape_.pages;
  view.page_size = shape_.page_size;
  view.heads = shape_.heads;
  view.head_dim = shape_.head_dim;
  view.value_dim = shape_.value_dim();
  view.page_stride = keys_.strides().page;
  view.token_stride = keys_.strides().token;
  view.head_stride = keys_.strides().head;
  view.k_scales = keys_.layer_scales(layer);
  view.v_scales = values_.layer_scales(layer);
  view.scale_page_stride = keys_.strides_of_scales().page;
  view.scale_head_stride = keys_.strides_of_scales().head;
  if (!labels_.has_value()) return view;
  view.labels = labels_->layer_begin(layer);
  view.label_channels = shape_.label_channels;
  view.label_page_stride = labels_->strides().page;
  view.label_token_stride = labels_->strides().token;
  view.label_head_stride = labels_->strides().head;
  return view;
}

TensorView PoolArrays::logical_view() const {
  const KvStrides& strides = keys_.strides();
  TensorView view;
  view.bytes = begin_;
  view.dtype = shape_.dtype;
  view.dims = 6;
  view.shape = {is_latent() ? 1 : 2, shape_.layers, shape_.pages,
                shape_.page_size,    shape_.heads,  shape_.head_dim};
  view.stride = {strides.side, strides.layer, strides.page, strides.token, strides.head, 1};
  return view;
}

}  // namespace stemma
