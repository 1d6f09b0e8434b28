// First A x of every row, a warp an element; then B of that, a thread an output.
#include "cuda/adapted_rows_cuda.h"
#include "device/cuda_dialect.h"
#include "device/row_words.h"

namespace stemma {
namespace {

constexpr int kThreads = 128;

STEMMA_ON_DEVICE DeviceLowRank change_of(const AdaptRows& p, const AdaptedMatrix& matrix,
                                         std::int64_t row) {
  const std::int32_t adapter = p.adapters[row];
  return adapter < 0 ? DeviceLowRank() : matrix.changes[adapter];
}

// Of row x and matrix y of the teams.
STEMMA_ON_DEVICE float* inner_of(const AdaptRows& p, std::int64_t row, std::int64_t matrix) {
  return p.inner + (row * p.matrices_count + matrix) * p.rank_max;
}

template <typename T>
STEMMA_ON_DEVICE float product_of(const T* x, const float* down, std::int64_t inputs) {
  float sum = 0;
  for (std::int64_t i = kRowStep * lane_index(); i < inputs; i += kRowStep * kWarpThreads) {
    float values[kRowStep];
    float weights[kRowStep];
    load_values(x + i, values);
    load_values(down + i, weights);
    STEMMA_UNROLLED
    for (int j = 0; j < kRowStep; ++j) sum = fused(values[j], weights[j], sum);
  }
  return warp_sum(sum);
}

template <typename T>
STEMMA_KERNEL STEMMA_TEAM(kThreads, 8) inner_kernel(const AdaptRows p) {
  const std::int64_t row = team_x();
  const DeviceLowRank change = change_of(p, p.matrices[team_y()], row);
  const T* const x = static_cast<const T*>(p.x) + row * p.inputs;
  float* const inner = inner_of(p, row, team_y());
  for (int r = warp_index(); r < change.rank; r += kThreads / kWarpThreads) {
    const float sum = product_of(x, change.down + r * p.inputs, p.inputs);
    if (lane_index() == 0) inner[r] = sum * change.scale;
  }
}

template <typename Y>
STEMMA_KERNEL STEMMA_TEAM(kThreads, 8) outer_kernel(const AdaptRows p) {
  const std::int64_t row = team_x();
  const AdaptedMatrix& matrix = p.matrices[team_y()];
  const DeviceLowRank change = change_of(p, matrix, row);
  const std::int64_t output = team_z() * kThreads + thread_index();
  if (change.rank == 0 || output >= matrix.outputs) return;
  const float* const inner = inner_of(p, row, team_y());
  const float* const up = change.up + output * change.rank;
  float sum = 0;
  for (int r = 0; r < change.rank; ++r) sum = fused(up[r], inner[r], sum);
  Y& y = static_cast<Y*>(matrix.y)[row * p.y_stride + output];
  y = narrow<Y>(widen(y) + sum);
}

template <typename T>
Status launch_typed(CudaStream& stream, const AdaptRows& p, const LaunchShape& inner,
                    const LaunchShape& outer) {
  STEMMA_RETURN_IF_ERROR(launch("adapt_inner", stream, inner, inner_kernel<T>, p));
  return p.f32_out ? launch("adapt_outer", stream, outer, outer_kernel<float>, p)
                   : launch("adapt_outer", stream, outer, outer_kernel<T>, p);
}

}  // namespace

Status adapt_rows(CudaStream& stream, const AdaptRows& p) {
  if (p.inputs % kRowStep != 0 || p.matrices_count < 1 || p.matrices_count > kAdaptedMatricesMax ||
      p.rank_max < 1) {
    return Error{ErrorCode::kInvalidArgument, "adapt_rows: extents", 0};
  }
  if (p.rows == 0) return {};
  std::int64_t outputs = 0;
  for (const AdaptedMatrix& matrix : p.matrices) {
    outputs = matrix.outputs > outputs ? matrix.outputs : outputs;
  }
  const LaunchShape inner = {.teams_x = p.rows, .teams_y = p.matrices_count, .threads = kThreads};
  const LaunchShape outer = {.teams_x = p.rows,
                             .teams_y = p.matrices_count,
                             .teams_z = (outputs + kThreads - 1) / kThreads,
                             .threads = kThreads};
  if (p.type == WeightType::kF32) return launch_typed<float>(stream, p, inner, outer);
  if (p.type == WeightType::kBf16) return launch_typed<BFloat16>(stream, p, inner, outer);
  return launch_typed<Float16>(stream, p, inner, outer);
}

}  // namespace stemma
