// CudaPool: a pool of any kind in the memory of a GPU. Its bytes lie exactly as those of the pool
// in host memory of the same shape and layout; the addresses that it gives are the device's, which
// the host never follows.
//
// Whoever computes queues its stores and its reading on one stream, the compute stream, and says so
// after each step (record_use). Who copies pages on other streams waits for that event before it
// reads them. Writing to a page needs no waiting: whoever owns a page that is free got it after the
// step that last read it had retired (I6; KvCache::retire_step), which the host has seen the end
// of.
//
// Thread:     store_on, copy_page_on and record_use as their stream; the rest from any.
//                                                    Invariants: I5, I6 (docs/INVARIANTS.md).
// Memory:     shape.total_bytes() on the device, zeroed; channels of labelled pools; a few KiB of
//             pinned host memory, and two pages' once pages were compared.
// Cost:       what is queued, a few microseconds; what waits says so.
// Not here:   kernels (store_cuda), copies between tiers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "device/cuda_device.h"
#include "pool/heavy_channels.h"
#include "pool/pool_arrays.h"
#include "pool/store_cuda.h"
#include "stemma/cuda_pool.h"
#include "stemma/kv_pool.h"
#include "stemma/result.h"

namespace stemma {

class CudaPool final : public CudaKvPool {
  struct Key {};

 public:
  // A zeroed pool. `channels` are for kDoubleSparse alone. kInvalidArgument as validate(shape) and
  // validate_heavy_channels; kOutOfMemory. The device must outlive the pool.
  static Result<std::unique_ptr<CudaPool>> create(CudaDevice& device, const KvShape& shape,
                                                  KvLayout layout, HeavyChannels channels = {});
  // The same of a device that the pool keeps.
  static Result<std::unique_ptr<CudaPool>> create(std::unique_ptr<CudaDevice> device,
                                                  const KvShape& shape, KvLayout layout);
  CudaPool(Key, CudaDevice& device, const KvShape& shape, KvLayout layout);  // for create

  // As CudaKvPool, of streams of the caller's.
  int ordinal() const override { return device_.ordinal(); }
  Status store_on(void* stream, std::int64_t layer, std::span<const std::int64_t> slots,
                  const KvRows& k, const KvRows& v) override;
  Status store_on(void* stream, std::int64_t layer, std::span<const std::int32_t> slots,
                  const KvRows& k, const KvRows& v) override;
  Status copy_page_on(void* stream, PageId from, PageId to) override;
  Status record_use(void* stream) override;

  const KvShape& shape() const override { return arrays_.shape(); }
  KvLayout layout() const override { return arrays_.layout(); }
  DeviceKind device() const override { return DeviceKind::kCuda; }
  CudaDevice& cuda_device() const noexcept { return device_; }
  // No two pools of a process have the same, while another may well lie where one lay.
  std::int64_t number() const noexcept { return number_; }

  // Queues a store of rows on the device: as `store`, but for the slots, which nobody checks: rows
  // whose slot is outside the pool are left out. `v` has no rows if the pool is of latent rows.
  Status store_on(CudaStream& stream, std::int64_t layer, const DeviceSlots& slots, const KvRows& k,
                  const KvRows& v);
  // What kernels need that store by themselves. REQUIRES: 0 <= layer < shape().layers.
  StoreTarget store_target(std::int64_t layer) const;

  // As KvPool, of rows on the device and slots on the host; waits until it is done. Rows must be
  // whole before it is called.
  Status store(std::int64_t layer, std::span<const std::int64_t> slots, const KvRows& k,
               const KvRows& v) override;
  Status store(std::int64_t layer, std::span<const std::int32_t> slots, const KvRows& k,
               const KvRows& v) override;

  // `stream` is the compute stream: what is queued there by now uses the pool.
  Status record_use(CudaStream& stream);
  // Lets what is queued on `stream` from here on begin after the use that was recorded last.
  Status wait_for_use(CudaStream& stream) const { return stream.wait_for(used_); }

  // Queues a copy of all of a page to another. REQUIRES: as KvPool::copy_page, in the stream's
  // order.
  Status copy_page_on(CudaStream& stream, PageId from, PageId to);
  // As KvPool: after what computes by now, and waits until it is done.
  Status copy_page(PageId from, PageId to) override;
  // As KvPool: both pages are copied to pinned memory, which stays.
  Result<std::optional<std::int64_t>> first_different_layer(PageId a, PageId b) override;
  // Pins the memory of `host` while the mover lives, or, where it has a codec, some of its own.
  Result<std::unique_ptr<PageMover>> make_mover(HostPool& host) override;

  KvLayerView layer_view(std::int64_t layer) const override;
  LayerPieces<const std::byte> layer_pieces(std::int64_t layer) const override {
    return arrays_.layer_pieces<const std::byte>(layer);
  }
  LayerPieces<std::byte> layer_pieces(std::int64_t layer) override {
    return arrays_.layer_pieces<std::byte>(layer);
  }
  TensorView logical_view() override { return arrays_.logical_view(); }

 private:
  Status allocate(HeavyChannels channels);
  template <typename Slot>
  Status store_on_borrowed(void* stream, std::int64_t layer, std::span<const Slot> slots,
                           const KvRows& k, const KvRows& v);
  template <typename Slot>
  Status store_from_host(std::int64_t layer, std::span<const Slot> slots, const KvRows& k,
                         const KvRows& v);
  template <typename Slot>
  Status upload_slots(std::span<const Slot> slots);
  template <typename Queue>
  Status queue_and_wait(Queue queue);
  Status copy_image_on(CudaStream& stream, PageId page, std::byte* image);

  const std::int64_t number_;
  std::unique_ptr<CudaDevice> owned_device_;  // nullptr: somebody else's
  CudaDevice& device_;
  CudaStream stream_;  // of what waits; all memory is given back on it
  CudaMemory memory_;
  CudaMemory channels_;  // [layers, heads, label_channels]
  PoolArrays arrays_;
  CudaEvent used_;

  std::mutex mutex_;  // of the stream and what follows
  PinnedMemory pinned_slots_;
  CudaMemory device_slots_;
  PinnedMemory compared_;  // two images, once pages were compared   [2, layers, layer]
};

}  // namespace stemma
