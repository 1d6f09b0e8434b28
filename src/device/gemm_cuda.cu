// Products in a fixed order. A team computes a tile of y; x and w come through shared memory in
// pieces of 64 columns, several of them on their way at a time. A piece's row has eight words of 16
// bytes, of which word c of row r lies at c ^ (r % 8), so that the eight rows that a matrix load
// reads lie in different banks.
#include "device/cuda_dialect.h"
#include "device/gemm_cuda.h"

namespace stemma {
namespace {

constexpr int kTileK = 64;
constexpr int kWordElements = 8;
constexpr int kRowWords = kTileK / kWordElements;

// How a tile of y is spread over a team.
template <int kM, int kN, int kWarpsDown, int kWarpsAcross, int kStagesWanted, int kTeamsWanted>
struct Tile {
  static constexpr int kRows = kM;
  static constexpr int kColumns = kN;
  static constexpr int kAcross = kWarpsAcross;
  static constexpr int kThreads = kWarpsDown * kWarpsAcross * kWarpThreads;
  static constexpr int kWarpRows = kM / kWarpsDown;
  static constexpr int kWarpColumns = kN / kWarpsAcross;
  static constexpr int kDown16 = kWarpRows / 16;
  static constexpr int kAcross16 = kWarpColumns / 16;
  static constexpr int kStages = kStagesWanted;
  static constexpr int kTeams = kTeamsWanted;
  static constexpr int kStageWords = (kM + kN) * kRowWords;
  static constexpr std::size_t kSharedBytes = std::size_t{16} * kStageWords * kStages;
  static constexpr int kStepRows = kThreads / kRowWords;  // that the team copies at a time
  static_assert(kM % kStepRows == 0 && kN % kStepRows == 0);
  static_assert(kWarpRows % 16 == 0 && kWarpColumns % 16 == 0);
};
// Of few rows w streams through: small tiles on all multiprocessors, long queues of copies.
using FewRows = Tile<16, 32, 1, 2, 8, 4>;
using SomeRows = Tile<64, 64, 2, 2, 4, 3>;
using ManyRows = Tile<128, 128, 2, 4, 4, 1>;

template <typename Y>
struct alignas(2 * sizeof(Y)) Two {
  Y first;
  Y second;
};

STEMMA_ON_DEVICE int word_place(int row, int word) {
  return row * kRowWords + (word ^ (row & 7));
}

// Begins the copies of piece `piece` of the tile's rows of x and of w to `stage`. A thread copies
// the same word of every kStepRows-th row.
template <typename T, typename Shape>
STEMMA_ON_DEVICE void fetch_piece(const CudaGemmParams& p, std::int64_t row0, std::int64_t column0,
                                  std::int64_t piece, Words* stage) {
  const int first_row = thread_index() / kRowWords;
  const int word = thread_index() % kRowWords;
  const std::int64_t column = piece * kTileK + word * kWordElements;
  STEMMA_UNROLLED
  for (int i = 0; i < (Shape::kRows + Shape::kColumns) / Shape::kStepRows; ++i) {
    const bool of_x = i * Shape::kStepRows < Shape::kRows;
    const int row = first_row + i * Shape::kStepRows;
    const std::int64_t from_row = of_x ? row0 + row : column0 + (row - Shape::kRows);
    const bool wanted = from_row < (of_x ? p.m : p.n) && column < p.k;
    const T* const from = static_cast<const T*>(of_x ? p.x : p.w);
    copy_words_later(stage + word_place(row, word),
                     wanted ? from + from_row * (of_x ? p.x_stride : p.k) + column : from, wanted);
  }
}

// Adds the products of one piece to the warp's part of the tile.
template <typename T, typename Shape>
STEMMA_ON_DEVICE void add_piece(const Words* stage,
                                float (&sums)[Shape::kDown16][2 * Shape::kAcross16][4]) {
  const int lane = lane_index();
  const int x_row = warp_index() / Shape::kAcross * Shape::kWarpRows + lane % 16;
  const int w_row =
      Shape::kRows + warp_index() % Shape::kAcross * Shape::kWarpColumns + lane % 8 + lane / 16 * 8;
  STEMMA_UNROLLED
  for (int step = 0; step < kTileK / 16; ++step) {
    std::uint32_t x[Shape::kDown16][4];
    STEMMA_UNROLLED
    for (int i = 0; i < Shape::kDown16; ++i) {
      load_matrices(x[i], stage + word_place(x_row + 16 * i, 2 * step + lane / 16));
    }
    STEMMA_UNROLLED
    for (int j = 0; j < Shape::kAcross16; ++j) {
      std::uint32_t w[4];
      load_matrices(w, stage + word_place(w_row + 16 * j, 2 * step + lane / 8 % 2));
      const std::uint32_t left[2] = {w[0], w[1]};
      const std::uint32_t right[2] = {w[2], w[3]};
      STEMMA_UNROLLED
      for (int i = 0; i < Shape::kDown16; ++i) {
        multiply_add<T>(sums[i][2 * j], x[i], left);
        multiply_add<T>(sums[i][2 * j + 1], x[i], right);
      }
    }
  }
}

// Two neighbours of a row of y, of which the second may lie outside.
template <typename Y>
STEMMA_ON_DEVICE void store_two(const CudaGemmParams& p, std::int64_t row, std::int64_t column,
                                float first, float second) {
  if (row >= p.m || column >= p.n) return;
  Y* const to = static_cast<Y*>(p.y) + row * p.y_stride + column;
  if ((p.n | p.y_stride | p.y_step) % 2 == 0) {
    *reinterpret_cast<Two<Y>*>(to) = {narrow<Y>(first), narrow<Y>(second)};
    return;
  }
  to[0] = narrow<Y>(first);
  if (column + 1 < p.n) to[1] = narrow<Y>(second);
}

template <typename Y, typename Shape>
STEMMA_ON_DEVICE void store_sums(const CudaGemmParams& p, std::int64_t row0, std::int64_t column0,
                                 const float (&sums)[Shape::kDown16][2 * Shape::kAcross16][4]) {
  const std::int64_t row =
      row0 + warp_index() / Shape::kAcross * Shape::kWarpRows + lane_index() / 4;
  const std::int64_t column =
      column0 + warp_index() % Shape::kAcross * Shape::kWarpColumns + lane_index() % 4 * 2;
  STEMMA_UNROLLED
  for (int i = 0; i < Shape::kDown16; ++i) {
    STEMMA_UNROLLED
    for (int j = 0; j < 2 * Shape::kAcross16; ++j) {
      store_two<Y>(p, row + 16 * i, column + 8 * j, sums[i][j][0], sums[i][j][1]);
      store_two<Y>(p, row + 16 * i + 8, column + 8 * j, sums[i][j][2], sums[i][j][3]);
    }
  }
}

// The team's own product of those that are computed at once.
template <typename T, typename Y>
STEMMA_ON_DEVICE CudaGemmParams product_of(const CudaGemmParams& all) {
  CudaGemmParams own = all;
  own.x = static_cast<const T*>(all.x) + team_z() * all.x_step;
  own.w = static_cast<const T*>(all.w) + team_z() * all.w_step;
  own.y = static_cast<Y*>(all.y) + team_z() * all.y_step;
  return own;
}

template <typename T, typename Y, typename Shape>
STEMMA_KERNEL STEMMA_TEAM(Shape::kThreads, Shape::kTeams) gemm_kernel(const CudaGemmParams all) {
  const CudaGemmParams p = product_of<T, Y>(all);
  Words* const stages = reinterpret_cast<Words*>(shared_memory());
  const std::int64_t row0 = team_x() * Shape::kRows;
  const std::int64_t column0 = team_y() * Shape::kColumns;
  const std::int64_t pieces = (p.k + kTileK - 1) / kTileK;
  float sums[Shape::kDown16][2 * Shape::kAcross16][4] = {};
  for (int piece = 0; piece < Shape::kStages - 1; ++piece) {
    if (piece < pieces) {
      fetch_piece<T, Shape>(p, row0, column0, piece, stages + piece * Shape::kStageWords);
    }
    commit_copies();
  }
  int stage = 0;
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    wait_copies<Shape::kStages - 2>();
    team_barrier();  // all copies of this piece are there, and nobody reads the one before it
    const std::int64_t next = piece + Shape::kStages - 1;
    const int next_stage = stage == 0 ? Shape::kStages - 1 : stage - 1;
    if (next < pieces) {
      fetch_piece<T, Shape>(p, row0, column0, next, stages + next_stage * Shape::kStageWords);
    }
    commit_copies();
    add_piece<T, Shape>(stages + stage * Shape::kStageWords, sums);
    stage = stage + 1 == Shape::kStages ? 0 : stage + 1;
  }
  store_sums<Y, Shape>(p, row0, column0, sums);
}

// f32: 16 × 16 threads, each with 4 × 4 values of a 64 × 64 tile.
constexpr int kPlainTile = 64;
constexpr int kPlainThreads = 256;
constexpr int kPlainK = 16;
constexpr int kPlainStride = kPlainTile + 4;  // of a column in shared memory

// Sixteen columns of 64 rows of `from`, transposed.
STEMMA_ON_DEVICE void fetch_plain(const float* from, std::int64_t stride, std::int64_t row0,
                                  std::int64_t rows, std::int64_t k0, std::int64_t k, float* to) {
  const int row = thread_index() / 4;
  for (int i = 0; i < 4; ++i) {
    const int column = thread_index() % 4 * 4 + i;
    const bool wanted = row0 + row < rows && k0 + column < k;
    to[column * kPlainStride + row] = wanted ? from[(row0 + row) * stride + k0 + column] : 0.0f;
  }
}

STEMMA_KERNEL STEMMA_TEAM(kPlainThreads, 2) plain_gemm_kernel(const CudaGemmParams all) {
  const CudaGemmParams p = product_of<float, float>(all);
  float* const x = reinterpret_cast<float*>(shared_memory());
  float* const w = x + kPlainK * kPlainStride;
  const std::int64_t row0 = team_x() * kPlainTile;
  const std::int64_t column0 = team_y() * kPlainTile;
  const int down = thread_index() / 16 * 4;
  const int across = thread_index() % 16 * 4;
  float sums[4][4] = {};
  for (std::int64_t k0 = 0; k0 < p.k; k0 += kPlainK) {
    team_barrier();
    fetch_plain(static_cast<const float*>(p.x), p.x_stride, row0, p.m, k0, p.k, x);
    fetch_plain(static_cast<const float*>(p.w), p.k, column0, p.n, k0, p.k, w);
    team_barrier();
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
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      const std::int64_t row = row0 + down + i;
      const std::int64_t column = column0 + across + j;
      if (row >= p.m || column >= p.n) continue;
      static_cast<float*>(p.y)[row * p.y_stride + column] = sums[i][j];
    }
  }
}

std::int64_t pieces_of(std::int64_t whole, std::int64_t piece) {
  return (whole + piece - 1) / piece;
}

template <typename T, typename Y, typename Shape>
Status launch_tiles(CudaStream& stream, const CudaGemmParams& p) {
  const LaunchShape shape = {.teams_x = pieces_of(p.m, Shape::kRows),
                             .teams_y = pieces_of(p.n, Shape::kColumns),
                             .teams_z = p.products,
                             .threads = Shape::kThreads,
                             .shared_bytes = Shape::kSharedBytes};
  return launch("gemm", stream, shape, gemm_kernel<T, Y, Shape>, p);
}

template <typename T, typename Y>
Status launch_typed(CudaStream& stream, const CudaGemmParams& p) {
  if (p.m <= FewRows::kRows) return launch_tiles<T, Y, FewRows>(stream, p);
  if (p.m <= 2 * SomeRows::kRows) return launch_tiles<T, Y, SomeRows>(stream, p);
  return launch_tiles<T, Y, ManyRows>(stream, p);
}

bool aligned(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
}

}  // namespace

CudaGemmParams with_strides(const CudaGemmParams& params) {
  CudaGemmParams p = params;
  if (p.x_stride == 0) p.x_stride = p.k;
  if (p.y_stride == 0) p.y_stride = p.n;
  return p;
}

Status check_gemm(const CudaGemmParams& params) {
  const CudaGemmParams p = with_strides(params);
  if (p.m < 0 || p.n < 1 || p.k < 1) {
    return Error{ErrorCode::kInvalidArgument, "gemm: extents must be positive", 0};
  }
  constexpr std::int64_t kProductsMax = 65'535;  // teams along z
  if (p.x_stride < p.k || p.y_stride < p.n || p.products < 1 || p.products > kProductsMax) {
    return Error{ErrorCode::kInvalidArgument, "gemm: rows overlap, or products are too many", 0};
  }
  if (p.type == WeightType::kF32) return {};
  if (p.k % kWordElements != 0) {
    return Error{ErrorCode::kInvalidArgument, "gemm: k must be a multiple of 8", 0};
  }
  const bool whole_words = (p.x_stride | p.x_step | p.w_step) % kWordElements == 0;
  if (!aligned(p.x) || !aligned(p.w) || !whole_words) {
    return Error{ErrorCode::kInvalidArgument, "gemm: x and w must be aligned to 16 bytes", 0};
  }
  return {};
}

Status ordered_gemm(CudaStream& stream, const CudaGemmParams& params) {
  const CudaGemmParams p = with_strides(params);
  const Status checked = check_gemm(p);
  if (!checked.ok() || p.m == 0) return checked;
  if (p.type == WeightType::kF32) {
    const LaunchShape shape = {.teams_x = pieces_of(p.m, kPlainTile),
                               .teams_y = pieces_of(p.n, kPlainTile),
                               .teams_z = p.products,
                               .threads = kPlainThreads,
                               .shared_bytes = 2 * kPlainK * kPlainStride * sizeof(float)};
    return launch("plain_gemm", stream, shape, plain_gemm_kernel, p);
  }
  if (p.type == WeightType::kBf16) {
    return p.f32_out ? launch_typed<BFloat16, float>(stream, p)
                     : launch_typed<BFloat16, BFloat16>(stream, p);
  }
  return p.f32_out ? launch_typed<Float16, float>(stream, p)
                   : launch_typed<Float16, Float16>(stream, p);
}

}  // namespace stemma
