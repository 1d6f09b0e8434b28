// SIMD targets: the vector instruction sets that Stemma's kernels are compiled for. Every kernel
// file includes this before any Highway header: all of them must choose from the same list, because
// one process computes with one of them (I13).
//
// On x86: AVX-512 (Highway's AVX3), AVX2 and plain x86-64. On Arm: NEON. The sets between them
// would cost compile time and serve processors older than AVX2; SVE's sizeless vectors cannot be
// array elements, which the GEMM tiles are. Sanitized builds leave AVX-512 out, which
// takes long to compile instrumented, and is the same source.
//
// Thread:     none.
// Memory:     none.
// Cost:       each target compiles every kernel once more.
// Not here:   which of them runs (simd_target.h).
#pragma once

#ifdef HWY_DISABLED_TARGETS
#error "include device/simd_targets.h before any Highway header"
#endif
#ifdef STEMMA_SANITIZED
#define STEMMA_UNSANITIZED_TARGETS HWY_AVX3
#else
#define STEMMA_UNSANITIZED_TARGETS 0
#endif
#define HWY_DISABLED_TARGETS                                                              \
  (HWY_SSSE3 | HWY_SSE4 | STEMMA_UNSANITIZED_TARGETS | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | \
   HWY_SVE_256 | HWY_SVE2_128)
