// Tiles of products of f32: a team of 16 × 16 threads, each with 4 × 4 values of a 64 × 64 tile.
//
// They walk k one by one, with one running sum, and what they read behind the last element is zero:
// a value has the same bits wherever in a tile it is computed.
//
// Included by *_cuda.cu alone.
//
// Thread:     code of kernels; all threads of the team take part.
// Memory:     shared memory of the team: kPlainSharedBytes.
// Cost:       multiplications and additions of f32, an instruction each.
// Not here:   tensor cores, and what a tile reads and where it goes (gemm_tiles_cuda.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cuda_dialect.h"
#include "device/gemm_tiles_cuda.h"

namespace stemma {

inline constexpr int kPlainTile = 64;
inline constexpr int kPlainThreads = 256;
inline constexpr int kPlainK = 16;
inline constexpr int kPlainStride = kPlainTile + 4;  // of a column in shared memory
inline constexpr std::size_t kPlainSharedBytes = 2 * kPlainK * kPlainStride * sizeof(float);

// The tile's row, of x or of w, that the thread copies.
STEMMA_ON_DEVICE int plain_copied_row() {
  return thread_index() / 4;
}

// Columns from k0 on of the `k` that `row` has, zeros where there is none, transposed.
STEMMA_ON_DEVICE void fetch_plain(const float* row_or_null, std::int64_t k0, std::int64_t k,
                                  float* to) {
  for (int i = 0; i < 4; ++i) {
    const int column = thread_index() % 4 * 4 + i;
    const bool wanted = row_or_null != nullptr && k0 + column < k;
    to[column * kPlainStride + plain_copied_row()] = wanted ? row_or_null[k0 + column] : 0.0f;
  }
}

// Adds the products of kPlainK inputs that lie in shared memory.
STEMMA_ON_DEVICE void add_plain(const float* x, const float* w, float (&sums)[4][4]) {
  const int down = thread_index() / 16 * 4;
  const int across = thread_index() % 16 * 4;
  for (int k = 0; k < kPlainK; ++k) {
    STEMMA_UNROLLED
    for (int i = 0; i < 4; ++i) {
      STEMMA_UNROLLED
      for (int j = 0; j < 4; ++j) {
        sums[i][j] =
            fused(x[k * kPlainStride + down + i], w[k * kPlainStride + across + j], sums[i][j]);
      }
    }
  }
}

// Adds all of a tile's products to `sums`. x_row: where the row that the thread copies lies in x;
// below 0: nowhere.
STEMMA_ON_DEVICE void sum_plain_tile(const TileOperands<float>& from, std::int64_t x_row,
                                     float (&sums)[4][4]) {
  float* const x = reinterpret_cast<float*>(shared_memory());
  float* const w = x + kPlainK * kPlainStride;
  const int copied = plain_copied_row();
  const float* const own_x = x_row >= 0 ? from.x + x_row * from.x_stride : nullptr;
  const float* const own_w = copied < from.w_rows ? from.w + copied * from.w_stride : nullptr;
  for (std::int64_t k0 = 0; k0 < from.k; k0 += kPlainK) {
    team_barrier();
    fetch_plain(own_x, k0, from.k, x);
    fetch_plain(own_w, k0, from.k, w);
    team_barrier();
    add_plain(x, w, sums);
  }
}

// As store_tile.
template <typename Rows>
STEMMA_ON_DEVICE void store_plain_tile(const float (&sums)[4][4], const Rows& y_rows,
                                       const TileTarget<float>& to, std::int64_t column0) {
  const std::int64_t first_column = column0 + thread_index() % 16 * 4;
  for (int i = 0; i < 4; ++i) {
    const std::int64_t row = y_rows(thread_index() / 16 * 4 + i);
    for (int j = 0; j < 4; ++j) {
      const std::int64_t column = first_column + j;
      if (row >= 0 && column < to.n) to.y[row * to.stride + column] = sums[i][j];
    }
  }
}

}  // namespace stemma
