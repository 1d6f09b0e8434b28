// Kernels whose threads are ordered, or are not, for races_cuda_test.cc.
//
// Thread:     as launch.
// Memory:     none.
// Cost:       one team each, but for what says otherwise.
// Not here:   the tests themselves.
#pragma once

#include <cstdint>

#include "device/cuda_device.h"

namespace stemma {

// What is between a thread's write to shared memory and its reading of another one's.
enum class Between { kTeamBarrier, kWarpBarrier, kShuffle, kNothing };
// out[t] = what thread t ^ apart put into shared memory. `threads`: of one team.
Status launch_exchange(CudaStream& stream, Between between, int threads, int apart,
                       std::int32_t* out);
// The same; then all put in something else, with nothing between.
Status launch_overwriting(CudaStream& stream, int threads, int apart, std::int32_t* out);
// out[t] = what thread t ^ apart copied to shared memory from words[t ^ apart], where a thread
// waits for its copies before the barrier, or behind it.
Status launch_copies(CudaStream& stream, bool waits_first, int threads, int apart,
                     const std::int32_t* words, std::int32_t* out);
// All threads add to a shared counter, and the first one of each warp reads it, behind a barrier or
// not.
Status launch_count(CudaStream& stream, bool barrier, int threads, std::uint32_t* out);
// out[t] = a word of shared memory that nobody wrote.
Status launch_unwritten(CudaStream& stream, int threads, std::int32_t* out);
// out = in, by a kernel that may begin early, read when it has its turn or before.
Status launch_pass_on(CudaStream& stream, bool awaits_first, int threads, const std::int32_t* in,
                      std::int32_t* out);
// Two teams: each writes 1 to its own word, or to the first.
Status launch_teams(CudaStream& stream, bool own, std::int32_t* out);

}  // namespace stemma
