// Wide products: a team computes a tile of y, or of one slice of its sums.
#include "device/copied_rows_cuda.h"
#include "device/cuda_dialect.h"
#include "device/wide_gemm_cuda.h"
#include "device/wide_tiles_cuda.h"

namespace stemma {
namespace {

// Of the thread, found once.
template <typename Shape>
STEMMA_ON_DEVICE CopiedRows<Shape> copied_rows(const TileRows& all) {
  CopiedRows<Shape> copied;
  STEMMA_UNROLLED
  for (int i = 0; i < Shape::kCopiedRows; ++i) copied.rows[i] = all(copied_row<Shape>(i));
  return copied;
}

// The team's product of those that are computed at once, or its slice, and rows of its w from
// column0 on. slice_columns 0: they are not slices.
template <typename T>
STEMMA_ON_DEVICE WideOperands<T> operands_of(const CudaGemmParams& p, std::int64_t slice_columns,
                                             std::int64_t column0) {
  const std::int64_t left = p.k - team_z() * slice_columns;
  const bool is_whole = slice_columns == 0 || left < slice_columns;
  return {static_cast<const T*>(p.x) + team_z() * p.x_step,
          static_cast<const float*>(p.w) + team_z() * p.w_step + column0 * p.k,
          p.n - column0,
          is_whole ? left : slice_columns,
          p.x_stride,
          p.k};
}

template <typename T, typename Y, typename Shape>
STEMMA_KERNEL STEMMA_TEAM(Shape::kThreads, Shape::kTeams)
    wide_kernel(const CudaGemmParams p, std::int64_t slice_columns) {
  const TileRows rows = {team_x() * Shape::kRows, p.m};
  const std::int64_t column0 = team_y() * Shape::kColumns;
  WideSums<Shape> sums = {};
  sum_wide_tile<T, Shape>(operands_of<T>(p, slice_columns, column0), copied_rows<Shape>(rows),
                          sums);
  const TileTarget<Y> to = {static_cast<Y*>(p.y) + team_z() * p.y_step, p.n, p.y_stride, false};
  store_wide_tile<Y, Shape>(sums, rows, to, column0);
}

std::int64_t pieces_of(std::int64_t whole, std::int64_t piece) {
  return (whole + piece - 1) / piece;
}

template <typename T, typename Y, typename Shape>
Status launch_tiles(CudaStream& stream, const CudaGemmParams& p, std::int64_t slice_columns) {
  const LaunchShape shape = {.teams_x = pieces_of(p.m, Shape::kRows),
                             .teams_y = pieces_of(p.n, Shape::kColumns),
                             .teams_z = p.products,
                             .threads = Shape::kThreads,
                             .shared_bytes = Shape::kSharedBytes};
  return launch("wide_gemm", stream, shape, wide_kernel<T, Y, Shape>, p, slice_columns);
}

template <typename T, typename Y>
Status launch_typed(CudaStream& stream, const CudaGemmParams& p, std::int64_t slice_columns) {
  if (p.m <= FewWide::kRows) return launch_tiles<T, Y, FewWide>(stream, p, slice_columns);
  if (p.m <= 2 * SomeWide::kRows) return launch_tiles<T, Y, SomeWide>(stream, p, slice_columns);
  return launch_tiles<T, Y, ManyWide>(stream, p, slice_columns);
}

}  // namespace

Status wide_gemm(CudaStream& stream, const CudaGemmParams& p, std::int64_t slice_columns) {
  if (p.type == WeightType::kBf16) {
    return p.f32_out ? launch_typed<BFloat16, float>(stream, p, slice_columns)
                     : launch_typed<BFloat16, BFloat16>(stream, p, slice_columns);
  }
  return p.f32_out ? launch_typed<Float16, float>(stream, p, slice_columns)
                   : launch_typed<Float16, Float16>(stream, p, slice_columns);
}

}  // namespace stemma
