// CudaPool as engines have it (stemma/cuda_pool.h): over streams of their own.
#include <utility>

#include "pool/cuda_pool.h"

namespace stemma {

namespace {

DeviceSlots places_of(std::span<const std::int64_t> slots) {
  return {.wide = slots.data(), .count = static_cast<std::int64_t>(slots.size())};
}
DeviceSlots places_of(std::span<const std::int32_t> slots) {
  return {.narrow = slots.data(), .count = static_cast<std::int64_t>(slots.size())};
}

}  // namespace

template <typename Slot>
Status CudaPool::store_on_borrowed(void* stream, std::int64_t layer, std::span<const Slot> slots,
                                   const KvRows& k, const KvRows& v) {
  if (slots.empty()) return {};
  STEMMA_RETURN_IF_ERROR(device_.use_in_thread());
  BorrowedStream borrowed(stream);
  return store_on(borrowed.get(), layer, places_of(slots), k, v);
}

Status CudaPool::store_on(void* stream, std::int64_t layer, std::span<const std::int64_t> slots,
                          const KvRows& k, const KvRows& v) {
  return store_on_borrowed(stream, layer, slots, k, v);
}

Status CudaPool::store_on(void* stream, std::int64_t layer, std::span<const std::int32_t> slots,
                          const KvRows& k, const KvRows& v) {
  return store_on_borrowed(stream, layer, slots, k, v);
}

Status CudaPool::copy_page_on(void* stream, PageId from, PageId to) {
  STEMMA_RETURN_IF_ERROR(device_.use_in_thread());
  BorrowedStream borrowed(stream);
  return copy_page_on(borrowed.get(), from, to);
}

Status CudaPool::record_use(void* stream) {
  STEMMA_RETURN_IF_ERROR(device_.use_in_thread());
  BorrowedStream borrowed(stream);
  return record_use(borrowed.get());
}

int cuda_devices() noexcept {
  return CudaDevice::count();
}

Result<std::unique_ptr<CudaKvPool>> open_cuda_pool(const KvShape& shape, KvLayout layout,
                                                   int ordinal) {
  if (shape.kind == KvKind::kDoubleSparse) {
    return Error{ErrorCode::kUnsupported,
                 "KV shape: double_sparse needs channels calibrated for a model"};
  }
  STEMMA_RETURN_IF_ERROR(validate(shape));
  STEMMA_ASSIGN_OR_RETURN(std::unique_ptr<CudaDevice> device, CudaDevice::open(ordinal));
  STEMMA_ASSIGN_OR_RETURN(std::unique_ptr<CudaPool> pool,
                          CudaPool::create(std::move(device), shape, layout));
  return std::unique_ptr<CudaKvPool>(std::move(pool));
}

bool wait_on_layer(LayerGate& arriving, void* stream, std::int64_t layer) {
  BorrowedStream borrowed(stream);
  return arriving.wait_on(borrowed.get(), layer);
}

}  // namespace stemma
