// The dialect of kernels on the emulated GPU (simt.h). cuda_dialect.h says what each function is.
//
// Thread:     see cuda_dialect.h.
// Memory:     none.
// Cost:       tens of nanoseconds where lanes or threads wait for each other.
// Not here:   the dialect in CUDA C++ (cuda_dialect_native-inl.h).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <tuple>
#include <utility>

#include "device/simt.h"
#include "device/simt_warp.h"
#include "device/simt_warpgroup.h"

#define STEMMA_KERNEL void
#define STEMMA_ON_DEVICE inline
#define STEMMA_UNROLLED
#define STEMMA_ROLLED
#define STEMMA_TEAM(threads, teams)

#include "device/cuda_numbers_simt-inl.h"

namespace stemma {

inline int thread_index() {
  return simt::here().thread;
}
inline int team_threads() {
  return simt::here().team_threads;
}
inline int lane_index() {
  return simt::here().thread % kWarpThreads;
}
inline int warp_index() {
  return simt::here().thread / kWarpThreads;
}
inline std::int64_t team_x() {
  return simt::here().team[0];
}
inline std::int64_t team_y() {
  return simt::here().team[1];
}
inline std::int64_t team_z() {
  return simt::here().team[2];
}
inline std::int64_t teams_x() {
  return simt::here().teams_x;
}
inline std::byte* shared_memory() {
  return simt::here().shared;
}

inline void team_barrier(STEMMA_SITE) {
  simt::wait_for_team(site);
}
inline void warp_barrier(STEMMA_SITE) {
  simt::wait_for_warp(site);
}

// What every lane of the warp has of `value`; valid until the lane's next exchange but one.
template <typename T>
const simt::Slot* of_all_lanes(const T& value, const simt::Site& site) {
  const simt::Slot* const slots = simt::show(value);
  simt::gather_warp(site, [] {});
  return slots;
}
using simt::slot_as;

template <typename T>
T shuffle(T value, int lane, STEMMA_SITE) {
  return slot_as<T>(of_all_lanes(value, site)[lane % kWarpThreads]);
}
template <typename T>
T shuffle_xor(T value, int mask, STEMMA_SITE) {
  return slot_as<T>(of_all_lanes(value, site)[lane_index() ^ mask]);
}
inline bool any_lane(bool condition, STEMMA_SITE) {
  const simt::Slot* const slots = of_all_lanes(condition, site);
  return std::any_of(slots, slots + kWarpThreads,
                     [](const simt::Slot& slot) { return slot_as<bool>(slot); });
}
inline std::uint32_t lanes_where(bool condition, STEMMA_SITE) {
  const simt::Slot* const slots = of_all_lanes(condition, site);
  std::uint32_t lanes = 0;
  for (int lane = 0; lane < kWarpThreads; ++lane) {
    lanes |= static_cast<std::uint32_t>(slot_as<bool>(slots[lane])) << lane;
  }
  return lanes;
}
inline int ones_in(std::uint32_t word) {
  return std::popcount(word);
}

inline Words load_words(const void* from) {
  simt::check_aligned(from);
  Words words;
  std::memcpy(&words, from, sizeof(words));
  return words;
}
inline Words load_words_once(const void* from) {
  return load_words(from);
}
inline void store_words(void* to, const Words& words) {
  simt::check_aligned(to);
  simt::note_store(to);
  std::memcpy(to, &words, sizeof(words));
}

inline float exp2_fast(float x) {
  return std::exp2(x);
}
inline float log2_fast(float x) {
  return std::log2(x);
}
inline float reciprocal_root(float x) {
  return 1.0f / std::sqrt(x);
}
inline float word_as_float(std::uint32_t word) {
  return std::bit_cast<float>(word);
}
inline std::uint32_t float_as_word(float value) {
  return std::bit_cast<std::uint32_t>(value);
}
inline float larger_of(float a, float b) {
  return std::fmax(a, b);
}
inline float fused(float a, float b, float c) {
  return std::fma(a, b, c);
}
inline double fused(double a, double b, double c) {
  return std::fma(a, b, c);
}
inline double exp_wide(double x) {
  return std::exp(x);
}
inline std::uint64_t double_as_word(double value) {
  return std::bit_cast<std::uint64_t>(value);
}

inline std::uint32_t add_shared(std::uint32_t* to, std::uint32_t value) {
  return simt::add_to_shared(to, value);
}

inline int afresh(int value) {
  return value;
}

inline void copy_words_later(void* shared, const void* global, bool wanted) {
  simt::copy_later(shared, wanted ? global : nullptr, sizeof(Words));
}
inline void copy_word_later(void* shared, const void* global) {
  simt::copy_later(shared, global, sizeof(std::uint32_t));
}
// Kernels run one after another.
inline void await_turn() {
  simt::await_turn();
}
inline void pass_turn() {}
inline void commit_copies() {
  simt::commit_copies();
}
template <int kPending>
void wait_copies() {
  simt::wait_copies(kPending);
}

inline void load_matrices(std::uint32_t (&r)[4], const void* row, STEMMA_SITE) {
  simt::load_matrices({row, r, false}, site);
}
inline void load_matrices_transposed(std::uint32_t (&r)[4], const void* row, STEMMA_SITE) {
  simt::load_matrices({row, r, true}, site);
}

template <typename T>
float widened(std::uint16_t bits) {
  return to_float(T{bits});
}
template <typename T>
void multiply_add(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                  STEMMA_SITE) {
  simt::multiply_matrices({{a[0], a[1], a[2], a[3]}, {b[0], b[1]}, d}, widened<T>, site);
}

inline std::int64_t team_shared_bytes_max() {
  return simt::team_shared_bytes_max();
}

template <typename... Parameters>
Status load_kernel(void (*kernel)(Parameters...)) {
  simt::load_kernel(reinterpret_cast<const void*>(kernel));
  return {};
}

template <typename... Parameters, typename... Arguments>
Status launch(const char* name, CudaStream& stream, const LaunchShape& shape,
              void (*kernel)(Parameters...), Arguments... arguments) {
  if (shape.teams_x == 0 || shape.teams_y == 0 || shape.teams_z == 0) return {};
  simt::load_kernel(reinterpret_cast<const void*>(kernel));
  if (shape.early) simt::ask_about_launches();
  const simt::Grid grid = {{shape.teams_x, shape.teams_y, shape.teams_z},
                           shape.threads,
                           shape.shared_bytes,
                           shape.early};
  return simt::queue_kernel(stream.raw(), name, grid,
                            [kernel, parameters = std::tuple<Parameters...>(arguments...)] {
                              std::apply(kernel, parameters);
                            });
}

}  // namespace stemma
