// Products in a fixed order: a team computes a tile of y, or of one slice of its sums.
#include "device/cuda_dialect.h"
#include "device/gemm_cuda.h"
#include "device/gemm_tiles_cuda.h"

namespace stemma {
namespace {

// Rows of a tile of x and of y, of which there are no more than m.
struct TileRows {
  std::int64_t row0;
  std::int64_t m;
  STEMMA_ON_DEVICE std::int64_t operator()(int row) const {
    return row0 + row < m ? row0 + row : -1;
  }
};

// The rows of x that the thread copies, found once.
template <typename Shape>
struct CopiedRows {
  std::int64_t rows[Shape::kCopiedRows];
  STEMMA_ON_DEVICE std::int64_t operator()(int i) const { return rows[i]; }
};
template <typename Shape>
STEMMA_ON_DEVICE CopiedRows<Shape> copied_rows(const TileRows& all) {
  CopiedRows<Shape> copied;
  STEMMA_UNROLLED
  for (int i = 0; i < Shape::kCopiedRows; ++i) copied.rows[i] = all(copied_row<Shape>(i));
  return copied;
}

// The slice of k that the team sums over, and rows of w from column0 on.
template <typename T>
STEMMA_ON_DEVICE TileOperands<T> operands_of(const CudaGemmParams& p, std::int64_t slice_columns,
                                             std::int64_t column0) {
  const std::int64_t begin = team_z() * slice_columns;
  const std::int64_t left = p.k - begin;
  return {static_cast<const T*>(p.x) + begin, static_cast<const T*>(p.w) + column0 * p.k + begin,
          p.n - column0, left < slice_columns ? left : slice_columns, p.k};
}

template <typename T, typename Y, typename Shape>
STEMMA_KERNEL STEMMA_TEAM(Shape::kThreads, Shape::kTeams)
    gemm_kernel(const CudaGemmParams p, std::int64_t slice_columns) {
  const std::int64_t row0 = team_x() * Shape::kRows;
  const std::int64_t column0 = team_y() * Shape::kColumns;
  TileSums<Shape> sums = {};
  sum_tile<T, Shape>(operands_of<T>(p, slice_columns, column0), copied_rows<Shape>({row0, p.m}),
                     sums);
  Y* const y = static_cast<Y*>(p.y) + team_z() * p.m * p.n;
  store_tile<Y, Shape>(sums, TileRows{row0, p.m}, y, p.n, column0);
}

STEMMA_KERNEL STEMMA_TEAM(kPlainThreads, 2)
    plain_gemm_kernel(const CudaGemmParams p, std::int64_t slice_columns) {
  const std::int64_t row0 = team_x() * kPlainTile;
  const std::int64_t column0 = team_y() * kPlainTile;
  const TileRows rows = {row0, p.m};
  float sums[4][4] = {};
  sum_plain_tile(operands_of<float>(p, slice_columns, column0), rows(plain_copied_row()), sums);
  float* const y = static_cast<float*>(p.y) + team_z() * p.m * p.n;
  store_plain_tile(sums, rows, y, p.n, column0);
}

std::int64_t pieces_of(std::int64_t whole, std::int64_t piece) {
  return (whole + piece - 1) / piece;
}

template <typename T, typename Y, typename Shape>
Status launch_tiles(CudaStream& stream, const CudaGemmParams& p, std::int64_t slice_columns) {
  const LaunchShape shape = {.teams_x = pieces_of(p.m, Shape::kRows),
                             .teams_y = pieces_of(p.n, Shape::kColumns),
                             .teams_z = pieces_of(p.k, slice_columns),
                             .threads = Shape::kThreads,
                             .shared_bytes = Shape::kSharedBytes};
  return launch("gemm", stream, shape, gemm_kernel<T, Y, Shape>, p, slice_columns);
}

template <typename T, typename Y>
Status launch_typed(CudaStream& stream, const CudaGemmParams& p, std::int64_t slice_columns) {
  if (p.m <= FewRows::kRows) return launch_tiles<T, Y, FewRows>(stream, p, slice_columns);
  if (p.m <= 2 * SomeRows::kRows) return launch_tiles<T, Y, SomeRows>(stream, p, slice_columns);
  return launch_tiles<T, Y, ManyRows>(stream, p, slice_columns);
}

bool aligned(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
}

Status launch_slices(CudaStream& stream, const CudaGemmParams& p, std::int64_t slice_columns) {
  if (p.type == WeightType::kF32) {
    const LaunchShape shape = {.teams_x = pieces_of(p.m, kPlainTile),
                               .teams_y = pieces_of(p.n, kPlainTile),
                               .teams_z = pieces_of(p.k, slice_columns),
                               .threads = kPlainThreads,
                               .shared_bytes = kPlainSharedBytes};
    return launch("plain_gemm", stream, shape, plain_gemm_kernel, p, slice_columns);
  }
  if (p.type == WeightType::kBf16) {
    return p.f32_out ? launch_typed<BFloat16, float>(stream, p, slice_columns)
                     : launch_typed<BFloat16, BFloat16>(stream, p, slice_columns);
  }
  return p.f32_out ? launch_typed<Float16, float>(stream, p, slice_columns)
                   : launch_typed<Float16, Float16>(stream, p, slice_columns);
}

}  // namespace

Status check_gemm(const CudaGemmParams& p) {
  if (p.m < 0 || p.n < 1 || p.k < 1) {
    return Error{ErrorCode::kInvalidArgument, "gemm: extents must be positive", 0};
  }
  if (p.type == WeightType::kF32) return {};
  if (p.k % kWordElements != 0) {
    return Error{ErrorCode::kInvalidArgument, "gemm: k must be a multiple of 8", 0};
  }
  if (!aligned(p.x) || !aligned(p.w)) {
    return Error{ErrorCode::kInvalidArgument, "gemm: x and w must be aligned to 16 bytes", 0};
  }
  return {};
}

Status ordered_gemm(CudaStream& stream, const CudaGemmParams& p) {
  const Status checked = check_gemm(p);
  if (!checked.ok() || p.m == 0) return checked;
  return launch_slices(stream, p, p.k);
}

Status ordered_gemm_slices(CudaStream& stream, const CudaGemmParams& p,
                           std::int64_t slice_columns) {
  const Status checked = check_gemm(p);
  if (!checked.ok() || p.m == 0) return checked;
  if (slice_columns < kWordElements || slice_columns % kWordElements != 0 || !p.f32_out) {
    return Error{ErrorCode::kInvalidArgument,
                 "gemm: slices are a multiple of 8 columns, their sums f32", 0};
  }
  return launch_slices(stream, p, slice_columns);
}

}  // namespace stemma
