// CpuPageMover: pages of a pool in host memory, copied by the thread that asks.
//
// Thread:     as PageMover.
// Memory:     none; where there is a codec, the room of a layer a call.
// Cost:       that of HostPool and LayerCoder.
// Not here:   pools of GPUs (cuda_page_mover).
#pragma once

#include "pool/page_mover.h"
#include "stemma/kv_pool.h"

namespace stemma {

class CpuPageMover final : public PageMover {
 public:
  // Both must outlive it. REQUIRES: `device` is in host memory and has the layers of `host`.
  CpuPageMover(KvPool& device, HostPool& host) : device_(device), host_(host) {}

  void back_up(std::span<PageMove> moves, GoOn go_on) override;
  void promote(std::span<PageMove> moves, GoOn go_on, LayerArrivals& arrivals) override;
  [[nodiscard]] bool try_wait_on(CudaStream& stream, std::int64_t layer) override;
  [[nodiscard]] MoveVerdict copy_page_in(std::span<const std::byte> image,
                                         std::span<const std::uint32_t> sums, PageId page) override;

 private:
  KvPool& device_;
  HostPool& host_;
};

}  // namespace stemma
