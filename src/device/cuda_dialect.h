// The language of Stemma's kernels: CUDA C++ reduced to what two compilers understand.
//
// A kernel is a function template or function marked STEMMA_KERNEL in a file *.cu; functions that
// it calls are marked STEMMA_ON_DEVICE. nvcc compiles the file for a GPU; a plain C++ compiler
// compiles the very same file for the emulated one (simt.h), on which tests without a GPU run it.
// Both see only what is declared here and in cuda_dialect_native-inl.h / cuda_dialect_simt-inl.h,
// with cuda_numbers_*-inl.h, which have the same functions:
//
//   thread_index()  team_threads()  lane_index()  warp_index()      within the team
//   team_x() team_y() team_z()  teams_x()                           which team, of how many
//   shared_memory()                    the team's shared bytes, as many as launch was told
//   team_barrier()  warp_barrier()     all threads of the team, of the warp, come here
//   await_turn()  pass_turn()          what was queued before is done; the kernel behind may begin
//                                      (LaunchShape::early)
//   shuffle(value, lane)  shuffle_xor(value, mask)  any_lane(bool)  all lanes take part
//   lanes_where(bool)  ones_in(u32)    a bit for each lane where it is true; bits that are set
//   load_words(p)  load_words_once(p)  store_words(p, words)        16 aligned bytes
//   widen(x)  narrow<T>(f32)  narrow_pair<T>(lo, hi)                stored types and f32
//   narrow_codes<T>(f32 [4])           four numbers of 8 bits, from the lowest byte on
//   codes_as_halves<T>(word, u32 [2])  four such numbers as two pairs of f16, which has all of them
//   swap_middle_bytes(word)            the second byte of four and the third change places
//   exp2_fast(x)  log2_fast(x)  reciprocal_root(x)  exp_wide(x)  fused(a, b, c)
//   larger_of(a, b)  double_as_word(x)
//   subtract_pairs<T>(a, b)            two neighbours minus two others, T BFloat16 or Float16
//   add_shared(to, n)                  whole numbers that many threads add to at once
//   afresh(i)                          i >= 0, of which the compiler keeps nothing over a loop
//   copy_words_later(shared, global, wanted)  commit_copies()  wait_copies<N>()   cp.async of 16
//                                      bytes, zeros where not wanted
//   copy_word_later(shared, global)    the same of 4 bytes
//   load_matrices(r, row)  load_matrices_transposed(r, row)         ldmatrix.x4
//   multiply_add<T>(d, a, b)           mma.m16n8k16, T BFloat16 or Float16, sums in f32
//   launch("name", stream, {.teams_x = …, .threads = …}, kernel, arguments…)   on the host
//   load_kernel(kernel)                what the first launch of it would do, on the host: a thread
//                                      must not load one while another thread's stream records
//   team_can_have(bytes)               so much shared memory, on the thread's device; on the host
//
// A *team* is what CUDA calls a thread block (that word means three other things here); a warp has
// 32 threads. Kernels take plain structs by value, use no atomic sums but of whole numbers (their
// order does not show) and no static shared arrays, and do not rely on the order in which teams
// run. Every lane of a warp takes part in shuffles, matrix loads and products.
//
// Thread:     launch as CudaStream.
// Memory:     none.
// Cost:       that of the instruction that is named.
// Not here:   the emulation (simt.h), streams and memory (cuda_device.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/float16.h"
#include "base/float8.h"
#include "device/cuda_device.h"
#include "stemma/result.h"

namespace stemma {

inline constexpr int kWarpThreads = 32;

// How many teams run a kernel, and what each has.
struct LaunchShape {
  std::int64_t teams_x = 1;
  std::int64_t teams_y = 1;
  std::int64_t teams_z = 1;
  int threads = kWarpThreads;  // of a team: whole warps, at most 1,024
  std::size_t shared_bytes = 0;
  // Teams may begin while the kernel before them in the stream ends, so that a launch takes less
  // time: when all of its teams have passed their turn on, or are done. Who passes it on early
  // leaves the multiprocessors room: else those behind are spread over what is free just then, and
  // stay where they are. REQUIRES: every thread calls await_turn, before it writes anything and
  // before it reads what a kernel may have written.
  bool early = false;
};

// Sixteen bytes that are loaded and stored as one, and eight.
struct alignas(16) Words {
  std::uint32_t w[4];
};
struct alignas(8) TwoWords {
  std::uint32_t w[2];
};
// Two neighbours that are loaded and stored as one.
template <typename T>
struct alignas(2 * sizeof(T)) Two {
  T first;
  T second;
};

}  // namespace stemma

#ifdef __CUDACC__
#include "device/cuda_dialect_native-inl.h"
#else
#include "device/cuda_dialect_simt-inl.h"
#endif

namespace stemma {

// What both have, made of the above.

inline bool team_can_have(std::size_t shared_bytes) {
  return static_cast<std::int64_t>(shared_bytes) <= team_shared_bytes_max();
}

STEMMA_ON_DEVICE float warp_sum(float value) {
  for (int mask = kWarpThreads / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
}

STEMMA_ON_DEVICE float warp_max(float value) {
  for (int mask = kWarpThreads / 2; mask > 0; mask /= 2) {
    const float other = shuffle_xor(value, mask);
    value = other > value ? other : value;
  }
  return value;
}

// The sum over the team, in an order that depends on its size alone. `scratch`: shared, one float a
// warp. All threads take part; the scratch may be used again after the next barrier.
STEMMA_ON_DEVICE float team_sum(float value, float* scratch) {
  value = warp_sum(value);
  if (lane_index() == 0) scratch[warp_index()] = value;
  team_barrier();
  const int warps = team_threads() / kWarpThreads;
  float total = 0;
  for (int warp = 0; warp < warps; ++warp) total += scratch[warp];
  return total;
}

STEMMA_ON_DEVICE float team_max(float value, float* scratch) {
  value = warp_max(value);
  if (lane_index() == 0) scratch[warp_index()] = value;
  team_barrier();
  const int warps = team_threads() / kWarpThreads;
  float largest = scratch[0];
  for (int warp = 1; warp < warps; ++warp) {
    largest = scratch[warp] > largest ? scratch[warp] : largest;
  }
  return largest;
}

}  // namespace stemma
