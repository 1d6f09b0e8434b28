// Products with rounded weights: a team computes a tile of y.
#include "base/math.h"
#include "device/copied_rows_cuda.h"
#include "device/cuda_dialect.h"
#include "device/plain_tiles_cuda.h"
#include "device/rounded_gemm_cuda.h"
#include "device/rounded_plain_cuda.h"
#include "device/rounded_tiles_cuda.h"

namespace stemma {
namespace {

// The team's product of those that are computed at once, and outputs of its w from column0 on,
// which begin a strip.
template <CodeForm kForm, typename T>
STEMMA_ON_DEVICE RoundedOperands<T> operands_of(const CudaGemmParams& p, std::int64_t column0) {
  const std::byte* const w =
      static_cast<const std::byte*>(p.w) + team_z() * RoundedStrips::matrix_bytes(kForm, p.n, p.k) +
      column0 / RoundedStrips::kOutputs * RoundedStrips::strip_bytes(kForm, p.k);
  return {static_cast<const T*>(p.x) + team_z() * p.x_step, w, p.n - column0, p.k, p.x_stride};
}
template <typename T>
STEMMA_ON_DEVICE RoundedTarget target_of(const CudaGemmParams& p, std::int64_t column0) {
  const int element_bytes = static_cast<int>(p.f32_out ? sizeof(float) : sizeof(T));
  const std::int64_t bytes = team_z() * p.y_step * element_bytes;
  return {static_cast<std::byte*>(p.y) + bytes,
          p.f32_out,
          (p.n | p.y_stride | p.y_step) % 2 == 0,
          p.n,
          p.y_stride,
          column0};
}

template <CodeForm kForm, typename T, typename Shape>
STEMMA_KERNEL STEMMA_TEAM(Shape::kThreads, Shape::kTeams) rounded_kernel(const CudaGemmParams p) {
  const std::int64_t row0 = team_x() * Shape::kRows;
  const std::int64_t column0 = team_y() * Shape::kOutputs;
  const std::int64_t rows = p.m - row0 < Shape::kRows ? p.m - row0 : Shape::kRows;
  const TileRows all = {row0, p.m};
  multiply_rounded<kForm, T, Shape, TileTurn::kBehindW>(
      operands_of<kForm, T>(p, column0), copied_rows<Shape, rounded_row<Shape>>(all),
      static_cast<int>(rows), all, target_of<T>(p, column0));
}

template <CodeForm kForm>
STEMMA_KERNEL STEMMA_TEAM(kPlainThreads, 2) plain_rounded_kernel(const CudaGemmParams p) {
  await_turn();
  const std::int64_t column0 = team_y() * kPlainTile;
  const TileRows rows = {team_x() * kPlainTile, p.m};
  float sums[4][4] = {};
  sum_rounded_plain<kForm>(operands_of<kForm, float>(p, column0), rows(plain_copied_row()), sums);
  float* const y = static_cast<float*>(p.y) + team_z() * p.y_step;
  store_plain_tile(sums, rows, TileTarget<float>{y, p.n, p.y_stride, false}, column0);
}

template <CodeForm kForm, typename T, typename Shape>
Status launch_tiles(CudaStream& stream, const CudaGemmParams& p) {
  const LaunchShape shape = {.teams_x = ceil_div<std::int64_t>(p.m, Shape::kRows),
                             .teams_y = ceil_div<std::int64_t>(p.n, Shape::kOutputs),
                             .teams_z = p.products,
                             .threads = Shape::kThreads,
                             .shared_bytes = Shape::shared_bytes(kForm),
                             .early = true};
  return launch("rounded_gemm", stream, shape, rounded_kernel<kForm, T, Shape>, p);
}

// The first of the tiles that a team has room for.
template <CodeForm kForm, typename T, typename Shape, typename Small>
Status launch_few(CudaStream& stream, const CudaGemmParams& p) {
  static_assert(Shape::kRows == Small::kRows);
  return team_can_have(Shape::shared_bytes(kForm)) ? launch_tiles<kForm, T, Shape>(stream, p)
                                                   : launch_tiles<kForm, T, Small>(stream, p);
}

template <CodeForm kForm, typename T>
Status launch_typed(CudaStream& stream, const CudaGemmParams& p) {
  if (p.m <= FewRounded::kRows) {
    return launch_few<kForm, T, FewRounded, SmallFewRounded>(stream, p);
  }
  if (p.m <= Rounded16::kRows) {
    return launch_few<kForm, T, Rounded16, SmallRounded16>(stream, p);
  }
  if (p.m > 2 * SomeRounded::kRows && team_can_have(ManyRounded::shared_bytes(kForm))) {
    return launch_tiles<kForm, T, ManyRounded>(stream, p);
  }
  return launch_tiles<kForm, T, SomeRounded>(stream, p);
}

template <CodeForm kForm>
Status launch_form(CudaStream& stream, const CudaGemmParams& p) {
  if (p.type == WeightType::kBf16) return launch_typed<kForm, BFloat16>(stream, p);
  if (p.type == WeightType::kF16) return launch_typed<kForm, Float16>(stream, p);
  const LaunchShape shape = {.teams_x = ceil_div<std::int64_t>(p.m, kPlainTile),
                             .teams_y = ceil_div<std::int64_t>(p.n, kPlainTile),
                             .teams_z = p.products,
                             .threads = kPlainThreads,
                             .shared_bytes = kPlainSharedBytes,
                             .early = true};
  return launch("plain_rounded_gemm", stream, shape, plain_rounded_kernel<kForm>, p);
}

}  // namespace

Status rounded_gemm(CudaStream& stream, const CudaGemmParams& params) {
  const CudaGemmParams p = with_strides(params);
  const Status checked = check_gemm(p);
  if (!checked.ok() || p.m == 0) return checked;
  switch (p.codes) {
    case CodeForm::kInt8:
      return launch_form<CodeForm::kInt8>(stream, p);
    case CodeForm::kInt4:
      return launch_form<CodeForm::kInt4>(stream, p);
    case CodeForm::kInt4Shifted:
      return launch_form<CodeForm::kInt4Shifted>(stream, p);
    case CodeForm::kNone:
      break;
  }
  return Error{ErrorCode::kInvalidArgument, "gemm: weights that are not rounded", 0};
}

}  // namespace stemma
