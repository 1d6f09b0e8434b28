// Row kernels. A thread takes eight neighbouring values at a time, so that every access to memory
// has 16 bytes.
#include "cuda/rows_cuda.h"
#include "device/cuda_dialect.h"
#include "device/rounded_codes_cuda.h"
#include "device/row_words.h"

namespace stemma {
namespace {

constexpr float kLog2E = 1.44269504088896340736f;
constexpr int kRowThreadsMax = 512;
constexpr int kWarpsMax = 32;  // of any team here
constexpr std::uint32_t kExponent = 0x7F800000u;

template <typename T>
STEMMA_KERNEL STEMMA_TEAM(kRowThreadsMax, 2) embed_kernel(const EmbedRows p) {
  await_turn();
  pass_turn();
  const std::int64_t row = team_x();
  std::int32_t token = p.tokens[row];
  if (token < 0) token = p.sampled[-(token + 1)];
  const bool known = token >= 0 && token < p.vocab_tokens;  // a row without a token: zeros
  const T* const from = static_cast<const T*>(p.embeddings) + (known ? token : 0) * p.hidden;
  for (std::int64_t i = kRowStep * thread_index(); i < p.hidden; i += kRowStep * team_threads()) {
    float values[kRowStep];
    load_values(from + i, values);
    STEMMA_UNROLLED
    for (float& value : values) value = known ? value * p.scale : 0.0f;
    store_values(p.residual + row * p.hidden + i, values);
  }
}

// Codes become what they are on a CPU, code × scale.
STEMMA_KERNEL STEMMA_TEAM(kRowThreadsMax, 2) rounded_embed_kernel(const EmbedRows p) {
  await_turn();
  pass_turn();
  const std::int64_t row = team_x();
  std::int32_t token = p.tokens[row];
  if (token < 0) token = p.sampled[-(token + 1)];
  const bool known = token >= 0 && token < p.vocab_tokens;  // a row without a token: zeros
  const auto* const strips = static_cast<const std::byte*>(p.embeddings);
  const float scale = known ? scale_of(strips, p.hidden, token) : 0.0f;
  for (std::int64_t i = kRowStep * thread_index(); i < p.hidden; i += kRowStep * team_threads()) {
    float values[kRowStep];
    STEMMA_UNROLLED
    for (int j = 0; j < kRowStep; ++j) {
      values[j] =
          known ? code_at<CodeForm::kInt8>(strips, p.hidden, token, i + j) * scale * p.scale : 0.0f;
    }
    store_values(p.residual + row * p.hidden + i, values);
  }
}

// Writes the branch with its bias to `row` in shared memory, and returns what to multiply it by.
STEMMA_ON_DEVICE float read_branch(const NormRows& p, std::int64_t from, float* row,
                                   float* scratch) {
  float squares = 0;
  for (std::int64_t i = kRowStep * thread_index(); i < p.hidden; i += kRowStep * team_threads()) {
    float values[kRowStep];
    float bias[kRowStep] = {};
    load_values(p.branch + from * p.hidden + i, values);
    if (p.bias != nullptr) load_values(p.bias + i, bias);
    STEMMA_UNROLLED
    for (int j = 0; j < kRowStep; ++j) {
      if (p.bias != nullptr) values[j] += bias[j];
      squares = fused(values[j], values[j], squares);
    }
    store_values(row + i, values);
  }
  if (p.branch_norm == nullptr) return 1.0f;
  const float sum = team_sum(squares, scratch);
  return reciprocal_root(sum / static_cast<float>(p.hidden) + p.epsilon);
}

// values += branch[i] × scale × norm[i] for those from i on.
STEMMA_ON_DEVICE void add_branch(const NormRows& p, const float* branch, std::int64_t i,
                                 float scale, float (&values)[kRowStep]) {
  float own[kRowStep];
  float norm[kRowStep];
  load_values(branch + i, own);
  if (p.branch_norm != nullptr) load_values(p.branch_norm + i, norm);
  STEMMA_UNROLLED
  for (int j = 0; j < kRowStep; ++j) {
    values[j] += own[j] * scale * (p.branch_norm != nullptr ? norm[j] : 1.0f);
  }
}

template <typename T>
STEMMA_KERNEL STEMMA_TEAM(kRowThreadsMax, 2) norm_kernel(const NormRows p) {
  await_turn();
  pass_turn();
  float* const scratch = reinterpret_cast<float*>(shared_memory());
  float* const row = scratch + 2 * kWarpsMax;
  const std::int64_t from = p.chosen != nullptr ? p.chosen[team_x()] : team_x();
  const float branch_scale = p.branch != nullptr ? read_branch(p, from, row, scratch) : 0.0f;
  float squares = 0;
  for (std::int64_t i = kRowStep * thread_index(); i < p.hidden; i += kRowStep * team_threads()) {
    float values[kRowStep];
    load_values(p.residual + from * p.hidden + i, values);
    if (p.branch != nullptr) add_branch(p, row, i, branch_scale, values);
    STEMMA_UNROLLED
    for (const float value : values) squares = fused(value, value, squares);
    store_values(row + i, values);
    if (p.keep && p.branch != nullptr) store_values(p.residual + from * p.hidden + i, values);
  }
  const float sum = team_sum(squares, scratch + kWarpsMax);
  const float scale = reciprocal_root(sum / static_cast<float>(p.hidden) + p.epsilon);
  T* const out = static_cast<T*>(p.out) + team_x() * p.hidden;
  for (std::int64_t i = kRowStep * thread_index(); i < p.hidden; i += kRowStep * team_threads()) {
    float values[kRowStep];
    float norm[kRowStep];
    load_values(row + i, values);
    load_values(p.norm + i, norm);
    STEMMA_UNROLLED
    for (int j = 0; j < kRowStep; ++j) values[j] = values[j] * scale * norm[j];
    store_values(out + i, values);
  }
}

// e^x. Beyond 88 what stands for it is finite still.
STEMMA_ON_DEVICE float exponential(float x) {
  const float limited = x > 88.0f ? 88.0f : x;
  return exp2_fast(limited * kLog2E);
}

// tanh(x), of x up to 20 in magnitude as it is, beyond that of 20, which rounds to ±1.
STEMMA_ON_DEVICE float tanh_of(float x) {
  const float limited = x > 20.0f ? 20.0f : (x < -20.0f ? -20.0f : x);
  return 1.0f - 2.0f / (1.0f + exponential(2.0f * limited));
}

STEMMA_ON_DEVICE float silu(float gate) {
  return gate / (1.0f + exponential(-gate));
}

STEMMA_ON_DEVICE float gelu(float gate) {
  const float limited = gate > 20.0f ? 20.0f : (gate < -20.0f ? -20.0f : gate);
  const float inner =
      0.797884560802865356f * fused(0.044715f, limited * limited * limited, limited);
  return 0.5f * gate * (1.0f + tanh_of(inner));
}

template <typename T, bool kGelu>
STEMMA_KERNEL STEMMA_TEAM(kRowThreadsMax, 2) gate_kernel(const GateRows p) {
  await_turn();
  pass_turn();
  const std::int64_t row = team_x();
  const std::int64_t i = kRowStep * (team_y() * team_threads() + thread_index());
  if (i >= p.width) return;
  const T* const from = static_cast<const T*>(p.gate_up) + row * 2 * p.width + i;
  float gate[kRowStep];
  float up[kRowStep];
  load_values(from, gate);
  load_values(from + p.width, up);
  STEMMA_UNROLLED
  for (int j = 0; j < kRowStep; ++j) {
    if (p.bias != nullptr) {
      gate[j] += p.bias[i + j];
      up[j] += p.bias[p.width + i + j];
    }
    gate[j] = (kGelu ? gelu(gate[j]) : silu(gate[j])) * up[j];
  }
  store_values(static_cast<T*>(p.out) + row * p.width + i, gate);
}

// The better of two candidates: the larger, of equals the first.
struct Top {
  float value;
  std::int32_t place;
};
STEMMA_ON_DEVICE Top better(const Top& a, const Top& b) {
  if (b.place < 0) return a;
  if (a.place < 0) return b;
  if (a.value == b.value) return a.place < b.place ? a : b;
  return a.value > b.value ? a : b;
}

constexpr int kTopThreads = 1024;
constexpr float kMinusInfinity = -__builtin_huge_valf();

STEMMA_ON_DEVICE Top top_of_thread(const TopRows& p, float* logits) {
  Top top = {kMinusInfinity, -1};
  for (std::int64_t i = thread_index(); i < p.columns; i += kTopThreads) {
    float value = logits[i];
    if (p.cap > 0) {
      value = p.cap * tanh_of(value / p.cap);
      logits[i] = value;
    }
    if (value > top.value) top = {value, static_cast<std::int32_t>(i)};
  }
  return top;
}

STEMMA_KERNEL STEMMA_TEAM(kTopThreads, 1) top_kernel(const TopRows p) {
  await_turn();
  pass_turn();
  Top* const tops = reinterpret_cast<Top*>(shared_memory());
  Top top = top_of_thread(p, p.logits + team_x() * p.columns);
  for (int mask = kWarpThreads / 2; mask > 0; mask /= 2) {
    const Top other = {shuffle_xor(top.value, mask), shuffle_xor(top.place, mask)};
    top = better(top, other);
  }
  if (lane_index() == 0) tops[warp_index()] = top;
  team_barrier();
  if (thread_index() != 0) return;
  for (int warp = 1; warp < kTopThreads / kWarpThreads; ++warp) top = better(top, tops[warp]);
  p.tokens[team_x()] = top.place;
}

STEMMA_ON_DEVICE bool has_broken(const float* from) {
  float values[kRowStep];
  load_values(from, values);
  bool broken = false;
  STEMMA_UNROLLED
  for (const float value : values) broken |= (float_as_word(value) & kExponent) == kExponent;
  return broken;
}

STEMMA_KERNEL STEMMA_TEAM(kRowThreadsMax, 2) broken_kernel(const FindBrokenRows p) {
  await_turn();
  pass_turn();
  const std::int64_t row = team_x();
  bool broken = false;
  for (std::int64_t i = kRowStep * thread_index(); i < p.hidden; i += kRowStep * team_threads()) {
    broken |= has_broken(p.residual + row * p.hidden + i);
    broken |= has_broken(p.branch + row * p.hidden + i);
  }
  float* const scratch = reinterpret_cast<float*>(shared_memory());
  const float any = team_max(broken ? 1.0f : 0.0f, scratch);
  if (thread_index() == 0) p.broken[row] = any > 0 ? 1 : 0;
}

// Whole warps, as many as take a row of `width` values in one go, at most kRowThreadsMax.
int threads_of(std::int64_t width) {
  const std::int64_t wanted = (width + kRowStep - 1) / kRowStep;
  const std::int64_t warps = (wanted + kWarpThreads - 1) / kWarpThreads;
  return static_cast<int>(warps * kWarpThreads < kRowThreadsMax ? warps * kWarpThreads
                                                                : kRowThreadsMax);
}

Status wrong(const char* what) {
  return Error{ErrorCode::kInvalidArgument, what, 0};
}

template <typename T>
Status launch_gate(CudaStream& stream, const GateRows& p) {
  const int threads = threads_of(p.width);
  const std::int64_t step = std::int64_t{threads} * kRowStep;
  const LaunchShape shape = {
      .teams_x = p.rows, .teams_y = (p.width + step - 1) / step, .threads = threads, .early = true};
  return launch("gate_rows", stream, shape, p.gelu ? gate_kernel<T, true> : gate_kernel<T, false>,
                p);
}

}  // namespace

Status embed_rows(CudaStream& stream, const EmbedRows& p) {
  if (p.hidden < 1 || p.hidden % kRowStep != 0) return wrong("embed_rows: hidden");
  const LaunchShape shape = {.teams_x = p.rows, .threads = threads_of(p.hidden), .early = true};
  if (p.codes != CodeForm::kNone) {
    if (p.codes != CodeForm::kInt8) return wrong("embed_rows: codes of embeddings have 8 bits");
    return launch("embed_rows", stream, shape, rounded_embed_kernel, p);
  }
  if (p.type == WeightType::kF32)
    return launch("embed_rows", stream, shape, embed_kernel<float>, p);
  if (p.type == WeightType::kBf16) {
    return launch("embed_rows", stream, shape, embed_kernel<BFloat16>, p);
  }
  return launch("embed_rows", stream, shape, embed_kernel<Float16>, p);
}

Status norm_rows(CudaStream& stream, const NormRows& p) {
  if (p.hidden < 1 || p.hidden % kRowStep != 0 || p.hidden > 32768) {
    return wrong("norm_rows: hidden must be a multiple of 8, at most 32768");
  }
  const std::size_t floats = static_cast<std::size_t>(2 * kWarpsMax + p.hidden);
  const LaunchShape shape = {.teams_x = p.rows,
                             .threads = threads_of(p.hidden),
                             .shared_bytes = floats * sizeof(float),
                             .early = true};
  if (p.type == WeightType::kF32) return launch("norm_rows", stream, shape, norm_kernel<float>, p);
  if (p.type == WeightType::kBf16) {
    return launch("norm_rows", stream, shape, norm_kernel<BFloat16>, p);
  }
  return launch("norm_rows", stream, shape, norm_kernel<Float16>, p);
}

Status find_broken_rows(CudaStream& stream, const FindBrokenRows& p) {
  if (p.hidden < 1 || p.hidden % kRowStep != 0) return wrong("find_broken_rows: hidden");
  const LaunchShape shape = {.teams_x = p.rows,
                             .threads = threads_of(p.hidden),
                             .shared_bytes = kWarpsMax * sizeof(float),
                             .early = true};
  return launch("find_broken_rows", stream, shape, broken_kernel, p);
}

Status gate_rows(CudaStream& stream, const GateRows& p) {
  if (p.width < 1 || p.width % kRowStep != 0) return wrong("gate_rows: width");
  if (p.type == WeightType::kF32) return launch_gate<float>(stream, p);
  if (p.type == WeightType::kBf16) return launch_gate<BFloat16>(stream, p);
  return launch_gate<Float16>(stream, p);
}

Status top_rows(CudaStream& stream, const TopRows& p) {
  if (p.columns < 1 || p.columns > INT32_MAX) return wrong("top_rows: columns");
  const LaunchShape shape = {.teams_x = p.rows,
                             .threads = kTopThreads,
                             .shared_bytes = sizeof(Top) * kTopThreads / kWarpThreads,
                             .early = true};
  return launch("top_rows", stream, shape, top_kernel, p);
}

}  // namespace stemma
