#include "device/cuda_warpgroup.h"
#include "device/hopper_dialect_cuda_test.h"

namespace stemma {

namespace {

constexpr int kRows = 64;
constexpr int kSteps = kGroupDepth / 16;
constexpr int kColumnsMax = 128;
constexpr int kPanelBytes = kRows * kPanelRowBytes;

// A row-major matrix of `kLines` rows, in panels.
template <int kLines, typename T>
STEMMA_ON_DEVICE void copy_to_panels(std::byte* panels, const T* matrix, int columns) {
  const int pieces = columns / 8;
  for (int i = thread_index(); i < kLines * pieces; i += kGroupThreads) {
    const int place = panel_piece_at<kLines>(i / pieces, i % pieces);
    copy_words_later(panels + place, matrix + i * 8, true);
  }
}

template <typename T>
STEMMA_ON_DEVICE void load_left(std::uint32_t (&words)[4], const T* a, int step) {
  const int row = warp_index() * 16 + lane_index() / 4;
  const int k = step * 16 + lane_index() % 4 * 2;
  for (int i = 0; i < 4; ++i) {
    words[i] = *reinterpret_cast<const std::uint32_t*>(a + (row + i % 2 * 8) * kGroupDepth + k +
                                                       i / 2 * 8);
  }
}

template <typename T, LeftPlace kLeft, RightMatrix kB, std::size_t kEights>
STEMMA_KERNEL group_product(const T* a, const T* b, const float* c, float* d) {
  constexpr int kColumns = static_cast<int>(8 * kEights);
  std::byte* const left = shared_memory();
  std::byte* const right = left + kPanelBytes;
  copy_to_panels<kRows>(left, a, kGroupDepth);
  if (kB == RightMatrix::kRows) {
    copy_to_panels<kColumns>(right, b, kGroupDepth);
  } else {
    copy_to_panels<kGroupDepth>(right, b, kColumns);
  }
  commit_copies();
  wait_copies<0>();
  fence_shared_writes();
  team_barrier();
  const int row = warp_index() * 16 + lane_index() / 4;
  float sums[kEights][4];
  std::uint32_t words[kSteps][4];
  for (int i = 0; i < kColumns / 2; ++i) {
    const int place = (row + i % 4 / 2 * 8) * kColumns + i / 4 * 8 + lane_index() % 4 * 2 + i % 2;
    sums[i / 4][i % 4] = c == nullptr ? 0 : c[place];
  }
  STEMMA_UNROLLED
  for (int step = 0; step < kSteps; ++step) load_left(words[step], a, step);
  settle(sums);
  fence_registers();
  STEMMA_UNROLLED
  for (int step = 0; step < kSteps; ++step) {
    const bool adds = step > 0 || c != nullptr;
    const SharedMatrix columns =
        kB == RightMatrix::kRows
            ? advanced(matrix_of_rows(right), step * 32)
            : advanced(matrix_of_columns(right, kPanelBytes), step * 16 * kPanelRowBytes);
    if constexpr (kLeft == LeftPlace::kRegisters) {
      multiply_group<T, kB>(sums, words[step], columns, adds);
    } else {
      multiply_group<T, kB>(sums, advanced(matrix_of_rows(left), step * 32), columns, adds);
    }
  }
  commit_products();
  wait_products<0>();
  settle(sums);
  for (int i = 0; i < kColumns / 2; ++i) {
    d[(row + i % 4 / 2 * 8) * kColumns + i / 4 * 8 + lane_index() % 4 * 2 + i % 2] =
        sums[i / 4][i % 4];
  }
}

STEMMA_KERNEL handing_over(int phases, std::int32_t* out) {
  auto* const full = reinterpret_cast<SharedBarrier*>(shared_memory());
  SharedBarrier* const free = full + 2;
  auto* const places = reinterpret_cast<std::int32_t*>(free + 2);
  const int warps = team_threads() / kWarpThreads;
  if (thread_index() == 0) {
    for (int i = 0; i < 2; ++i) {
      begin_barrier(full + i, 1);
      begin_barrier(free + i, warps);
    }
  }
  team_barrier();
  std::int32_t sum = 0;
  for (int phase = 0; phase < phases; ++phase) {
    const int place = phase % 2;
    if (thread_index() == 0) {
      wait_for(free + place, (phase / 2 & 1) ^ 1);
      places[place] = phase + 1;
      arrive(full + place);
    }
    wait_for(full + place, phase / 2 & 1);
    sum += places[place];
    warp_barrier();
    if (lane_index() == 0) arrive(free + place);
  }
  out[thread_index()] = sum;
}

STEMMA_KERNEL stored_matrices(std::uint32_t* out) {
  std::byte* const row = shared_memory() + lane_index() * 16;
  const auto first = static_cast<std::uint32_t>(4 * lane_index());
  store_matrices(row, {first, first + 1, first + 2, first + 3});
  warp_barrier();
  store_words(out + 4 * lane_index(), load_words(row));
}

// One panel of zeros, of which a product of 16 columns is asked for.
STEMMA_KERNEL group_fault(GroupFault fault, const void* words, float* out) {
  std::byte* const panel = shared_memory();
  const std::byte* const zeros = static_cast<const std::byte*>(words);
  for (int i = thread_index(); i < kPanelBytes / 16; i += kGroupThreads) {
    if (fault == GroupFault::kCopiesFencedTooEarly) {
      copy_words_later(panel + i * 16, zeros, true);
    } else {
      store_words(panel + i * 16, load_words(zeros));
    }
  }
  if (fault != GroupFault::kWritesNotFenced) fence_shared_writes();
  commit_copies();
  wait_copies<0>();
  team_barrier();
  float sums[2][4] = {};
  std::uint32_t left[4] = {};
  SharedMatrix right = matrix_of_rows(panel);
  if (fault == GroupFault::kMisaligned) right = matrix_of_rows(panel + kPanelRowBytes);
  if (fault == GroupFault::kUnlikeMatrices) right = advanced(right, warp_index() * 32);
  if (fault == GroupFault::kWarpMissing && warp_index() == 2) return;
  settle(sums);
  if (fault != GroupFault::kRegistersNotFenced) fence_registers();
  multiply_group<BFloat16, RightMatrix::kRows>(sums, left, right, true);
  commit_products();
  if (fault == GroupFault::kSumsUsedTooEarly) settle(sums);
  if (fault == GroupFault::kSumsTouched) sums[1][2] = 1;
  if (fault == GroupFault::kOperandsTouched) left[3] = 1;
  if (fault == GroupFault::kOverwritten) store_words(panel + thread_index() * 16, {});
  if (fault == GroupFault::kEndsTooEarly) return;
  wait_products<0>();
  settle(sums);
  out[thread_index()] = sums[0][0] + word_as_float(left[3]);
}

template <typename T, LeftPlace kLeft, RightMatrix kB, std::size_t kEights>
Status launch_shape(CudaStream& stream, const T* a, const T* b, const float* c, float* d) {
  return launch(
      "group_product", stream,
      {.threads = kGroupThreads, .shared_bytes = kPanelBytes + kColumnsMax * kPanelRowBytes},
      group_product<T, kLeft, kB, kEights>, a, b, c, d);
}
template <typename T, LeftPlace kLeft>
Status launch_right(CudaStream& stream, RightLayout right, int columns, const T* a, const T* b,
                    const float* c, float* d) {
  if (right == RightLayout::kRows) {
    constexpr RightMatrix kB = RightMatrix::kRows;
    if (columns == 16) return launch_shape<T, kLeft, kB, 2>(stream, a, b, c, d);
    if (columns == 64) return launch_shape<T, kLeft, kB, 8>(stream, a, b, c, d);
    return launch_shape<T, kLeft, kB, 16>(stream, a, b, c, d);
  }
  constexpr RightMatrix kB = RightMatrix::kColumns;
  if (columns == 64) return launch_shape<T, kLeft, kB, 8>(stream, a, b, c, d);
  return launch_shape<T, kLeft, kB, 16>(stream, a, b, c, d);
}

}  // namespace

template <typename T>
Status launch_group_product(CudaStream& stream, LeftPlace left, RightLayout right, int columns,
                            const T* a, const T* b, const float* c, float* d) {
  return left == LeftPlace::kRegisters
             ? launch_right<T, LeftPlace::kRegisters>(stream, right, columns, a, b, c, d)
             : launch_right<T, LeftPlace::kShared>(stream, right, columns, a, b, c, d);
}
template Status launch_group_product(CudaStream&, LeftPlace, RightLayout, int, const BFloat16*,
                                     const BFloat16*, const float*, float*);
template Status launch_group_product(CudaStream&, LeftPlace, RightLayout, int, const Float16*,
                                     const Float16*, const float*, float*);

Status launch_handing_over(CudaStream& stream, int threads, int phases, std::int32_t* out) {
  return launch("handing_over", stream,
                {.threads = threads, .shared_bytes = 4 * sizeof(SharedBarrier) + 8}, handing_over,
                phases, out);
}

Status launch_stored_matrices(CudaStream& stream, std::uint32_t* out) {
  return launch("stored_matrices", stream, {.shared_bytes = 4 * 8 * 16}, stored_matrices, out);
}

Status launch_group_fault(CudaStream& stream, GroupFault fault, const void* words, float* out) {
  return launch("group_fault", stream,
                {.threads = kGroupThreads, .shared_bytes = kPanelBytes + kPanelAlignment},
                group_fault, fault, words, out);
}

}  // namespace stemma
