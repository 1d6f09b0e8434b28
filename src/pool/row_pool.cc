#include "pool/row_pool.h"

#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/memory_room.h"
#include "pool/cpu_page_mover.h"
#include "pool/store_kernel.h"

namespace stemma {

Result<Buffer> RowPool::take_memory(const KvShape& shape, KvKind kind, ThreadPool& threads) {
  STEMMA_RETURN_IF_ERROR(validate(shape));
  STEMMA_CHECK(shape.kind == kind, "a shape of the pool's kind");
  const std::int64_t bytes = PoolArrays::total_bytes(shape);
  STEMMA_RETURN_IF_ERROR(check_memory_room(bytes));
  STEMMA_ASSIGN_OR_RETURN(Buffer buffer, Buffer::allocate(static_cast<std::size_t>(bytes)));
  buffer.prefault(threads);
  return buffer;
}

RowPool::RowPool(const KvShape& shape, KvLayout layout, Buffer buffer)
    : buffer_(std::move(buffer)), arrays_(shape, layout, buffer_.bytes()) {}

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
  STEMMA_RETURN_IF_ERROR(arrays_.check_rows(layer, slot_count, k, v, DeviceKind::kCpu));
  STEMMA_RETURN_IF_ERROR(check_places(shape(), layer, slots));
  const StoreTask sides[] = {arrays_.keys().store_task(layer, k),
                             arrays_.values().store_task(layer, v)};
  store_rows(std::span(sides).first(arrays_.sides()), slots.data());
  return {};
}

Status RowPool::copy_page(PageId from, PageId to) {
  for (std::int64_t layer = 0; layer < shape().layers; ++layer) {
    for (const PagePiece<std::byte>& piece : layer_pieces(layer)) {
      std::memcpy(piece.of(to), piece.of(from), static_cast<std::size_t>(piece.bytes));
    }
  }
  return {};
}

Result<std::optional<std::int64_t>> RowPool::first_different_layer(PageId a, PageId b) {
  for (std::int64_t layer = 0; layer < shape().layers; ++layer) {
    for (const PagePiece<std::byte>& piece : layer_pieces(layer)) {
      const auto bytes = static_cast<std::size_t>(piece.bytes);
      if (std::memcmp(piece.of(a), piece.of(b), bytes) != 0) return std::optional(layer);
    }
  }
  return std::optional<std::int64_t>();
}

Result<std::unique_ptr<PageMover>> RowPool::make_mover(HostPool& host) {
  return std::unique_ptr<PageMover>(std::make_unique<CpuPageMover>(*this, host));
}

}  // namespace stemma
