#include "attention/read_pass_cuda.h"
#include "device/cuda_dialect.h"

namespace stemma {
namespace {

constexpr int kThreads = 512;
constexpr int kTogether = 8;  // loads that a thread has on their way

STEMMA_KERNEL STEMMA_TEAM(kThreads, 2)
    read_words(const Words* words, std::int64_t count, std::uint32_t* out) {
  const std::int64_t thread = team_x() * kThreads + thread_index();
  const std::int64_t stride = teams_x() * kThreads;
  std::uint32_t mixed = 0;
  for (std::int64_t first = thread; first < count; first += stride * kTogether) {
    Words loaded[kTogether];
    STEMMA_UNROLLED
    for (int i = 0; i < kTogether; ++i) {
      const std::int64_t at = first + i * stride;
      loaded[i] = load_words_once(words + (at < count ? at : first));
    }
    STEMMA_UNROLLED
    for (int i = 0; i < kTogether; ++i) {
      STEMMA_UNROLLED
      for (int w = 0; w < 4; ++w) mixed ^= loaded[i].w[w];
    }
  }
  out[thread] = mixed;
}

}  // namespace

std::int64_t read_pass_words(std::int64_t teams) {
  return teams * kThreads;
}

Status read_pass(CudaStream& stream, const void* bytes, std::int64_t size_bytes, std::uint32_t* out,
                 std::int64_t teams) {
  return launch("read_pass", stream, {.teams_x = teams, .threads = kThreads}, read_words,
                static_cast<const Words*>(bytes), size_bytes / 16, out);
}

}  // namespace stemma
