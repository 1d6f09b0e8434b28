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

LayerPieces<const std::byte> MlaPool::layer_pieces(std::int64_t layer) const {
  return pieces_of<const std::byte>(shape_, layer, {&rows_});
}

LayerPieces<std::byte> MlaPool::layer_pieces(std::int64_t layer) {
  return pieces_of<std::byte>(shape_, layer, {&rows_});
}

KvLayerView MlaPool::layer_view(std::int64_t layer) const {
  return layer_view_of(shape_, rows_, rows_, layer);
}

TensorView MlaPool::logical_view() {
  return logical_view_of(shape_, rows_, 1, buffer_.bytes());
}

}  // namespace stemma
