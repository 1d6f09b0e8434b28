#include "pool/mha_pool.h"

#include <utility>

#include "base/check.h"

namespace stemma {

Result<std::unique_ptr<MhaPool>> MhaPool::create(const KvShape& shape, KvLayout layout,
                                                 ThreadPool& threads) {
  STEMMA_RETURN_IF_ERROR(validate(shape));
  STEMMA_CHECK(shape.kind == KvKind::kMha, "a shape of keys and values");
  STEMMA_ASSIGN_OR_RETURN(Buffer buffer,
                          Buffer::allocate(static_cast<std::size_t>(shape.total_bytes())));
  buffer.prefault(threads);
  return std::unique_ptr<MhaPool>(new MhaPool(shape, layout, std::move(buffer)));
}

MhaPool::MhaPool(const KvShape& shape, KvLayout layout, Buffer buffer)
    : shape_(shape),
      layout_(layout),
      buffer_(std::move(buffer)),
      keys_(shape, layout, buffer_.bytes()),
      values_(shape, layout, buffer_.bytes() + keys_.total_bytes()) {}

Status MhaPool::store(std::int64_t layer, std::span<const std::int64_t> slots, const KvRows& k,
                      const KvRows& v) {
  return store_checked(layer, slots, k, v);
}

Status MhaPool::store(std::int64_t layer, std::span<const std::int32_t> slots, const KvRows& k,
                      const KvRows& v) {
  return store_checked(layer, slots, k, v);
}

template <typename Slot>
Status MhaPool::store_checked(std::int64_t layer, std::span<const Slot> slots, const KvRows& k,
                              const KvRows& v) {
  const auto slot_count = static_cast<std::int64_t>(slots.size());
  STEMMA_RETURN_IF_ERROR(keys_.check("k", slot_count, k));
  STEMMA_RETURN_IF_ERROR(values_.check("v", slot_count, v));
  STEMMA_RETURN_IF_ERROR(check_places(shape_, layer, slots));
  keys_.store(layer, slots, k);
  values_.store(layer, slots, v);
  return {};
}

LayerPieces<const std::byte> MhaPool::layer_pieces(std::int64_t layer) const {
  return pieces_of<const std::byte>(shape_, layer, {&keys_, &values_});
}

LayerPieces<std::byte> MhaPool::layer_pieces(std::int64_t layer) {
  return pieces_of<std::byte>(shape_, layer, {&keys_, &values_});
}

KvLayerView MhaPool::layer_view(std::int64_t layer) const {
  return layer_view_of(shape_, keys_, values_, layer);
}

TensorView MhaPool::logical_view() {
  return logical_view_of(shape_, keys_, 2, buffer_.bytes());
}

}  // namespace stemma
