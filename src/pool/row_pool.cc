#include "pool/row_pool.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/math.h"
#include "pool/store_kernel.h"

namespace stemma {

namespace {

constexpr std::int64_t kLineBytes = 64;

}  // namespace

Result<Buffer> RowPool::take_memory(const KvShape& shape, KvKind kind, ThreadPool& threads) {
  STEMMA_RETURN_IF_ERROR(validate(shape));
  STEMMA_CHECK(shape.kind == kind, "a shape of the pool's kind");
  const std::int64_t bytes = shape.total_bytes() + (is_scaled(shape.dtype) ? kLineBytes : 0);
  STEMMA_ASSIGN_OR_RETURN(Buffer buffer, Buffer::allocate(static_cast<std::size_t>(bytes)));
  buffer.prefault(threads);
  return buffer;
}

RowPool::RowPool(const KvShape& shape, KvLayout layout, Buffer buffer)
    : shape_(shape),
      layout_(layout),
      buffer_(std::move(buffer)),
      keys_(rows_of_side(0)),
      values_(rows_of_side(is_latent() ? 0 : 1)) {}

// The codes of both sides, or the elements, then the scales of both.
RowArray RowPool::rows_of_side(std::int64_t side) {
  const std::int64_t side_bytes = kv_strides(shape_, layout_).side * dtype_bytes(shape_.dtype);
  std::byte* const begin = buffer_.bytes() + side * side_bytes;
  if (!is_scaled(shape_.dtype)) return RowArray(shape_, layout_, begin);
  const std::int64_t codes_bytes = round_up((is_latent() ? 1 : 2) * side_bytes, kLineBytes);
  auto* const scales = reinterpret_cast<float*>(buffer_.bytes() + codes_bytes);
  return RowArray(shape_, layout_, begin, scales + side * scale_strides(shape_, layout_).side);
}

std::byte* RowPool::behind_values() const noexcept {
  return values_.layer_begin(0) + values_.total_bytes();
}

Status RowPool::store(std::int64_t layer, std::span<const std::int64_t> slots, const KvRows& k,
                      const KvRows& v) {
  return store_checked(layer, slots, k, v);
}

Status RowPool::store(std::int64_t layer, std::span<const std::int32_t> slots, const KvRows& k,
                      const KvRows& v) {
  return store_checked(layer, slots, k, v);
}

template <typename Slot>
Status RowPool::store_checked(std::int64_t layer, std::span<const Slot> slots, const KvRows& k,
                              const KvRows& v) {
  const auto slot_count = static_cast<std::int64_t>(slots.size());
  STEMMA_RETURN_IF_ERROR(keys_.check("k", slot_count, k));
  if (!is_latent()) {
    STEMMA_RETURN_IF_ERROR(values_.check("v", slot_count, v));
  } else if (v.rows != 0) {
    return Error{ErrorCode::kInvalidArgument, "store: v has rows, but latent rows are k alone", 0};
  }
  STEMMA_RETURN_IF_ERROR(check_places(shape_, layer, slots));
  const StoreTask sides[] = {keys_.store_task(layer, k), values_.store_task(layer, v)};
  store_rows(std::span(sides).first(is_latent() ? 1 : 2), slots.data());
  return {};
}

// Where there are no layers, one of no pages in memory says how many bytes it would have.
template <typename Byte>
LayerPieces<Byte> RowPool::pieces_of(std::int64_t layer) const {
  STEMMA_CHECK(layer >= 0 && layer < std::max<std::int64_t>(shape_.layers, 1),
               "a layer of the pool");
  LayerPieces<Byte> pieces;
  pieces.push_back(keys_.piece<Byte>(layer));
  if (!is_latent()) pieces.push_back(values_.piece<Byte>(layer));
  if (!is_scaled(shape_.dtype)) return pieces;
  pieces.push_back(keys_.scale_piece<Byte>(layer));
  if (!is_latent()) pieces.push_back(values_.scale_piece<Byte>(layer));
  return pieces;
}

LayerPieces<const std::byte> RowPool::layer_pieces(std::int64_t layer) const {
  return pieces_of<const std::byte>(layer);
}

LayerPieces<std::byte> RowPool::layer_pieces(std::int64_t layer) {
  return pieces_of<std::byte>(layer);
}

KvLayerView RowPool::layer_view(std::int64_t layer) const {
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
  return view;
}

TensorView RowPool::logical_view() {
  const KvStrides& strides = keys_.strides();
  TensorView view;
  view.bytes = buffer_.bytes();
  view.dtype = shape_.dtype;
  view.dims = 6;
  view.shape = {is_latent() ? 1 : 2, shape_.layers, shape_.pages,
                shape_.page_size,    shape_.heads,  shape_.head_dim};
  view.stride = {strides.side, strides.layer, strides.page, strides.token, strides.head, 1};
  return view;
}

}  // namespace stemma
