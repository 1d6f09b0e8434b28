// The dialect of kernels in CUDA C++. cuda_dialect.h says what each function is.
//
// Thread:     see cuda_dialect.h.
// Memory:     none.
// Cost:       one instruction each, where a comment does not say otherwise.
// Not here:   the emulated dialect (cuda_dialect_simt-inl.h).
#pragma once

#include <cuda_runtime.h>

#include <string>
#include <string_view>

#define STEMMA_KERNEL __global__ void
#define STEMMA_ON_DEVICE __device__ __forceinline__
// Before a loop of constant length, so that the arrays that it walks are registers.
#define STEMMA_UNROLLED _Pragma("unroll")
// Before a loop that is to stay one, so that fewer registers do.
#define STEMMA_ROLLED _Pragma("unroll 1")
// The most threads a team of this kernel has, and how many teams a multiprocessor should hold.
#define STEMMA_TEAM(threads, teams) __launch_bounds__(threads, teams)

#include "device/cuda_numbers_native-inl.h"

namespace stemma {

STEMMA_ON_DEVICE int thread_index() {
  return static_cast<int>(threadIdx.x);
}
STEMMA_ON_DEVICE int team_threads() {
  return static_cast<int>(blockDim.x);
}
STEMMA_ON_DEVICE int lane_index() {
  return static_cast<int>(threadIdx.x) % 32;
}
STEMMA_ON_DEVICE int warp_index() {
  return static_cast<int>(threadIdx.x) / 32;
}
STEMMA_ON_DEVICE std::int64_t team_x() {
  return blockIdx.x;
}
STEMMA_ON_DEVICE std::int64_t team_y() {
  return blockIdx.y;
}
STEMMA_ON_DEVICE std::int64_t team_z() {
  return blockIdx.z;
}
STEMMA_ON_DEVICE std::int64_t teams_x() {
  return gridDim.x;
}

STEMMA_ON_DEVICE std::byte* shared_memory() {
  extern __shared__ __align__(1024) std::byte stemma_shared[];
  return stemma_shared;
}

STEMMA_ON_DEVICE void team_barrier() {
  __syncthreads();
}
STEMMA_ON_DEVICE void warp_barrier() {
  __syncwarp();
}
template <typename T>
STEMMA_ON_DEVICE T shuffle(T value, int lane) {
  return __shfl_sync(0xFFFFFFFFu, value, lane);
}
template <typename T>
STEMMA_ON_DEVICE T shuffle_xor(T value, int mask) {
  return __shfl_xor_sync(0xFFFFFFFFu, value, mask);
}
STEMMA_ON_DEVICE bool any_lane(bool condition) {
  return __any_sync(0xFFFFFFFFu, condition) != 0;
}
STEMMA_ON_DEVICE std::uint32_t lanes_where(bool condition) {
  return __ballot_sync(0xFFFFFFFFu, condition);
}
STEMMA_ON_DEVICE int ones_in(std::uint32_t word) {
  return __popc(word);
}

STEMMA_ON_DEVICE Words load_words(const void* from) {
  const uint4 v = *static_cast<const uint4*>(from);
  return {{v.x, v.y, v.z, v.w}};
}
// Of memory that no kernel writes meanwhile and that is not read again soon.
STEMMA_ON_DEVICE Words load_words_once(const void* from) {
  const uint4 v = __ldcs(static_cast<const uint4*>(from));
  return {{v.x, v.y, v.z, v.w}};
}
STEMMA_ON_DEVICE void store_words(void* to, const Words& words) {
  *static_cast<uint4*>(to) = make_uint4(words.w[0], words.w[1], words.w[2], words.w[3]);
}

// 2^x; results below the least normal number may be zero. Within 2 units in the last place.
STEMMA_ON_DEVICE float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// Of a normal number, within 2^-22 of its logarithm's whole part or of one.
STEMMA_ON_DEVICE float log2_fast(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
STEMMA_ON_DEVICE float reciprocal_root(float x) {
  return rsqrtf(x);
}
STEMMA_ON_DEVICE float word_as_float(std::uint32_t word) {
  return __uint_as_float(word);
}
STEMMA_ON_DEVICE std::uint32_t float_as_word(float value) {
  return __float_as_uint(value);
}
// Of a number and a NaN the number.
STEMMA_ON_DEVICE float larger_of(float a, float b) {
  return fmaxf(a, b);
}
// a × b + c, rounded once.
STEMMA_ON_DEVICE float fused(float a, float b, float c) {
  return __fmaf_rn(a, b, c);
}
STEMMA_ON_DEVICE double fused(double a, double b, double c) {
  return __fma_rn(a, b, c);
}
// e^x, within a unit in the last place. Tens of instructions.
STEMMA_ON_DEVICE double exp_wide(double x) {
  return exp(x);
}
STEMMA_ON_DEVICE std::uint64_t double_as_word(double value) {
  return static_cast<std::uint64_t>(__double_as_longlong(value));
}

// Adds to a number in shared memory that other threads add to meanwhile; what it was before.
STEMMA_ON_DEVICE std::uint32_t add_shared(std::uint32_t* to, std::uint32_t value) {
  return atomicAdd(to, value);
}

// The same value, computed again where it is used instead of kept in a register over a loop.
STEMMA_ON_DEVICE int afresh(int value) {
  asm volatile("" : "+r"(value));
  __builtin_assume(value >= 0);
  return value;
}

// Until all that was queued before is done and seen.
STEMMA_ON_DEVICE void await_turn() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// The kernel behind may begin when all teams have come here or are done.
STEMMA_ON_DEVICE void pass_turn() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

STEMMA_ON_DEVICE unsigned shared_address(const void* shared) {
  return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}
STEMMA_ON_DEVICE void copy_words_later(void* shared, const void* global, bool wanted) {
  const int size_bytes = wanted ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
               "l"(global), "r"(size_bytes)
               : "memory");
}
STEMMA_ON_DEVICE void copy_word_later(void* shared, const void* global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(shared)), "l"(global)
               : "memory");
}
STEMMA_ON_DEVICE void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Until at most kPending groups that this thread committed are still on their way.
template <int kPending>
STEMMA_ON_DEVICE void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Four 8 × 8 matrices of 16-bit elements: lane i names row i % 8 of matrix i / 8, 16 shared bytes.
// Word j of lane i: row i / 4 of matrix j, columns 2 (i % 4) and the next.
STEMMA_ON_DEVICE void load_matrices(std::uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
// The same, transposed: word j of lane i has rows 2 (i % 4) and the next of column i / 4.
STEMMA_ON_DEVICE void load_matrices_transposed(std::uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

// d += a b, a [16, 16], b [16, 8], d [16, 8], spread over the lanes as mma.m16n8k16 has them.
template <typename T>
STEMMA_ON_DEVICE void multiply_add(float (&d)[4], const std::uint32_t (&a)[4],
                                   const std::uint32_t (&b)[2]);
template <>
STEMMA_ON_DEVICE void multiply_add<BFloat16>(float (&d)[4], const std::uint32_t (&a)[4],
                                             const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <>
STEMMA_ON_DEVICE void multiply_add<Float16>(float (&d)[4], const std::uint32_t (&a)[4],
                                            const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Prepares a kernel on the thread's device, whatever other threads launch it with: the shared bytes
// that a team may have only grow. Of one that may begin `early`, all of a multiprocessor's memory
// that can be shared is: what part that is changes only when nothing runs there, so kernels that
// overlap have the same. A call that changes nothing is a look-up.
cudaError_t prepare_kernel(const void* kernel, std::size_t shared_bytes, bool early);
// Whether kernels can begin early on the thread's device: what it runs of them awaits its turn. PTX
// for an older GPU than Hopper, which a build without anything better gives a newer one, does not.
bool can_begin_early();

// 0 where there is no device.
std::int64_t team_shared_bytes_max();

// What a call of the runtime gave, with its name and the runtime's words: kOutOfMemory or
// kInternal. The next call does not see the error.
Status status_of(std::string_view what, cudaError_t error);

// Without it a kernel comes to the device when it is launched first, which may wait for all that
// the device does, and is no business of a stream that records.
template <typename... Parameters>
Status load_kernel(void (*kernel)(Parameters...)) {
  cudaFuncAttributes attributes = {};
  return status_of("a kernel",
                   cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel)));
}

// Queues a kernel; as status_of if it cannot be launched.
template <typename... Parameters, typename... Arguments>
Status launch(const char* name, CudaStream& stream, const LaunchShape& shape,
              void (*kernel)(Parameters...), Arguments... arguments) {
  if (shape.teams_x == 0 || shape.teams_y == 0 || shape.teams_z == 0) return {};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(shape.teams_x), static_cast<unsigned>(shape.teams_y),
                        static_cast<unsigned>(shape.teams_z));
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream.raw());
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &early;
  const bool begins_early = shape.early && can_begin_early();
  config.numAttrs = begins_early ? 1 : 0;
  cudaError_t error =
      prepare_kernel(reinterpret_cast<const void*>(kernel), shape.shared_bytes, begins_early);
  if (error == cudaSuccess) error = cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
  if (error == cudaSuccess) return {};
  return status_of(std::string("kernel ") + name, error);
}

}  // namespace stemma
