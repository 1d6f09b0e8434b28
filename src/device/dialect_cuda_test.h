// Kernels that show what each function of the dialect does, for dialect_cuda_test.cc.
//
// Thread:     as launch.
// Memory:     none.
// Cost:       one team each, but for what says otherwise.
// Not here:   the tests themselves.
#pragma once

#include <cstdint>

#include "base/float16.h"
#include "device/cuda_device.h"

namespace stemma {

// out[t] = 1,000 × team + thread, over all teams.
Status launch_places(CudaStream& stream, std::int64_t teams, int threads, std::int32_t* out);
// out[t] = the sum over the team's `threads` of in, by team_sum; then, behind them, by team_max.
Status launch_team_sums(CudaStream& stream, int threads, const float* in, float* out);
// out[t] = what thread (threads − 1 − t) put into shared memory before the barrier.
Status launch_reversal(CudaStream& stream, int threads, const float* in, float* out);
// d [16, 8] = a [16, 16] b [16, 8] + c, all row-major, through copies to shared memory and
// load_matrices.
template <typename T>
Status launch_product(CudaStream& stream, const T* a, const T* b, const float* c, float* d);
// out[i] = narrow(in[i]) as bytes, and back[i] = widen of it.
template <typename T>
Status launch_narrowing(CudaStream& stream, std::int64_t count, const float* in, T* out,
                        float* back);
// The same of four at once: out[i] = narrow_codes of in[4 i …], back[4 i …] = its codes_as_halves.
template <typename Code>
Status launch_narrowing_fours(CudaStream& stream, std::int64_t words, const float* in,
                              std::uint32_t* out, float* back);
// halves[2 i], halves[2 i + 1] = codes_as_halves of in[i]; swapped[i] = swap_middle_bytes of it.
template <typename Code>
Status launch_halves(CudaStream& stream, std::int64_t words, const std::uint32_t* in,
                     std::uint32_t* halves, std::uint32_t* swapped);
// tickets[t] = what a shared counter was before thread t of `threads` added t + 1 to it; behind
// them what it was in the end.
Status launch_tickets(CudaStream& stream, int threads, std::uint32_t* tickets);
// places[t] = how many lanes before thread t's have a number above 0, or −1 if its own is not.
Status launch_ranks(CudaStream& stream, int threads, const float* in, std::int32_t* places);
// out[i] = log2_fast(in[i]).
Status launch_logarithms(CudaStream& stream, std::int64_t count, const float* in, float* out);
// out[i] = e^in[i] in double.
Status launch_exponentials(CudaStream& stream, std::int64_t count, const double* in, double* out);
// One more than in, whose teams of 32 are turned round; it may begin early. Every second launch
// passes its turn on.
Status launch_steps(CudaStream& stream, std::int64_t launch_number, std::int64_t teams,
                    const std::uint32_t* in, std::uint32_t* out);
// Loads the kernel of launch_steps.
Status load_steps();
// One that may begin early, a thread of which does not await its turn.
Status launch_hasty_thread(CudaStream& stream);
// One thread of the team never comes to the barrier.
Status launch_lost_thread(CudaStream& stream);
// Lanes of a warp exchange numbers, some at one place of the code and some at another.
Status launch_parted_warp(CudaStream& stream, float* out);
// Writes one float behind `out`, which has room for `count`.
Status launch_overrun(CudaStream& stream, std::int64_t count, float* out);
// Reads one float behind `in`, which has `count`.
Status launch_overread(CudaStream& stream, std::int64_t count, const float* in, float* out);
// A matrix load of rows that are not in shared memory.
Status launch_far_matrix(CudaStream& stream, const float* rows, std::uint32_t* out);

}  // namespace stemma
