// Wide products: a team computes a tile of y, or of one slice of its sums.
#include "base/math.h"
#include "device/copied_rows_cuda.h"
#include "device/cuda_dialect.h"
#include "device/gemm_operands_cuda.h"
#include "device/wide_gemm_cuda.h"
#include "device/wide_tiles_cuda.h"

namespace stemma {
namespace {

template <typename T, typename Y, typename Shape>
STEMMA_KERNEL STEMMA_TEAM(Shape::kThreads, Shape::kTeams)
    wide_kernel(const CudaGemmParams p, std::int64_t slice_columns) {
  await_turn();
  const TileRows rows = {team_x() * Shape::kRows, p.m};
  const std::int64_t column0 = team_y() * Shape::kColumns;
  WideSums<Shape> sums = {};
  sum_wide_tile<T, Shape>(operands_of<T, float>(p, slice_columns, column0),
                          copied_rows<Shape, copied_row<Shape>>(rows), sums);
  const TileTarget<Y> to = {static_cast<Y*>(p.y) + team_z() * p.y_step, p.n, p.y_stride, false};
  store_wide_tile<Y, Shape>(sums, rows, to, column0);
}

template <typename T, typename Y, typename Shape>
Status launch_tiles(CudaStream& stream, const CudaGemmParams& p, std::int64_t slice_columns) {
  const LaunchShape shape = {.teams_x = ceil_div<std::int64_t>(p.m, Shape::kRows),
                             .teams_y = ceil_div<std::int64_t>(p.n, Shape::kColumns),
                             .teams_z = p.products,
                             .threads = Shape::kThreads,
                             .shared_bytes = Shape::kSharedBytes,
                             .early = true};
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
