// PageWork: does what a transfer says: copies pages between the device and host memory, and frames
// between these and page stores. Everything that comes up is verified on the way (I8).
//
// Thread:     as TransferWork: each lane has its own staging frames here.
//                                                    Invariants: I5, I6, I8 (docs/INVARIANTS.md).
// Memory:     frames for kLoadBytes and kStoreBytes, or one page, a store, from the opening on.
// Cost:       one copy between device and host; through a store one more, to or from a frame.
// Not here:   which pages move (cache/), how a device's pages are copied (pool/page_mover).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "device/buffer.h"
#include "pool/host_pool.h"
#include "pool/page_mover.h"
#include "prefix/page_key.h"
#include "stemma/kv_pool.h"
#include "stemma/page_store.h"
#include "tier/page_frame.h"
#include "tier/transfer_lanes.h"

namespace stemma {

// The frames of a pool's pages, encoded with `codec`.
PageFormat page_format(const KvPool& pool, PageCodec codec = PageCodec::kPlain);

class PageWork final : public TransferWork {
  struct Key {};

 public:
  // Pools of the layers with a window.
  struct WindowedPools {
    KvPool* device = nullptr;  // nullptr: there are none
    HostPool* host = nullptr;
  };
  // Everything must outlive it.
  struct Parts {
    KvPool& device;
    HostPool& host;
    std::vector<PageStore*> stores;
    const Clock& clock;
    WindowedPools windowed = {};
  };
  // Of the frames that one call of a store reads, or writes, where a frame is not more. A call
  // that writes is dearer: a disk makes it durable at its end, twice.
  static constexpr std::size_t kLoadBytes = std::size_t{4} << 20;
  static constexpr std::size_t kStoreBytes = std::size_t{16} << 20;

  // kOutOfMemory if the staging frames cannot be had; as KvPool::make_mover.
  static Result<std::unique_ptr<PageWork>> open(Parts parts);
  PageWork(Key, Parts parts);  // for open

  void run(Transfer& job) override;
  bool wait_layer_on(Transfer& job, CudaStream& stream, std::int64_t layer) override;

 private:
  // A device pool, the host pool below it, and what becomes of their pages in stores.
  struct Pools {
    KvPool* device = nullptr;
    HostPool* host = nullptr;
    PageFormat format = {};
    std::unique_ptr<PageMover> mover;
  };
  // What one lane of a store works with.
  struct Staging {
    Buffer frames;
    std::vector<PageRead> reads;
    std::vector<PageWrite> writes;
    std::vector<std::uint32_t> sums;
    PageKeyHasher hasher;
  };

  void back_up(Transfer& job);
  void promote(Transfer& job);
  using BatchWork = void (PageWork::*)(Transfer& job, std::size_t first, std::size_t end);
  void in_batches(Transfer& job, BatchWork work);
  void renew_before(Transfer& job);
  void store_batch(Transfer& job, std::size_t first, std::size_t end);
  void read_batch(Transfer& job, std::size_t first, std::size_t end);
  void load_batch(Transfer& job, std::size_t first, std::size_t end);
  PageVerdict take_up(const Transfer& job, std::size_t page, std::span<const std::byte> frame);
  void look_up(Transfer& job);
  void remove_batch(Transfer& job, std::size_t first, std::size_t end);
  void purge(Transfer& job);

  PageKey key_of(const Transfer& job, std::size_t page);
  PageIdentity identity_of(const Transfer& job, std::size_t page);
  std::span<std::byte> frame(const Transfer& job, std::size_t number);
  std::size_t frames_at_once(const Transfer& job);
  const Pools& pools_of(const Transfer& job) const {
    return pools_[static_cast<std::size_t>(job.group)];
  }
  PageStore& store_of(const Transfer& job) const {
    return *parts_.stores[static_cast<std::size_t>(job.store)];
  }
  Staging& staging_of(const Transfer& job) { return staging_[transfer_lane(job) - 2]; }

  Parts parts_;
  std::array<Pools, 2> pools_;    // by LayerGroup
  std::vector<Staging> staging_;  // by lane, from that of the first store's reads on
  std::vector<PageMove> down_;    // of the lane of backups
  std::vector<PageMove> up_;      // of the lane of promotions
  std::atomic<std::uint64_t> generation_ = 0;
};

}  // namespace stemma
