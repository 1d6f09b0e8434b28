// CudaCodedMover: pages between a CudaPool and a host pool with a codec. They pass through pages of
// pinned memory as they are, which the GPU fills and reads; the CPU encodes and decodes them there.
//
// A backup encodes only what has the sums that the GPU took of it. A promotion that does not fit
// the staging comes in groups: layers arrive with the last of them.
//
// Thread:     as PageMover.                        Invariants: I5, I6, I8 (docs/INVARIANTS.md).
// Memory:     pinned, kStagedBytes for each direction, or a page if that is more.
// Cost:       that of the codec (page_codec), behind which the link hardly counts.
// Not here:   copies of plain pages (cuda_page_mover), how a row is encoded (page_codec).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "pool/cuda_page_mover.h"
#include "pool/cuda_pool.h"
#include "pool/layer_coder.h"
#include "pool/page_mover.h"
#include "stemma/result.h"

namespace stemma {

class CudaCodedMover final : public PageMover {
  struct Key {};

 public:
  static constexpr std::int64_t kStagedBytes = std::int64_t{16} << 20;

  // Both must outlive it. kOutOfMemory. REQUIRES: `host` has a codec.
  static Result<std::unique_ptr<CudaCodedMover>> open(CudaPool& pool, HostPool& host,
                                                      std::int64_t staged_bytes = kStagedBytes);
  CudaCodedMover(Key, CudaPool& pool, HostPool& host);  // for open

  void back_up(std::span<PageMove> moves, GoOn go_on) override;
  void promote(std::span<PageMove> moves, GoOn go_on, LayerArrivals& arrivals) override;
  [[nodiscard]] bool try_wait_on(CudaStream& stream, std::int64_t layer) override;
  [[nodiscard]] MoveVerdict copy_page_in(std::span<const std::byte> image,
                                         std::span<const std::uint32_t> sums, PageId page) override;

 private:
  // Moves of one direction that are staged together, and what encodes or decodes them.
  struct Lane {
    LayerCoder coder;
    std::vector<PageMove> staged;
    std::vector<PageMove*> moves;  // whose they are
    std::vector<std::uint32_t> sums;
  };

  bool try_encode(PageId staged, const PageMove& move);
  bool try_decode(const PageMove& move, PageId staged);
  void promote_group(std::span<PageMove> moves, GoOn go_on, LayerArrivals& arrivals);

  HostPool& host_;
  std::size_t layers_;
  std::size_t staged_pages_ = 1;       // of each direction: those down, then those up
  std::unique_ptr<HostPool> staging_;  // plain
  std::unique_ptr<CudaPageMover> plain_;
  Lane down_;
  Lane up_;
  std::mutex in_mutex_;  // of what follows
  LayerCoder in_coder_;
  std::vector<std::byte> in_image_;
  std::vector<std::uint32_t> in_sums_;
};

}  // namespace stemma
