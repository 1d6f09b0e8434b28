// CudaPageMover: pages between a CudaPool and a host pool whose memory is pinned for it.
//
// Small pieces are gathered and scattered by kernels that reach into the pinned memory themselves,
// where they can (CudaTraits), large ones are copied by engines (cuda_page_copy).
//
// Sums are the device's, both ways. Down, that of the bytes before they cross the link, up, that of
// the bytes behind it, compared with the one kept: what goes wrong on the link, in host memory, on
// disks or in a store lies between the two and is found. Sums by the host would make right what the
// link had made wrong on the way down. Not found is what was wrong before the first sum (memory of
// the device, a kernel: --shadow-audit looks for that), or what goes wrong between a register and
// the device's memory behind the last one, which has codes of its own.
//
// A promotion queues layers ahead, records an event behind each, and compares each layer's sums
// when its event has come; until then it has not arrived. A call's list of pages goes to the device
// once: between copies that kernels do there is nothing but events. Every call has waited for all
// it queued when it returns: the pages it names are then nobody's but their owner's (I6).
//
// Thread:     as PageMover: streams of their own for what goes down, up, and in.
//                                                     Invariants: I5, I6, I8 (docs/INVARIANTS.md).
// Memory:     pinned, a page, 16 bytes a page of the pool and 4 a sum of what is on its way.
// Cost:       each byte crosses the link once; sums beside it.
// Not here:   how copies are queued (cuda_page_copy), pages that are encoded below the device
//             (cuda_coded_mover).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "device/cuda_device.h"
#include "pool/cuda_page_copy.h"
#include "pool/cuda_pool.h"
#include "pool/page_mover.h"
#include "stemma/result.h"

namespace stemma {

class CudaPageMover final : public PageMover {
  struct Key {};

 public:
  // Limits of what is queued and not yet known to have come, or gone.
  struct Options {
    // Of a backup, twice; a page, if that is more. It asks as often whether to go on.
    std::int64_t backup_bytes = std::int64_t{4} << 20;
    // Of a promotion; kLayersAheadMin layers, if that is more.
    std::int64_t promote_bytes = std::int64_t{64} << 20;
    // That each direction's copies take turns on: of two, one copies while the other begins. What
    // that gives was not measured yet (docs/GPU.md).
    int streams = 1;
  };
  static constexpr std::int64_t kLayersAheadMin = 4;

  // Both must outlive it; the memory of `host` is pinned meanwhile. kOutOfMemory; kUnsupported if a
  // layer of a page has a GiB. REQUIRES: `host` has no codec and the layers of `pool`.
  static Result<std::unique_ptr<CudaPageMover>> open(CudaPool& pool, HostPool& host,
                                                     const Options& options);
  static Result<std::unique_ptr<CudaPageMover>> open(CudaPool& pool, HostPool& host) {
    return open(pool, host, Options());
  }
  CudaPageMover(Key, CudaPool& pool, HostPool& host, const Options& options);  // for open

  void back_up(std::span<PageMove> moves, GoOn go_on) override;
  void promote(std::span<PageMove> moves, GoOn go_on, LayerArrivals& arrivals) override;
  [[nodiscard]] bool try_wait_on(CudaStream& stream, std::int64_t layer) override;
  [[nodiscard]] MoveVerdict copy_page_in(std::span<const std::byte> image,
                                         std::span<const std::uint32_t> sums, PageId page) override;

 private:
  // Pins memory while it lives.
  class Pin {
   public:
    Pin() = default;
    ~Pin();
    Pin(const Pin&) = delete;
    Pin& operator=(const Pin&) = delete;
    Status pin(CudaDevice& device, std::span<std::byte> memory);

   private:
    CudaDevice* device_ = nullptr;
    std::byte* bytes_ = nullptr;
  };
  // Streams that take turns, and what their kernels are told and say.
  struct Lane {
    std::vector<CudaStream> streams;
    CudaMemory pairs;  // of the first stream
    PinnedMemory host_pairs;
    PinnedMemory sums;
    std::vector<CudaEvent> events;
    CudaEvent listed;  // the pairs are on the device

    CudaStream& first() { return streams.front(); }
    // Of the copies that are queued `turn`th.
    CudaStream& stream(std::size_t turn) { return streams[turn % streams.size()]; }
    // Queues the way of so many pairs to the device, before all that is queued then.
    Status send_pairs(std::size_t count);
    // Waits for all that is queued.
    Status synchronize();
  };
  // Pages of a lane's list that move together.
  struct Batch {
    std::span<const PagePair> pairs;  // in pinned memory
    const PagePair* device_pairs = nullptr;
    std::uint32_t* sums = nullptr;
    LayerRange layers;
    std::size_t turn = 0;       // among the copies of a call
    CudaEvent* done = nullptr;  // recorded behind it
  };

  Status open_streams();
  Status open_lane(Lane& lane, std::size_t pairs, std::size_t sums, std::size_t events);
  Status open_all();
  Status upload_tables();
  PageImages host_images() const;
  PageCopy copy_of(const Batch& batch, const PageImages& images) const;
  std::int64_t turn_words() const;
  Status list_backup(std::span<const PageMove> moves);
  Batch backup_batch(std::size_t first, std::size_t count);
  Status queue_backup(const Batch& batch);
  void seal_backup(std::span<PageMove> moves, const Batch& batch);
  Status list_promotion(std::span<PageMove> moves);
  Status queue_layer(std::int64_t layer);
  bool settle_layer(std::span<PageMove> moves, std::int64_t layer);
  std::int64_t layers_ahead(std::int64_t pages) const;
  Batch layer_batch(std::int64_t layer);
  void check_move(PageId device_page) const;

  CudaPool& pool_;
  HostPool& host_;
  Options options_;
  std::size_t backup_pages_ = 1;
  Pin pin_;
  PageCopy whole_;  // what every copy has in common
  Lane down_;       // sums of two batches, in turns
  Lane up_;
  CudaMemory tables_;                // of the first stream of down_
  std::vector<std::size_t> listed_;  // moves of the promotion, by their place among up_'s pairs
  std::int64_t layers_ahead_ = 0;    // of the promotion
  std::mutex in_mutex_;              // of what follows
  Lane in_;
  PinnedMemory staging_;  // a page
};

}  // namespace stemma
