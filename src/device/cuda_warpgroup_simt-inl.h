// Products of warpgroups on the emulated GPU (simt_warpgroup.h). cuda_warpgroup.h says what each
// function is.
//
// Thread:     see cuda_warpgroup.h.
// Memory:     none.
// Cost:       a product of 64 columns is some 100 microseconds.
// Not here:   the dialect in CUDA C++ (cuda_warpgroup_native-inl.h).
#pragma once

#include "device/simt_warpgroup.h"

namespace stemma {

inline std::uint32_t shared_address(const void* shared) {
  return simt::shared_address(shared);
}

template <typename T>
float widen_bits(std::uint16_t bits) {
  return to_float(T{bits});
}

template <typename T, RightMatrix kB, std::size_t kEights>
simt::GroupProduct group_product(float (&d)[kEights][4], SharedMatrix b, bool adds) {
  static_assert(kEights == 2 || kEights == 8 || kEights == 16);
  return {.columns = static_cast<int>(8 * kEights),
          .sums = &d[0][0],
          .right = b.descriptor,
          .right_columns = kB == RightMatrix::kColumns,
          .adds = adds,
          .widen = widen_bits<T>};
}
template <typename T, RightMatrix kB, std::size_t kEights>
void multiply_group(float (&d)[kEights][4], const std::uint32_t (&a)[4], SharedMatrix b,
                    bool adds) {
  simt::GroupProduct product = group_product<T, kB>(d, b, adds);
  product.left_registers = a;
  simt::multiply_group(product);
}
template <typename T, RightMatrix kB, std::size_t kEights>
void multiply_group(float (&d)[kEights][4], SharedMatrix a, SharedMatrix b, bool adds) {
  simt::GroupProduct product = group_product<T, kB>(d, b, adds);
  product.left = a.descriptor;
  simt::multiply_group(product);
}

inline void fence_registers() {
  simt::fence_registers();
}
inline void commit_products() {
  simt::commit_products();
}
template <int kPending>
void wait_products() {
  simt::wait_products(kPending);
}
template <std::size_t kEights>
void settle(float (&d)[kEights][4]) {
  simt::check_settled(&d[0][0]);
}
template <int kRegisters>
void give_registers() {}
template <int kRegisters>
void take_registers() {}

inline void fence_shared_writes() {
  simt::fence_shared_writes();
}

// Lane i writes row i % 8 of matrix i / 8, of which four lanes have two elements each.
inline void store_matrices(void* row, const std::uint32_t (&r)[4], STEMMA_SITE) {
  simt::check_matrix_row(row);
  Words words = {};
  for (int j = 0; j < 4; ++j) {
    const simt::Slot* const slots = of_all_lanes(r[j], site);
    for (int i = 0; i < 4 && lane_index() / 8 == j; ++i) {
      words.w[i] = slot_as<std::uint32_t>(slots[lane_index() % 8 * 4 + i]);
    }
  }
  store_words(row, words);
}

inline void begin_barrier(SharedBarrier* barrier, int arrivals) {
  simt::begin_barrier(barrier, arrivals);
}
inline void arrive(SharedBarrier* barrier) {
  simt::arrive(barrier);
}
inline void wait_for(SharedBarrier* barrier, int parity) {
  simt::wait_for(barrier, parity);
}

}  // namespace stemma
