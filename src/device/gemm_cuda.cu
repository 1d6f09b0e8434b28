// Products in a fixed order: a team computes a tile of y, or of one slice of its sums.
#include "base/math.h"
#include "device/copied_rows_cuda.h"
#include "device/cuda_dialect.h"
#include "device/gemm_cuda.h"
#include "device/gemm_operands_cuda.h"
#include "device/gemm_tiles_cuda.h"
#include "device/plain_tiles_cuda.h"
#include "device/rounded_gemm_cuda.h"
#include "device/wide_gemm_cuda.h"

namespace stemma {
namespace {

// Other shapes for more rows than few: where each multiprocessor has one tile, it has a long queue
// of copies; where there are enough of them, tiles are wide, for one of 64 columns and rows reads
// as much of x as of w, and what L2 gives is what bounds it. Teams of some GPUs have too little
// shared memory for all but SomeColumns and SomeRows.
using SomeTiles = GemmTile<64, 64, 2, 4, 10, 1>;
using SomeColumns = GemmTile<64, 128, 2, 4, 4, 2>;
using ManyColumns = GemmTile<128, 256, 2, 4, 3, 1>;
static_assert(ManyRows::kSharedBytes <= ManyColumns::kSharedBytes, "who has room for these has it");

constexpr std::int64_t kMultiprocessors = 132;  // of a Hopper GPU

template <typename Shape>
std::int64_t tiles_of(const CudaGemmParams& p) {
  return ceil_div<std::int64_t>(p.m, Shape::kRows) * ceil_div<std::int64_t>(p.n, Shape::kColumns) *
         p.products;
}

template <typename Y>
STEMMA_ON_DEVICE TileTarget<Y> target_of(const CudaGemmParams& p) {
  return {static_cast<Y*>(p.y) + team_z() * p.y_step, p.n, p.y_stride,
          (p.n | p.y_stride | p.y_step) % 2 == 0};
}

template <typename T, typename Y, typename Shape>
STEMMA_KERNEL STEMMA_TEAM(Shape::kThreads, Shape::kTeams)
    gemm_kernel(const CudaGemmParams p, std::int64_t slice_columns) {
  const std::int64_t row0 = team_x() * Shape::kRows;
  const std::int64_t column0 = team_y() * Shape::kColumns;
  TileSums<Shape> sums = {};
  sum_tile<T, Shape, TileTurn::kBehindW>(operands_of<T, T>(p, slice_columns, column0),
                                         copied_rows<Shape, copied_row<Shape>>({row0, p.m}), sums);
  store_tile<Y, Shape>(sums, TileRows{row0, p.m}, target_of<Y>(p), column0);
}

STEMMA_KERNEL STEMMA_TEAM(kPlainThreads, 2)
    plain_gemm_kernel(const CudaGemmParams p, std::int64_t slice_columns) {
  await_turn();
  const std::int64_t row0 = team_x() * kPlainTile;
  const std::int64_t column0 = team_y() * kPlainTile;
  const TileRows rows = {row0, p.m};
  float sums[4][4] = {};
  sum_plain_tile(operands_of<float, float>(p, slice_columns, column0), rows(plain_copied_row()),
                 sums);
  store_plain_tile(sums, rows, target_of<float>(p), column0);
}

template <typename T, typename Y, typename Shape>
Status launch_tiles(CudaStream& stream, const CudaGemmParams& p, std::int64_t slice_columns) {
  const LaunchShape shape = {.teams_x = ceil_div<std::int64_t>(p.m, Shape::kRows),
                             .teams_y = ceil_div<std::int64_t>(p.n, Shape::kColumns),
                             .teams_z = p.products,
                             .threads = Shape::kThreads,
                             .shared_bytes = Shape::kSharedBytes,
                             .early = true};
  return launch("gemm", stream, shape, gemm_kernel<T, Y, Shape>, p, slice_columns);
}

template <typename T, typename Y>
Status launch_typed(CudaStream& stream, const CudaGemmParams& p, std::int64_t slice_columns) {
  if (p.m <= FewRows::kRows) return launch_tiles<T, Y, FewRows>(stream, p, slice_columns);
  if (p.m <= 2 * SomeRows::kRows) {
    if (team_can_have(SomeTiles::kSharedBytes) && tiles_of<SomeTiles>(p) <= kMultiprocessors) {
      return launch_tiles<T, Y, SomeTiles>(stream, p, slice_columns);
    }
  } else if (team_can_have(ManyColumns::kSharedBytes)) {
    return tiles_of<ManyColumns>(p) >= kMultiprocessors
               ? launch_tiles<T, Y, ManyColumns>(stream, p, slice_columns)
               : launch_tiles<T, Y, ManyRows>(stream, p, slice_columns);
  }
  return tiles_of<SomeColumns>(p) >= kMultiprocessors
             ? launch_tiles<T, Y, SomeColumns>(stream, p, slice_columns)
             : launch_tiles<T, Y, SomeRows>(stream, p, slice_columns);
}

bool aligned(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
}

Status launch_products(CudaStream& stream, const CudaGemmParams& p, std::int64_t slice_columns) {
  if (is_wide(p)) return wide_gemm(stream, p, slice_columns);
  if (p.type == WeightType::kF32) {
    const LaunchShape shape = {.teams_x = ceil_div<std::int64_t>(p.m, kPlainTile),
                               .teams_y = ceil_div<std::int64_t>(p.n, kPlainTile),
                               .teams_z = p.products,
                               .threads = kPlainThreads,
                               .shared_bytes = kPlainSharedBytes,
                               .early = true};
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
  if (params.codes != CodeForm::kNone) return rounded_gemm(stream, params);
  const CudaGemmParams p = with_strides(params);
  const Status checked = check_gemm(p);
  if (!checked.ok() || p.m == 0) return checked;
  return launch_products(stream, p, 0);
}

Status ordered_gemm_slices(CudaStream& stream, const CudaGemmParams& params,
                           std::int64_t slice_columns) {
  CudaGemmParams p = with_strides(params);
  const Status checked = check_gemm(p);
  if (!checked.ok() || p.m == 0) return checked;
  if (slice_columns < kWordElements || slice_columns % kWordElements != 0 || !p.f32_out ||
      p.products > 1 || p.codes != CodeForm::kNone) {
    return Error{ErrorCode::kInvalidArgument,
                 "gemm: slices are a multiple of 8 columns of one product, their sums f32", 0};
  }
  p.products = ceil_div<std::int64_t>(p.k, slice_columns);
  p.x_step = p.w_step = slice_columns;
  p.y_step = p.m * p.y_stride;
  return launch_products(stream, p, slice_columns);
}

}  // namespace stemma
