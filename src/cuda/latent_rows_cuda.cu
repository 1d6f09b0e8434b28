// A thread takes eight neighbouring values at a time, so that every access to memory has 16 bytes.
// A row's values are read twice, the second time from a cache, and never kept: ranks have no limit.
#include "cuda/latent_rows_cuda.h"
#include "device/cuda_dialect.h"
#include "device/row_words.h"

namespace stemma {
namespace {

constexpr int kTeamThreadsMax = 256;
constexpr int kTurnThreads = 128;

// Eight values of a row with their bias.
STEMMA_ON_DEVICE void load_biased(const float* row, const float* bias, std::int64_t i,
                                  float (&values)[kRowStep]) {
  load_values(row + i, values);
  if (bias == nullptr) return;
  STEMMA_UNROLLED
  for (int j = 0; j < kRowStep; ++j) values[j] += bias[i + j];
}

// What the first `width` values of a row are multiplied by to be normalised.
STEMMA_ON_DEVICE float norm_scale(const float* row, const float* bias, std::int64_t width,
                                  float epsilon, float* scratch) {
  float squares = 0;
  for (std::int64_t i = kRowStep * thread_index(); i < width; i += kRowStep * team_threads()) {
    float values[kRowStep];
    load_biased(row, bias, i, values);
    STEMMA_UNROLLED
    for (const float value : values) squares = fused(value, value, squares);
  }
  return reciprocal_root(team_sum(squares, scratch) / static_cast<float>(width) + epsilon);
}

// Turns four pairs. `angles`: cosine and sine of the first of them.
STEMMA_ON_DEVICE void turn_pairs(float (&values)[kRowStep], const float* angles) {
  float turns[kRowStep];
  load_values(angles, turns);
  STEMMA_UNROLLED
  for (int j = 0; j < kRowStep; j += 2) {
    const float a = values[j];
    const float b = values[j + 1];
    values[j] = fused(-b, turns[j + 1], a * turns[j]);
    values[j + 1] = fused(a, turns[j + 1], b * turns[j]);
  }
}

template <typename T>
STEMMA_ON_DEVICE void write_query(const LatentRows& p, std::int64_t row, const float* down,
                                  float* scratch) {
  const float scale = norm_scale(down, p.bias, p.query_rank, p.epsilon, scratch);
  T* const out = static_cast<T*>(p.query) + row * p.query_rank;
  for (std::int64_t i = kRowStep * thread_index(); i < p.query_rank;
       i += kRowStep * team_threads()) {
    float values[kRowStep];
    load_biased(down, p.bias, i, values);
    STEMMA_UNROLLED
    for (int j = 0; j < kRowStep; ++j) values[j] *= scale * p.query_norm[i + j];
    store_values(out + i, values);
  }
}

// `to`: where the row is kept; nullptr: nowhere.
template <typename K>
STEMMA_ON_DEVICE void write_latent(const LatentRows& p, std::int64_t row, const float* from, K* to,
                                   float* scratch) {
  const float* const bias = p.bias != nullptr ? p.bias + p.query_rank : nullptr;
  const float scale = norm_scale(from, bias, p.rank, p.epsilon, scratch);
  const float* const angles = p.angles + p.positions[row] * p.rope_dim;
  if (to == nullptr) return;
  const std::int64_t width = p.rank + p.rope_dim;
  for (std::int64_t i = kRowStep * thread_index(); i < width; i += kRowStep * team_threads()) {
    float values[kRowStep];
    load_biased(from, bias, i, values);
    if (i < p.rank) {
      STEMMA_UNROLLED
      for (int j = 0; j < kRowStep; ++j) values[j] *= scale * p.latent_norm[i + j];
    } else {
      turn_pairs(values, angles + (i - p.rank));
    }
    store_values(to + i, values);
  }
}

// Where the pool keeps the row; nullptr: it does not.
template <typename K>
STEMMA_ON_DEVICE K* place_of(const TurnTarget& target, std::int32_t slot) {
  if (slot < 0 || slot >= target.slots) return nullptr;
  return static_cast<K*>(target.k) + slot / target.page_size * target.page_stride +
         slot % target.page_size * target.token_stride;
}

// One team has the latent part of a row, another, if there is one, that of q.
template <typename Q, typename K, bool kStore>
STEMMA_KERNEL STEMMA_TEAM(kTeamThreadsMax, 4) latent_rows_kernel(const LatentRows p) {
  await_turn();
  pass_turn();
  float* const scratch = reinterpret_cast<float*>(shared_memory());
  const std::int64_t row = team_x();
  float* const down = p.down + row * (p.query_rank + p.rank + p.rope_dim);
  if (team_y() > 0) return write_query<Q>(p, row, down, scratch);
  float* const latent = down + p.query_rank;
  if (kStore) {
    write_latent(p, row, latent, place_of<K>(p.target, p.slots[row]), scratch);
  } else {
    write_latent(p, row, latent, latent, scratch);
  }
}

template <typename T>
STEMMA_KERNEL STEMMA_TEAM(kTurnThreads, 8) turn_latent_kernel(const LatentQueries p) {
  await_turn();
  pass_turn();
  const auto steps = static_cast<int>(p.rope_dim / kRowStep);  // of a head
  const std::int64_t step = team_y() * kTurnThreads + thread_index();
  const std::int64_t head = step / steps;
  if (head >= p.query_heads) return;
  const std::int64_t row = team_x();
  const std::int64_t i = kRowStep * (step % steps);
  const std::int64_t at = row * p.query_heads + head;
  float values[kRowStep];
  load_values(static_cast<const T*>(p.heads) + at * (p.plain_dim + p.rope_dim) + p.plain_dim + i,
              values);
  turn_pairs(values, p.angles + p.positions[row] * p.rope_dim + i);
  store_values(static_cast<T*>(p.query) + at * (p.rank + p.rope_dim) + p.rank + i, values);
}

// Whole warps, as many as take `width` values in one go, at most kTeamThreadsMax.
int threads_of(std::int64_t width) {
  constexpr std::int64_t kWarpValues = std::int64_t{kRowStep} * kWarpThreads;
  const std::int64_t threads = (width + kWarpValues - 1) / kWarpValues * kWarpThreads;
  return static_cast<int>(threads < kTeamThreadsMax ? threads : kTeamThreadsMax);
}

template <typename Q, typename K, bool kStore>
Status launch_rows(CudaStream& stream, const LatentRows& p) {
  const std::int64_t width = p.rank + p.rope_dim;
  const LaunchShape shape = {.teams_x = p.rows,
                             .teams_y = p.query_rank > 0 ? 2 : 1,
                             .threads = threads_of(width > p.query_rank ? width : p.query_rank),
                             .shared_bytes = kTeamThreadsMax / kWarpThreads * sizeof(float),
                             .early = true};
  return launch("latent_rows", stream, shape, latent_rows_kernel<Q, K, kStore>, p);
}

template <typename Q>
Status launch_stored(CudaStream& stream, const LatentRows& p) {
  if (p.target.k == nullptr) return launch_rows<Q, float, false>(stream, p);
  if (p.target.type == WeightType::kF32) return launch_rows<Q, float, true>(stream, p);
  if (p.target.type == WeightType::kF16) return launch_rows<Q, Float16, true>(stream, p);
  return launch_rows<Q, BFloat16, true>(stream, p);
}

template <typename T>
Status launch_turn(CudaStream& stream, const LatentQueries& p) {
  const std::int64_t steps = p.query_heads * (p.rope_dim / kRowStep);
  const LaunchShape shape = {.teams_x = p.rows,
                             .teams_y = (steps + kTurnThreads - 1) / kTurnThreads,
                             .threads = kTurnThreads,
                             .early = true};
  return launch("turn_latent_queries", stream, shape, turn_latent_kernel<T>, p);
}

Status wrong(const char* what) {
  return Error{ErrorCode::kInvalidArgument, what, 0};
}

bool are_whole(std::int64_t rank, std::int64_t rope_dim, std::int64_t other) {
  return rank > 0 && rope_dim > 0 && other >= 0 && (rank | rope_dim | other) % kRowStep == 0;
}

}  // namespace

Status latent_rows(CudaStream& stream, const LatentRows& p) {
  if (!are_whole(p.rank, p.rope_dim, p.query_rank)) {
    return wrong("latent_rows: ranks and rope_dim must be multiples of 8");
  }
  const TurnTarget& target = p.target;
  if (target.k != nullptr && (target.page_size < 1 || target.page_stride % kRowStep != 0 ||
                              target.token_stride % kRowStep != 0)) {
    return wrong("latent_rows: not a layer that it can store in");
  }
  if (p.query_type == WeightType::kF32) return launch_stored<float>(stream, p);
  if (p.query_type == WeightType::kF16) return launch_stored<Float16>(stream, p);
  return launch_stored<BFloat16>(stream, p);
}

Status turn_latent_queries(CudaStream& stream, const LatentQueries& p) {
  if (!are_whole(p.rank, p.rope_dim, p.plain_dim)) {
    return wrong("turn_latent_queries: extents must be multiples of 8");
  }
  if (p.type == WeightType::kF32) return launch_turn<float>(stream, p);
  if (p.type == WeightType::kF16) return launch_turn<Float16>(stream, p);
  return launch_turn<BFloat16>(stream, p);
}

}  // namespace stemma
