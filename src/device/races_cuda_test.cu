#include "device/cuda_dialect.h"
#include "device/races_cuda_test.h"

namespace stemma {

namespace {

template <Between kBetween>
STEMMA_ON_DEVICE void come_between() {
  if constexpr (kBetween == Between::kTeamBarrier) team_barrier();
  if constexpr (kBetween == Between::kWarpBarrier) warp_barrier();
  if constexpr (kBetween == Between::kShuffle) static_cast<void>(shuffle(thread_index(), 0));
}

template <Between kBetween>
STEMMA_KERNEL exchange(int apart, std::int32_t* out) {
  auto* const words = reinterpret_cast<std::int32_t*>(shared_memory());
  words[thread_index()] = thread_index();
  come_between<kBetween>();
  out[thread_index()] = words[thread_index() ^ apart];
}

STEMMA_KERNEL overwriting(int apart, std::int32_t* out) {
  auto* const words = reinterpret_cast<std::int32_t*>(shared_memory());
  words[thread_index()] = thread_index();
  team_barrier();
  out[thread_index()] = words[thread_index() ^ apart];
  words[thread_index()] = -1;
}

STEMMA_KERNEL copies(bool waits_first, int apart, const std::int32_t* from, std::int32_t* out) {
  auto* const words = reinterpret_cast<std::int32_t*>(shared_memory());
  copy_word_later(words + thread_index(), from + thread_index());
  commit_copies();
  if (waits_first) wait_copies<0>();
  team_barrier();
  wait_copies<0>();
  out[thread_index()] = words[thread_index() ^ apart];
}

STEMMA_KERNEL count(bool barrier, std::uint32_t* out) {
  auto* const counter = reinterpret_cast<std::uint32_t*>(shared_memory());
  if (thread_index() == 0) *counter = 0;
  team_barrier();
  static_cast<void>(add_shared(counter, 1));
  if (barrier) team_barrier();
  if (lane_index() == 0) out[warp_index()] = *counter;
}

STEMMA_KERNEL unwritten(std::int32_t* out) {
  out[thread_index()] = reinterpret_cast<const std::int32_t*>(shared_memory())[thread_index()];
}

STEMMA_KERNEL teams(bool own, std::int32_t* out) {
  if (thread_index() == 0) out[own ? team_x() : 0] = 1;
}

STEMMA_KERNEL pass_on(bool awaits_first, const std::int32_t* in, std::int32_t* out) {
  std::int32_t value = 0;
  if (!awaits_first) value = in[thread_index()];
  await_turn();
  pass_turn();
  out[thread_index()] = awaits_first ? in[thread_index()] : value;
}

LaunchShape team_of(int threads) {
  return {.threads = threads, .shared_bytes = static_cast<std::size_t>(threads) * 4};
}

}  // namespace

Status launch_exchange(CudaStream& stream, Between between, int threads, int apart,
                       std::int32_t* out) {
  const auto run = [&](auto* kernel) {
    return launch("exchange", stream, team_of(threads), kernel, apart, out);
  };
  switch (between) {
    case Between::kTeamBarrier:
      return run(exchange<Between::kTeamBarrier>);
    case Between::kWarpBarrier:
      return run(exchange<Between::kWarpBarrier>);
    case Between::kShuffle:
      return run(exchange<Between::kShuffle>);
    case Between::kNothing:
      break;
  }
  return run(exchange<Between::kNothing>);
}

Status launch_overwriting(CudaStream& stream, int threads, int apart, std::int32_t* out) {
  return launch("overwriting", stream, team_of(threads), overwriting, apart, out);
}

Status launch_copies(CudaStream& stream, bool waits_first, int threads, int apart,
                     const std::int32_t* words, std::int32_t* out) {
  return launch("copies", stream, team_of(threads), copies, waits_first, apart, words, out);
}

Status launch_count(CudaStream& stream, bool barrier, int threads, std::uint32_t* out) {
  return launch("count", stream, team_of(threads), count, barrier, out);
}

Status launch_unwritten(CudaStream& stream, int threads, std::int32_t* out) {
  return launch("unwritten", stream, team_of(threads), unwritten, out);
}

Status launch_pass_on(CudaStream& stream, bool awaits_first, int threads, const std::int32_t* in,
                      std::int32_t* out) {
  return launch("pass_on", stream, {.threads = threads, .early = true}, pass_on, awaits_first, in,
                out);
}

Status launch_teams(CudaStream& stream, bool own, std::int32_t* out) {
  return launch("teams", stream, {.teams_x = 2}, teams, own, out);
}

}  // namespace stemma
