// Products of warpgroups in CUDA C++. cuda_warpgroup.h says what each function is.
//
// Thread:     see cuda_warpgroup.h.
// Memory:     none.
// Cost:       one instruction each; wait_for as long as it takes.
// Not here:   the emulated ones (cuda_warpgroup_simt-inl.h).
#pragma once

#include <type_traits>

namespace stemma {

// Four sums of each of 1, 2, 4, 8 and 16 groups of eight columns, as operands.
#define STEMMA_SUMS_1(d, i) "+f"((d)[i][0]), "+f"((d)[i][1]), "+f"((d)[i][2]), "+f"((d)[i][3])
#define STEMMA_SUMS_2(d, i) STEMMA_SUMS_1(d, i), STEMMA_SUMS_1(d, (i) + 1)
#define STEMMA_SUMS_4(d, i) STEMMA_SUMS_2(d, i), STEMMA_SUMS_2(d, (i) + 2)
#define STEMMA_SUMS_8(d, i) STEMMA_SUMS_4(d, i), STEMMA_SUMS_4(d, (i) + 4)
#define STEMMA_SUMS_16(d, i) STEMMA_SUMS_8(d, i), STEMMA_SUMS_8(d, (i) + 8)

// Their places among the operands.
#define STEMMA_PLACES_2 "%0, %1, %2, %3, %4, %5, %6, %7"
#define STEMMA_PLACES_8                                                        \
  STEMMA_PLACES_2                                                              \
  ", %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22," \
  " %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define STEMMA_PLACES_16                                                                   \
  STEMMA_PLACES_8                                                                          \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48," \
  " %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

// d: sums of `eights` groups of eight columns, which take the operands before the number `first`;
// a in four registers; `shape` and `type` as the instruction has them.
#define STEMMA_MULTIPLY_REGISTERS(eights, shape, type, p0, p1, p2, p3, p4, p5, p6)         \
  asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %" p5                               \
               ", 0;\nwgmma.mma_async.sync.aligned." shape ".f32." type "." type           \
               " {" STEMMA_PLACES_##eights "}, {%" p0 ", %" p1 ", %" p2 ", %" p3 "}, %" p4 \
                                           ", adds, 1, 1, %" p6 ";\n}"                     \
               : STEMMA_SUMS_##eights(d, 0)                                                \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.descriptor),            \
                 "r"(static_cast<std::int32_t>(adds)), "n"(kB == RightMatrix::kColumns ? 1 : 0))
#define STEMMA_MULTIPLY_SHARED(eights, shape, type, p0, p1, p2, p3)                          \
  asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %" p2                                 \
               ", 0;\nwgmma.mma_async.sync.aligned." shape ".f32." type "." type             \
               " {" STEMMA_PLACES_##eights "}, %" p0 ", %" p1 ", adds, 1, 1, 0, %" p3 ";\n}" \
               : STEMMA_SUMS_##eights(d, 0)                                                  \
               : "l"(a.descriptor), "l"(b.descriptor), "r"(static_cast<std::int32_t>(adds)), \
                 "n"(kB == RightMatrix::kColumns ? 1 : 0))

template <typename T, RightMatrix kB, std::size_t kEights>
STEMMA_ON_DEVICE void multiply_group(float (&d)[kEights][4], const std::uint32_t (&a)[4],
                                     SharedMatrix b, bool adds) {
  static_assert(kEights == 2 || kEights == 8 || kEights == 16);
  if constexpr (std::is_same_v<T, BFloat16>) {
    if constexpr (kEights == 2) {
      STEMMA_MULTIPLY_REGISTERS(2, "m64n16k16", "bf16", "8", "9", "10", "11", "12", "13", "14");
    } else if constexpr (kEights == 8) {
      STEMMA_MULTIPLY_REGISTERS(8, "m64n64k16", "bf16", "32", "33", "34", "35", "36", "37", "38");
    } else {
      STEMMA_MULTIPLY_REGISTERS(16, "m64n128k16", "bf16", "64", "65", "66", "67", "68", "69", "70");
    }
  } else {
    if constexpr (kEights == 2) {
      STEMMA_MULTIPLY_REGISTERS(2, "m64n16k16", "f16", "8", "9", "10", "11", "12", "13", "14");
    } else if constexpr (kEights == 8) {
      STEMMA_MULTIPLY_REGISTERS(8, "m64n64k16", "f16", "32", "33", "34", "35", "36", "37", "38");
    } else {
      STEMMA_MULTIPLY_REGISTERS(16, "m64n128k16", "f16", "64", "65", "66", "67", "68", "69", "70");
    }
  }
}

template <typename T, RightMatrix kB, std::size_t kEights>
STEMMA_ON_DEVICE void multiply_group(float (&d)[kEights][4], SharedMatrix a, SharedMatrix b,
                                     bool adds) {
  static_assert(kEights == 2 || kEights == 8 || kEights == 16);
  if constexpr (std::is_same_v<T, BFloat16>) {
    if constexpr (kEights == 2) {
      STEMMA_MULTIPLY_SHARED(2, "m64n16k16", "bf16", "8", "9", "10", "11");
    } else if constexpr (kEights == 8) {
      STEMMA_MULTIPLY_SHARED(8, "m64n64k16", "bf16", "32", "33", "34", "35");
    } else {
      STEMMA_MULTIPLY_SHARED(16, "m64n128k16", "bf16", "64", "65", "66", "67");
    }
  } else {
    if constexpr (kEights == 2) {
      STEMMA_MULTIPLY_SHARED(2, "m64n16k16", "f16", "8", "9", "10", "11");
    } else if constexpr (kEights == 8) {
      STEMMA_MULTIPLY_SHARED(8, "m64n64k16", "f16", "32", "33", "34", "35");
    } else {
      STEMMA_MULTIPLY_SHARED(16, "m64n128k16", "f16", "64", "65", "66", "67");
    }
  }
}

#undef STEMMA_MULTIPLY_SHARED
#undef STEMMA_MULTIPLY_REGISTERS
#undef STEMMA_PLACES_16
#undef STEMMA_PLACES_8
#undef STEMMA_PLACES_2
#undef STEMMA_SUMS_16
#undef STEMMA_SUMS_8
#undef STEMMA_SUMS_4
#undef STEMMA_SUMS_2
#undef STEMMA_SUMS_1

STEMMA_ON_DEVICE void fence_registers() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
STEMMA_ON_DEVICE void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until at most kPending groups that were committed are still on their way.
template <int kPending>
STEMMA_ON_DEVICE void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Sums that are there: the compiler reads none of them earlier. No instruction.
template <std::size_t kEights>
STEMMA_ON_DEVICE void settle(float (&d)[kEights][4]) {
  STEMMA_UNROLLED
  for (std::size_t n = 0; n < kEights; ++n) {
    STEMMA_UNROLLED
    for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(d[n][i])::"memory");
  }
}

template <int kRegisters>
STEMMA_ON_DEVICE void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
STEMMA_ON_DEVICE void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

STEMMA_ON_DEVICE void fence_shared_writes() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

STEMMA_ON_DEVICE void store_matrices(void* row, const std::uint32_t (&r)[4]) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(shared_address(row)),
      "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
      : "memory");
}

// By one thread; the team's barrier comes before its first use.
STEMMA_ON_DEVICE void begin_barrier(SharedBarrier* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
}
STEMMA_ON_DEVICE void arrive(SharedBarrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
}
// Until the phase of that parity has ended. Before the first one, one of parity 1 has.
STEMMA_ON_DEVICE void wait_for(SharedBarrier* barrier, int parity) {
  std::uint32_t ended = 0;
  while (ended == 0) {
    asm volatile(
        "{\n.reg .pred ended;\nmbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
        "selp.u32 %0, 1, 0, ended;\n}"
        : "=r"(ended)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
  }
}

}  // namespace stemma
