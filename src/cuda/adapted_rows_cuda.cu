// First A x of every row and head, a warp an element; then B of that, a thread an output.
#include "cuda/adapted_rows_cuda.h"
#include "device/cuda_dialect.h"
#include "device/row_words.h"

namespace stemma {
namespace {

constexpr int kThreads = 128;

// What a team computes: a matrix of a row's head. The adapter's A and B are the head's, or those of
// the expert that a visit goes to.
struct Place {
  std::int64_t row;
  std::int64_t head;
  AdaptedMatrix matrix;
  DeviceLowRank change;
  float* inner;
};

STEMMA_ON_DEVICE std::int64_t row_of(const std::int32_t* rows, std::int64_t row) {
  return rows == nullptr ? row : rows[row];
}

STEMMA_ON_DEVICE Place place_of(const AdaptRows& p) {
  Place place;
  place.row = team_x();
  place.head = team_y() / p.matrices_count;
  place.matrix = p.matrices[team_y() % p.matrices_count];
  place.inner = p.inner + (place.row * p.heads * p.matrices_count + team_y()) * p.rank_max;
  const std::int32_t adapter = p.adapters[row_of(p.visits.rows, place.row)];
  if (adapter < 0) return place;
  const DeviceLowRank* changes = place.matrix.changes;
  if (p.visits.rows != nullptr) {
    changes += p.visits.chosen[p.visits.sorted[place.row]] * p.adapters_count;
  }
  place.change = changes[adapter];
  place.change.down += place.head * place.change.down_head_stride;
  place.change.up += place.head * place.change.up_head_stride;
  return place;
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
  await_turn();
  pass_turn();
  const Place place = place_of(p);
  const T* const x = static_cast<const T*>(p.x) + row_of(p.x_rows, place.row) * p.x_stride +
                     place.head * p.x_head_stride;
  for (int r = warp_index(); r < place.change.rank; r += kThreads / kWarpThreads) {
    const float sum = product_of(x, place.change.down + r * p.inputs, p.inputs);
    if (lane_index() == 0) place.inner[r] = sum * place.change.scale;
  }
}

template <typename Y>
STEMMA_KERNEL STEMMA_TEAM(kThreads, 8) outer_kernel(const AdaptRows p) {
  await_turn();
  pass_turn();
  const Place place = place_of(p);
  const std::int64_t output = team_z() * kThreads + thread_index();
  if (place.change.rank == 0 || output >= place.matrix.outputs) return;
  const float* const up = place.change.up + output * place.change.rank;
  float sum = 0;
  for (int r = 0; r < place.change.rank; ++r) sum = fused(up[r], place.inner[r], sum);
  Y& y = static_cast<Y*>(place.matrix.y)[row_of(p.y_rows, place.row) * p.y_stride +
                                         place.head * p.y_head_stride + output];
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
  const bool aligned =
      p.inputs % kRowStep == 0 && p.x_stride % kRowStep == 0 && p.x_head_stride % kRowStep == 0;
  if (!aligned || p.matrices_count < 1 || p.matrices_count > kAdaptedMatricesMax || p.heads < 1 ||
      p.rank_max < 1) {
    return Error{ErrorCode::kInvalidArgument, "adapt_rows: extents", 0};
  }
  if (p.rows == 0) return {};
  std::int64_t outputs = 0;
  for (const AdaptedMatrix& matrix : p.matrices) {
    outputs = matrix.outputs > outputs ? matrix.outputs : outputs;
  }
  const std::int64_t products = p.heads * p.matrices_count;
  const LaunchShape inner = {
      .teams_x = p.rows, .teams_y = products, .threads = kThreads, .early = true};
  const LaunchShape outer = {.teams_x = p.rows,
                             .teams_y = products,
                             .teams_z = (outputs + kThreads - 1) / kThreads,
                             .threads = kThreads,
                             .early = true};
  if (p.type == WeightType::kF32) return launch_typed<float>(stream, p, inner, outer);
  if (p.type == WeightType::kBf16) return launch_typed<BFloat16>(stream, p, inner, outer);
  return launch_typed<Float16>(stream, p, inner, outer);
}

}  // namespace stemma
