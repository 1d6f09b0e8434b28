// CudaKvPool: a pool in the memory of a GPU, for engines whose kernels are their own (component
// `cuda`).
//
//   open_cuda_pool ─► CudaKvPool ─► KvCache, open_lower_tiers: as over any pool (stemma/embed.h)
//
// A step of such an engine, all of it queued on one stream of its own:
//   wait_on_layer      before a layer is read, while pages are lent (KvCache::lend)
//   store_on           its new rows, or kernels of the engine that write layer_view's addresses
//   attention          over those addresses, by the pages that the cache names
//   record_use         once, before the cache is told of the step (KvCache::commit, finish)
// What a step in flight reads is not written to until it has retired (KvCache::begin_step).
//
// A stream is the engine's cudaStream_t, of which this header needs to know nothing else; nullptr
// is CUDA's default stream. Addresses of slots, rows and pages are the device's; the host never
// follows one.
//
// Thread:     what queues: one at a time, and the pool's device becomes the thread's current one.
//             The rest as KvPool.
// Memory:     shape.total_bytes() on the device, zeroed, and a few KiB of pinned host memory.
// Cost:       a call that queues, some microseconds; opening, a GPU's context where the process has
//             none.
// Not here:   pools of kDoubleSparse, kernels of attention, C (stemma/c_cuda.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "stemma/ids.h"
#include "stemma/kv_batch.h"
#include "stemma/kv_pool.h"
#include "stemma/kv_shape.h"
#include "stemma/result.h"

namespace stemma {

class CudaKvPool : public KvPool {
 public:
  // Of the device that it lies on.
  virtual int ordinal() const = 0;

  // Queues a store: as `store`, of rows (KvRows::device is kCuda) and slots on the device. Nobody
  // checks slots: rows whose slot is outside the pool are left out, those of −1 that fill up a
  // recorded graph among them.
  virtual Status store_on(void* stream, std::int64_t layer, std::span<const std::int64_t> slots,
                          const KvRows& k, const KvRows& v) = 0;
  virtual Status store_on(void* stream, std::int64_t layer, std::span<const std::int32_t> slots,
                          const KvRows& k, const KvRows& v) = 0;

  // Queues a copy of all of a page to another. REQUIRES: as KvPool::copy_page, in the order of the
  // stream.
  virtual Status copy_page_on(void* stream, PageId from, PageId to) = 0;

  // What is queued on `stream` by now uses the pool: pages are copied to lower tiers after it. The
  // last call counts. kUnsupported while the stream records a graph: call it behind each launch.
  virtual Status record_use(void* stream) = 0;
};

// GPUs that there are; 0 also where there is no driver.
int cuda_devices() noexcept;

// A zeroed pool on a device. kInvalidArgument naming the field; kNotFound: there is no such device;
// kOutOfMemory; kUnsupported: of kDoubleSparse, whose channels are calibrated for a model, and of
// devices before compute capability 8.0. REQUIRES: what streams have queued is done when it ends.
Result<std::unique_ptr<CudaKvPool>> open_cuda_pool(const KvShape& shape,
                                                   KvLayout layout = KvLayout::kLayerFirst,
                                                   int ordinal = 0);

// What is queued on `stream` from here on begins when every lent page holds `layer`. False if that
// will not be: nothing computed from this step may be used. True does not say that what came is
// right: KvCache::await_lent does.
[[nodiscard]] bool wait_on_layer(LayerGate& arriving, void* stream, std::int64_t layer);

}  // namespace stemma
