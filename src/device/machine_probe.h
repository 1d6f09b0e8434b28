// Machine probe: the bounds that benchmarks are measured against, taken from the machine in the
// same run.
//
// Thread:     the thread that owns the pool.
// Memory:     two working sets beyond the last-level cache, mapped and prefaulted at creation.
// Cost:       creation touches the working sets; each figure takes five repetitions of its pass.
// Not here:   what is compared with a bound (x_bench in each room).
#pragma once

#include <cstddef>
#include <span>

#include "base/thread_pool.h"
#include "device/buffer.h"
#include "stemma/result.h"

namespace stemma {

// The last-level cache as the system reports it; 32 MiB if it does not say.
std::size_t llc_bytes();

// Peak of f32 fused multiply-adds (two operations each) in registers, with the chosen SIMD target
// on all of the pool's threads: the median of five windows of 20 ms.
double fma_peak_gflop_per_s(ThreadPool& pool);

// The same in one window of 1 ms: the peak at the clock that the processor runs at now. Wide
// vectors that also load and store draw more power than this loop does and lower the clock, which
// comes back within milliseconds; so a kernel is compared with windows between its own runs.
double fma_peak_now_gflop_per_s(ThreadPool& pool);

// The peaks of products of pairs of 16-bit integers, which are added to sums of 32 bits: twice as
// many operations an instruction, of which some processors begin half as many. The bound of weights
// of 8 and 4 bits.
double pair_peak_gflop_per_s(ThreadPool& pool);
double pair_peak_now_gflop_per_s(ThreadPool& pool);

// Throughput of two threads over one, in 0.1 s of multiply-adds each. Below about 1.8 the two
// virtual cores share a physical one at the moment, and figures for two threads mean little. `pair`
// is a pool of two threads. REQUIRES: pair.threads() == 2.
double two_core_ratio(ThreadPool& pair);

// GB/s (1e9 bytes) of one pass of reading over `areas`, in order, with all of the pool's threads:
// the bound of a kernel that reads the same areas. REQUIRES: each area is aligned to 64 bytes and a
// multiple of 128 long.
double read_pass_gb_per_s(std::span<const std::span<const std::byte>> areas, ThreadPool& pool);

// Memory bandwidths in GB/s (1e9 bytes) over working sets larger than the last-level cache.
class MachineProbe {
 public:
  // Twice the last-level cache (or `size_bytes_max`, if that is less) for each of two buffers.
  // kOutOfMemory.
  static Result<MachineProbe> create(ThreadPool& pool, std::size_t size_bytes_max);

  // Bytes read in order.
  double read_gb_per_s(ThreadPool& pool);
  // Bytes copied (each is read once and written once).
  double copy_gb_per_s(ThreadPool& pool);
  // Bytes of one side compared with equal bytes of the other.
  double compare_gb_per_s(ThreadPool& pool);

  // Size of each working set.
  std::size_t size_bytes() const noexcept { return first_.size_bytes(); }

 private:
  MachineProbe(Buffer first, Buffer second) noexcept;

  Buffer first_;
  Buffer second_;
};

}  // namespace stemma
