#include "device/cuda_dialect.h"
#include "device/read_cuda.h"

namespace stemma {
namespace {

constexpr int kThreads = 512;
constexpr int kLoads = 4;  // of a thread at once
constexpr std::int64_t kWordBytes = 16;

STEMMA_ON_DEVICE std::uint32_t folded(const Words& words) {
  return words.w[0] ^ words.w[1] ^ words.w[2] ^ words.w[3];
}

STEMMA_KERNEL STEMMA_TEAM(kThreads, 2) read_kernel(const ReadBytes p) {
  std::uint32_t* const warp_sums = reinterpret_cast<std::uint32_t*>(shared_memory());
  const auto* const from = static_cast<const std::uint32_t*>(p.bytes);
  const std::int64_t words = p.size_bytes / kWordBytes;
  const std::int64_t step = p.teams * kThreads;
  std::int64_t word = team_x() * kThreads + thread_index();
  std::uint32_t sum = 0;
  for (; word + (kLoads - 1) * step < words; word += kLoads * step) {
    Words loaded[kLoads];
    STEMMA_UNROLLED
    for (int i = 0; i < kLoads; ++i) loaded[i] = load_words(from + 4 * (word + i * step));
    STEMMA_UNROLLED
    for (int i = 0; i < kLoads; ++i) sum ^= folded(loaded[i]);
  }
  for (; word < words; word += step) sum ^= folded(load_words(from + 4 * word));
  for (int mask = kWarpThreads / 2; mask > 0; mask /= 2) sum ^= shuffle_xor(sum, mask);
  if (lane_index() == 0) warp_sums[warp_index()] = sum;
  team_barrier();
  if (thread_index() != 0) return;
  for (int warp = 1; warp < kThreads / kWarpThreads; ++warp) sum ^= warp_sums[warp];
  p.sums[team_x()] = sum;
}

}  // namespace

Status read_bytes(CudaStream& stream, const ReadBytes& p) {
  if (p.teams < 1 || p.size_bytes < 0 || p.size_bytes % kWordBytes != 0) {
    return Error{ErrorCode::kInvalidArgument, "read_bytes: not 16 bytes at a time", 0};
  }
  const LaunchShape shape = {.teams_x = p.teams,
                             .threads = kThreads,
                             .shared_bytes = kThreads / kWarpThreads * sizeof(std::uint32_t)};
  return launch("read_bytes", stream, shape, read_kernel, p);
}

}  // namespace stemma
