#include "pool/cpu_page_mover.h"

#include <algorithm>

#include "pool/layer_coder.h"

namespace stemma {

void CpuPageMover::back_up(std::span<PageMove> moves, GoOn go_on) {
  host_.backup(device_, moves, go_on);
}

void CpuPageMover::promote(std::span<PageMove> moves, GoOn go_on, LayerArrivals& arrivals) {
  const std::int64_t layers = host_.layers();
  std::int64_t layer = 0;
  do {
    const LayerRange next = {layer, std::min(layer + 1, layers)};
    host_.promote(device_, moves, next, go_on);
    arrivals.arrived(layer, std::all_of(moves.begin(), moves.end(), [](const PageMove& move) {
                       return move.verdict == MoveVerdict::kDone;
                     }));
  } while (++layer < layers);
}

bool CpuPageMover::try_wait_on(CudaStream&, std::int64_t) {
  return false;
}

MoveVerdict CpuPageMover::copy_page_in(std::span<const std::byte> image,
                                       std::span<const std::uint32_t> sums, PageId page) {
  LayerCoder coder(host_.codec(), device_.shape());
  const bool right = coder.try_copy_page_in(image, sums, device_, page);
  return right ? MoveVerdict::kDone : MoveVerdict::kCorrupt;
}

}  // namespace stemma
