#include "pool/mla_pool.h"

#include <utility>

#include "base/check.h"

namespace stemma {

Result<std::unique_ptr<MlaPool>> MlaPool::create(const KvShape& shape, KvLayout layout,
                                                 ThreadPool& threads) {
  STEMMA_RETURN_IF_ERROR(validate(shape));
  STEMMA_CHECK(shape.kind == KvKind::kMla, "a shape of latent rows");
  STEMMA_ASSIGN_OR_RETURN(Buffer buffer,
                          Buffer::allocate(static_cast<std::size_t>(shape.total_bytes())));
  buffer.prefault(threads);
  return std::unique_ptr<MlaPool>(new MlaPool(shape, layout, std::move(buffer)));
}

MlaPool::MlaPool(const KvShape& shape, KvLayout layout, Buffer buffer)
    : shape_(shape),
      layout_(layout),
      buffer_(std::move(buffer)),
      rows_(shape, layout, buffer_.bytes()) {}

Status MlaPool::store(std::int64_t layer, std::span<const std::int64_t> slots, const KvRows& k,
                      const KvRows& v) {
  return store_checked(layer, slots, k, v);
}

Status MlaPool::store(std::int64_t layer, std::span<const std::int32_t> slots, const KvRows& k,
                      const KvRows& v) {
  return store_checked(layer, slots, k, v);
}

template <typename Slot>
Status MlaPool::store_checked(std::int64_t layer, std::span<const Slot> slots, const KvRows& k,
                              const KvRows& v) {
  const auto slot_count = static_cast<std::int64_t>(slots.size());
  STEMMA_RETURN_IF_ERROR(rows_.check("k", slot_count, k));
  if (v.rows != 0) {
    return Error{ErrorCode::kInvalidArgument, "store: v has rows, but latent rows are k alone", 0};
  }
  STEMMA_RETURN_IF_ERROR(check_places(shape_, layer, slots));
  rows_.store(layer, slots, k);
  return {};
}

template <typename Byte>
LayerPieces<Byte> MlaPool::pieces_of(std::int64_t layer) const {
  STEMMA_CHECK(layer >= 0 && layer < shape_.layers, "a layer of the pool");
  LayerPieces<Byte> pieces;
  pieces.push_back(rows_.piece<Byte>(layer));
  return pieces;
}

LayerPieces<const std::byte> MlaPool::layer_pieces(std::int64_t layer) const {
  return pieces_of<const std::byte>(layer);
}

LayerPieces<std::byte> MlaPool::layer_pieces(std::int64_t layer) {
  return pieces_of<std::byte>(layer);
}

KvLayerView MlaPool::layer_view(std::int64_t layer) const {
  STEMMA_CHECK(layer >= 0 && layer < shape_.layers, "a layer of the pool");
  KvLayerView view;
  view.k = rows_.layer_begin(layer);
  view.v = view.k;
  view.dtype = shape_.dtype;
  view.pages = shape_.pages;
  view.page_size = shape_.page_size;
  view.heads = shape_.heads;
  view.head_dim = shape_.head_dim;
  view.value_dim = shape_.latent_dim;
  view.page_stride = rows_.strides().page;
  view.token_stride = rows_.strides().token;
  view.head_stride = rows_.strides().head;
  return view;
}

TensorView MlaPool::logical_view() {
  const KvStrides& strides = rows_.strides();
  TensorView view;
  view.bytes = buffer_.bytes();
  view.dtype = shape_.dtype;
  view.dims = 6;
  view.shape = {1, shape_.layers, shape_.pages, shape_.page_size, shape_.heads, shape_.head_dim};
  view.stride = {strides.side, strides.layer, strides.page, strides.token, strides.head, 1};
  return view;
}

}  // namespace stemma
