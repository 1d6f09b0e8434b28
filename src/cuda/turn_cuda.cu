// A warp has a head: lane l holds the pairs (2 l, 2 l + 1) + 64 j of both halves of it.
#include "cuda/turn_cuda.h"
#include "device/cuda_dialect.h"

namespace stemma {
namespace {

constexpr int kTeamHeads = 8;
constexpr int kSteps = 2;  // 2 × 64 pairs: head_dim up to 256

// One lane's values of a head.
struct HeadPart {
  float low[kSteps][2];   // of the first half
  float high[kSteps][2];  // of the second
};

STEMMA_ON_DEVICE void read_two(const float* from, float (&to)[2]) {
  const Two<float> two = *reinterpret_cast<const Two<float>*>(from);
  to[0] = two.first;
  to[1] = two.second;
}
template <typename T>
STEMMA_ON_DEVICE void write_two(T* to, const float (&from)[2]) {
  *reinterpret_cast<Two<T>*>(to) = {narrow<T>(from[0]), narrow<T>(from[1])};
}

STEMMA_ON_DEVICE int pair_of(int step) {
  return step * 2 * kWarpThreads + 2 * lane_index();
}

STEMMA_ON_DEVICE HeadPart read_head(const float* head, const float* bias, int half) {
  HeadPart part = {};
  STEMMA_UNROLLED
  for (int step = 0; step < kSteps; ++step) {
    const int i = pair_of(step);
    if (i >= half) continue;
    read_two(head + i, part.low[step]);
    read_two(head + half + i, part.high[step]);
    if (bias == nullptr) continue;
    STEMMA_UNROLLED
    for (int j = 0; j < 2; ++j) {
      part.low[step][j] += bias[i + j];
      part.high[step][j] += bias[half + i + j];
    }
  }
  return part;
}

STEMMA_ON_DEVICE void normalise_head(HeadPart& part, const float* norm, int half, float epsilon) {
  float squares = 0;
  STEMMA_UNROLLED
  for (int step = 0; step < kSteps; ++step) {
    STEMMA_UNROLLED
    for (int j = 0; j < 2; ++j) {
      squares = fused(part.low[step][j], part.low[step][j], squares);
      squares = fused(part.high[step][j], part.high[step][j], squares);
    }
  }
  const float mean = warp_sum(squares) / static_cast<float>(2 * half);
  const float scale = reciprocal_root(mean + epsilon);
  STEMMA_UNROLLED
  for (int step = 0; step < kSteps; ++step) {
    const int i = pair_of(step);
    if (i >= half) continue;
    STEMMA_UNROLLED
    for (int j = 0; j < 2; ++j) {
      part.low[step][j] *= scale * norm[i + j];
      part.high[step][j] *= scale * norm[half + i + j];
    }
  }
}

STEMMA_ON_DEVICE void rotate_head(HeadPart& part, const float* angles, int half) {
  STEMMA_UNROLLED
  for (int step = 0; step < kSteps; ++step) {
    const int i = pair_of(step);
    if (i >= half) continue;
    const Words words = load_words(angles + 2 * i);  // cosine, sine of two pairs
    STEMMA_UNROLLED
    for (int j = 0; j < 2; ++j) {
      const float cosine = word_as_float(words.w[2 * j]);
      const float sine = word_as_float(words.w[2 * j + 1]);
      const float low = part.low[step][j];
      const float high = part.high[step][j];
      part.low[step][j] = fused(-high, sine, low * cosine);
      part.high[step][j] = fused(low, sine, high * cosine);
    }
  }
}

template <typename T>
STEMMA_ON_DEVICE void write_head(T* to, const HeadPart& part, int half) {
  STEMMA_UNROLLED
  for (int step = 0; step < kSteps; ++step) {
    const int i = pair_of(step);
    if (i >= half) continue;
    write_two(to + i, part.low[step]);
    write_two(to + half + i, part.high[step]);
  }
}

// Where head `head` of the row's k or v goes, from `first` on.
template <typename T>
STEMMA_ON_DEVICE T* place_of(const TurnTarget& target, void* first, std::int64_t head_dim,
                             std::int32_t slot, int head) {
  return static_cast<T*>(first) + slot / target.page_size * target.page_stride +
         slot % target.page_size * target.token_stride + head * head_dim;
}

template <typename K, bool kStore>
STEMMA_ON_DEVICE void keep_head(const TurnRows& p, std::int64_t row, int kv_head, bool is_key,
                                float* in_place, const HeadPart& part) {
  const int half = static_cast<int>(p.head_dim) / 2;
  if (!kStore) {
    write_head(in_place, part, half);
    return;
  }
  const std::int32_t slot = p.slots[row];
  if (slot < 0 || slot >= p.target.slots) return;
  write_head(place_of<K>(p.target, is_key ? p.target.k : p.target.v, p.head_dim, slot, kv_head),
             part, half);
}

template <typename Q, typename K, bool kStore>
STEMMA_KERNEL STEMMA_TEAM(kTeamHeads* kWarpThreads, 4) turn_kernel(const TurnRows p) {
  await_turn();
  pass_turn();
  const int query_heads = static_cast<int>(p.query_heads);
  const int kv_heads = static_cast<int>(p.kv_heads);
  const int heads = query_heads + 2 * kv_heads;
  const int head = static_cast<int>(team_y()) * kTeamHeads + warp_index();
  if (head >= heads) return;
  const std::int64_t row = team_x();
  const int half = static_cast<int>(p.head_dim) / 2;
  float* const from = p.qkv + (row * heads + head) * p.head_dim;
  HeadPart part = read_head(from, p.bias != nullptr ? p.bias + head * p.head_dim : nullptr, half);
  const bool is_query = head < query_heads;
  const bool is_key = !is_query && head < query_heads + kv_heads;
  if (is_query || is_key) {
    const float* const norm = is_query ? p.query_norm : p.key_norm;
    if (norm != nullptr) normalise_head(part, norm, half, p.epsilon);
    rotate_head(part, p.angles + p.positions[row] * p.head_dim, half);
  }
  if (is_query) {
    write_head(static_cast<Q*>(p.query) + (row * query_heads + head) * p.head_dim, part, half);
    return;
  }
  keep_head<K, kStore>(p, row, head - query_heads - (is_key ? 0 : kv_heads), is_key, from, part);
}

template <typename Q, typename K, bool kStore>
Status launch_turn(CudaStream& stream, const TurnRows& p) {
  const std::int64_t heads = p.query_heads + 2 * p.kv_heads;
  const LaunchShape shape = {.teams_x = p.rows,
                             .teams_y = (heads + kTeamHeads - 1) / kTeamHeads,
                             .threads = kTeamHeads * kWarpThreads,
                             .early = true};
  return launch("turn_rows", stream, shape, turn_kernel<Q, K, kStore>, p);
}

template <typename Q>
Status launch_stored(CudaStream& stream, const TurnRows& p) {
  if (p.target.k == nullptr) return launch_turn<Q, float, false>(stream, p);
  if (p.target.type == WeightType::kF32) return launch_turn<Q, float, true>(stream, p);
  if (p.target.type == WeightType::kF16) return launch_turn<Q, Float16, true>(stream, p);
  return launch_turn<Q, BFloat16, true>(stream, p);
}

Status check(const TurnRows& p) {
  if (p.head_dim < 8 || p.head_dim % 8 != 0 || p.head_dim > 4 * kWarpThreads * kSteps) {
    return Error{ErrorCode::kInvalidArgument,
                 "turn_rows: head_dim must be a multiple of 8, at most 256", 0};
  }
  const TurnTarget& target = p.target;
  if (target.k != nullptr && (target.v == nullptr || target.page_size < 1 ||
                              target.page_stride % 2 != 0 || target.token_stride % 2 != 0)) {
    return Error{ErrorCode::kInvalidArgument, "turn_rows: not a layer that it can store in", 0};
  }
  return {};
}

}  // namespace

Status turn_rows(CudaStream& stream, const TurnRows& p) {
  const Status checked = check(p);
  if (!checked.ok()) return checked;
  if (p.query_type == WeightType::kF32) return launch_stored<float>(stream, p);
  if (p.query_type == WeightType::kF16) return launch_stored<Float16>(stream, p);
  return launch_stored<BFloat16>(stream, p);
}

}  // namespace stemma
