// In a pass a thread has one KV head and every so many-th token, so that the threads beside it have
// the labels beside its own; four tokens at once, whose labels are on their way together. Where
// tokens lie is looked up once for all KV heads.
#include "attention/attention_rows_cuda.h"
#include "attention/token_guesses_cuda.h"

namespace stemma {
namespace {

constexpr int kThreads = 256;
constexpr int kTogether = 4;                // tokens of a thread
constexpr int kHeadsMax = 32;               // KV heads of a team
constexpr int kQueryBytesWanted = 1 << 15;  // of shared memory
constexpr float kLog2Of_e = 1.44269504088896340736f;
constexpr float kLowest = -3.402823466e38f;
constexpr float kOneBits = 127 * 8388608.0f;      // of 1.0f
constexpr float kBitsPerOctave = 8388608.0f;      // 2^23
constexpr float kLargestBits = 254 * 8388608.0f;  // of 2^127

// What a pass is for.
enum class Pass { kLargest, kTotals, kGuesses };

// Element type of the labels, query heads that are scored at once.
template <typename T, int kHeads_>
struct Form {
  using Element = T;
  static constexpr int kHeads = kHeads_;
  static constexpr int kPieceChannels = kPieceBytes / static_cast<int>(sizeof(T));
};

// ---- A team's part of a row, and what it has of it in shared memory.

struct Extent {
  std::int32_t heads;      // KV heads of a team, at most
  std::int32_t group;      // query heads of each, filled up to whole steps
  std::int32_t query_row;  // floats from one KV head's queries to the next one's
};
// Queries of neighbouring KV heads lie in different banks.
inline Extent extent_of(const TokenGuessParams& params, std::int32_t step) {
  const AttentionParams& attention = params.attention;
  const std::int32_t group = (attention.query_heads / attention.kv_heads + step - 1) / step * step;
  const std::int32_t query_row = group * params.label_channels + 4;
  std::int32_t heads = kQueryBytesWanted / (query_row * 4);
  heads = heads < kHeadsMax ? heads : kHeadsMax;
  heads = heads < attention.kv_heads ? heads : attention.kv_heads;
  return {heads > 1 ? heads : 1, group, query_row};
}

struct Part {
  ChoosingRow row;
  std::int32_t choice;  // of the wave
  std::int32_t span;
  std::int32_t first_head;  // KV head
  std::int32_t heads;
};
struct Team {
  std::int64_t* offsets;  // of the span's tokens, from the labels on   [kSpanTokens]
  float* sums;            // [heads of a step, threads]
  float* queries;         // scaled   [heads, query_row]
  float* shifts;          // [heads, group]
  float* shares;          // [heads, group]
};
template <typename F>
STEMMA_ON_DEVICE Team team_of(const Extent& extent) {
  Team team;
  team.offsets = reinterpret_cast<std::int64_t*>(shared_memory());
  team.sums = reinterpret_cast<float*>(team.offsets + kSpanTokens);
  team.queries = team.sums + F::kHeads * kThreads;
  team.shifts = team.queries + extent.heads * extent.query_row;
  team.shares = team.shifts + extent.heads * extent.group;
  return team;
}
template <typename F>
std::size_t shared_bytes(const Extent& extent) {
  const std::int64_t floats =
      F::kHeads * kThreads + extent.heads * extent.query_row + 2 * extent.heads * extent.group;
  return static_cast<std::size_t>(kSpanTokens * 8 + floats * 4);
}

STEMMA_ON_DEVICE std::int32_t query_heads_of(const AttentionParams& params) {
  return params.query_heads / params.kv_heads;  // of a KV head
}

STEMMA_ON_DEVICE void find_tokens(const TokenGuessParams& params, const Part& part,
                                  const Team& team) {
  const AttentionParams& attention = params.attention;
  const auto* const table = array_of<std::int32_t>(attention, header_of(attention).table_at);
  const auto size = static_cast<std::uint32_t>(attention.page_size);
  for (int i = thread_index(); i < kSpanTokens; i += kThreads) {
    const int token = part.span * kSpanTokens + i;
    // Those that do not exist are the first one, whose scores nobody takes.
    const auto at = static_cast<std::uint32_t>(token < part.row.tokens ? token : 0);
    const std::int64_t page = table[part.row.table_begin + static_cast<std::int32_t>(at / size)];
    team.offsets[i] = page * params.label_page_stride + at % size * params.label_token_stride;
  }
}

STEMMA_ON_DEVICE void load_queries(const TokenGuessParams& params, const Part& part,
                                   const Extent& extent, const Team& team) {
  const AttentionParams& attention = params.attention;
  const std::int32_t channels = params.label_channels;
  const std::int32_t group = query_heads_of(attention);
  const float scale = attention.scale * kLog2Of_e;
  const std::int32_t each = extent.group * channels;
  for (int i = thread_index(); i < part.heads * each; i += kThreads) {
    const int head = i / each;
    const int query = i % each / channels;
    const int channel = i % channels;
    const std::int32_t kv_head = part.first_head + head;
    float value = 0;
    if (query < group) {
      const std::int64_t row = static_cast<std::int64_t>(part.row.row) * attention.query_heads;
      value = query_element(attention, (row + kv_head * group + query) * attention.head_dim +
                                           params.heavy_channels[kv_head * channels + channel]) *
              scale;
    }
    team.queries[head * extent.query_row + i % each] = value;
  }
}

// Where the first query head of the part has its spans.
STEMMA_ON_DEVICE std::int64_t spans_at(const TokenGuessParams& params, const Part& part,
                                       std::int32_t query_head) {
  return (static_cast<std::int64_t>(part.choice) * params.attention.query_heads + query_head) *
         params.spans_max;
}

// What turns scores into weights, and weights into parts of a guess, from what passes before left
// of all spans. A warp has a query head.
template <Pass kPass>
STEMMA_ON_DEVICE void fold_spans(const TokenGuessParams& params, const Part& part,
                                 const Extent& extent, const Team& team) {
  const std::int32_t group = query_heads_of(params.attention);
  const int spans = (part.row.tokens + kSpanTokens - 1) / kSpanTokens;
  for (int i = warp_index(); i < part.heads * extent.group; i += kThreads / kWarpThreads) {
    const int query = i % extent.group;
    float shift = 0;
    float share = 0;
    if (query < group) {
      const std::int64_t at =
          spans_at(params, part, (part.first_head + i / extent.group) * group + query);
      float largest = kLowest;
      float total = 0;
      for (int span = lane_index(); span < spans; span += kWarpThreads) {
        const float score = params.largest[at + span];
        largest = score > largest ? score : largest;
        if (kPass == Pass::kGuesses) total += params.totals[at + span];
      }
      shift = kOneBits - warp_max(largest) * kBitsPerOctave;
      if (kPass == Pass::kGuesses) share = 1.0f / warp_sum(total);
    }
    if (lane_index() == 0) {
      team.shifts[i] = shift;
      team.shares[i] = share;
    }
  }
}

// ---- Scores and weights.

template <typename T>
STEMMA_ON_DEVICE float label_of(const Words& words, int i) {
  if constexpr (sizeof(T) == 4) {
    return word_as_float(words.w[i]);
  } else {
    return widen(T{static_cast<std::uint16_t>(words.w[i / 2] >> (16 * (i % 2)))});
  }
}

// Of a thread's tokens, for the query heads of a step.
template <typename F>
struct Scores {
  float s[kTogether][F::kHeads];
};
template <typename F>
STEMMA_ON_DEVICE Scores<F> score_tokens(const std::byte* const (&labels)[kTogether],
                                        const float* queries, int channels) {
  using T = typename F::Element;
  Scores<F> scores = {};
  STEMMA_ROLLED
  for (int first = 0; first < channels; first += F::kPieceChannels) {
    Words words[kTogether];
    STEMMA_UNROLLED
    for (int u = 0; u < kTogether; ++u)
      words[u] = load_words(labels[u] + first * static_cast<int>(sizeof(T)));
    STEMMA_UNROLLED
    for (int four = 0; four < F::kPieceChannels; four += 4) {
      STEMMA_UNROLLED
      for (int h = 0; h < F::kHeads; ++h) {
        const Words query = load_words(queries + h * channels + first + four);
        STEMMA_UNROLLED
        for (int i = 0; i < 4; ++i) {
          STEMMA_UNROLLED
          for (int u = 0; u < kTogether; ++u) {
            scores.s[u][h] =
                fused(word_as_float(query.w[i]), label_of<T>(words[u], four + i), scores.s[u][h]);
          }
        }
      }
    }
  }
  return scores;
}

// 2^(score − largest) as straight lines between powers of two; 0 below 2^-126 and for what is no
// number.
STEMMA_ON_DEVICE float weight_of_score(float score, float shift) {
  float bits = fused(score, kBitsPerOctave, shift);
  bits = bits > 0 ? bits : 0.0f;
  bits = bits < kLargestBits ? bits : kLargestBits;
  return word_as_float(static_cast<std::uint32_t>(bits));
}

// The tokens of a span that a thread has: first, first + step, ….
struct Walk {
  int head;  // of the part's
  int first;
  int step;
  int end;
};
STEMMA_ON_DEVICE Walk walk_of(const Part& part) {
  const int step = kThreads / part.heads;
  const int left = part.row.tokens - part.span * kSpanTokens;
  const int end = left < kSpanTokens ? left : kSpanTokens;
  // Some threads are too many, if the heads do not divide them.
  const int place = thread_index() / part.heads;
  return {thread_index() % part.heads, place < step ? place : kSpanTokens, step, end};
}

STEMMA_ON_DEVICE void find_labels(const std::byte* (&labels)[kTogether],
                                  const TokenGuessParams& params, const Part& part,
                                  const Team& team, const Walk& walk, int first) {
  const std::byte* const of_head =
      params.labels + (part.first_head + walk.head) * params.label_head_stride;
  STEMMA_UNROLLED
  for (int u = 0; u < kTogether; ++u) {
    const int token = first + u * walk.step;
    labels[u] = of_head + team.offsets[token < kSpanTokens ? token : 0];
  }
}

// ---- The three passes.

template <Pass kPass>
STEMMA_ON_DEVICE float joined(float a, float b) {
  if (kPass == Pass::kTotals) return a + b;
  return b > a ? b : a;
}

// What all threads of a KV head have, in a tree that the number of heads decides: to the first.
template <typename F, Pass kPass>
STEMMA_ON_DEVICE void join_threads(const Part& part, const Team& team) {
  const int threads = kThreads / part.heads * part.heads;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    team_barrier();
    const int other = thread_index() + half * part.heads;
    if (thread_index() / part.heads >= half || other >= threads) continue;
    STEMMA_UNROLLED
    for (int h = 0; h < F::kHeads; ++h) {
      float& mine = team.sums[h * kThreads + thread_index()];
      mine = joined<kPass>(mine, team.sums[h * kThreads + other]);
    }
  }
  team_barrier();
}

template <typename F, Pass kPass>
STEMMA_ON_DEVICE void gather_span(const TokenGuessParams& params, const Part& part,
                                  const Extent& extent, const Team& team) {
  const Walk walk = walk_of(part);
  const std::int32_t group = query_heads_of(params.attention);
  for (int step = 0; step < extent.group; step += F::kHeads) {
    const float* const queries =
        team.queries + walk.head * extent.query_row + step * params.label_channels;
    float mine[F::kHeads];
    float shifts[F::kHeads];
    STEMMA_UNROLLED
    for (int h = 0; h < F::kHeads; ++h) {
      mine[h] = kPass == Pass::kLargest ? kLowest : 0.0f;
      shifts[h] = kPass == Pass::kLargest ? 0.0f : team.shifts[walk.head * extent.group + step + h];
    }
    for (int first = walk.first; first < walk.end; first += kTogether * walk.step) {
      const std::byte* labels[kTogether];
      find_labels(labels, params, part, team, walk, first);
      const Scores<F> scores = score_tokens<F>(labels, queries, params.label_channels);
      STEMMA_UNROLLED
      for (int u = 0; u < kTogether; ++u) {
        if (first + u * walk.step >= walk.end) continue;
        STEMMA_UNROLLED
        for (int h = 0; h < F::kHeads; ++h) {
          const float score = scores.s[u][h];
          mine[h] = joined<kPass>(
              mine[h], kPass == Pass::kLargest ? score : weight_of_score(score, shifts[h]));
        }
      }
    }
    STEMMA_UNROLLED
    for (int h = 0; h < F::kHeads; ++h) team.sums[h * kThreads + thread_index()] = mine[h];
    join_threads<F, kPass>(part, team);
    for (int i = thread_index(); i < part.heads * F::kHeads; i += kThreads) {
      const int query = step + i / part.heads;
      if (query >= group) continue;
      const std::int32_t head = (part.first_head + i % part.heads) * group + query;
      float* const to = kPass == Pass::kLargest ? params.largest : params.totals;
      to[spans_at(params, part, head) + part.span] =
          team.sums[i / part.heads * kThreads + i % part.heads];
    }
    team_barrier();
  }
}

template <typename F>
STEMMA_ON_DEVICE void guess_span(const TokenGuessParams& params, const Part& part,
                                 const Extent& extent, const Team& team) {
  const Walk walk = walk_of(part);
  const float* const queries = team.queries + walk.head * extent.query_row;
  const float* const shifts = team.shifts + walk.head * extent.group;
  const float* const shares = team.shares + walk.head * extent.group;
  float* const guesses = params.guesses +
                         (static_cast<std::int64_t>(part.choice) * params.attention.kv_heads +
                          part.first_head + walk.head) *
                             params.guesses_max +
                         part.span * kSpanTokens;
  for (int first = walk.first; first < walk.end; first += kTogether * walk.step) {
    const std::byte* labels[kTogether];
    find_labels(labels, params, part, team, walk, first);
    float guess[kTogether] = {};
    for (int step = 0; step < extent.group; step += F::kHeads) {
      const Scores<F> scores =
          score_tokens<F>(labels, queries + step * params.label_channels, params.label_channels);
      STEMMA_UNROLLED
      for (int h = 0; h < F::kHeads; ++h) {
        const float shift = shifts[step + h];
        const float share = shares[step + h];
        STEMMA_UNROLLED
        for (int u = 0; u < kTogether; ++u) {
          guess[u] = fused(weight_of_score(scores.s[u][h], shift), share, guess[u]);
        }
      }
    }
    STEMMA_UNROLLED
    for (int u = 0; u < kTogether; ++u) {
      const int token = first + u * walk.step;
      if (token < walk.end) guesses[token] = guess[u];
    }
  }
}

// Rows take turns first, so that all teams have work however long rows are.
STEMMA_ON_DEVICE Part part_of(const TokenGuessParams& params, const Extent& extent,
                              std::int64_t work, std::int32_t choices, std::int32_t head_parts) {
  Part part;
  part.choice = static_cast<std::int32_t>(work % choices);
  part.row = choosing_row_of(params.attention, part.choice);
  const auto rest = static_cast<std::int32_t>(work / choices);
  part.first_head = rest % head_parts * extent.heads;
  part.span = rest / head_parts;
  const std::int32_t left = params.attention.kv_heads - part.first_head;
  part.heads = left < extent.heads ? left : extent.heads;
  return part;
}

template <typename F, Pass kPass>
STEMMA_KERNEL STEMMA_TEAM(kThreads, kGuessingTeams)
    pass_over_labels(TokenGuessParams params, Extent extent) {
  await_turn();
  const Team team = team_of<F>(extent);
  const std::int32_t choices = choices_of(params.attention);
  const std::int32_t head_parts = (params.attention.kv_heads + extent.heads - 1) / extent.heads;
  const std::int64_t works =
      choices > 0 ? static_cast<std::int64_t>(choices) * head_parts * params.spans_max : 0;
  for (std::int64_t work = team_x(); work < works; work += teams_x()) {
    // The second pass begins where the first one ended, and ends where the third one begins: with
    // labels that are still in L2.
    const std::int64_t place = kPass == Pass::kTotals ? works - 1 - work : work;
    const Part part = part_of(params, extent, place, choices, head_parts);
    if (part.span * kSpanTokens >= part.row.tokens) continue;
    team_barrier();  // what is in shared memory has been read
    find_tokens(params, part, team);
    load_queries(params, part, extent, team);
    if (kPass != Pass::kLargest) fold_spans<kPass>(params, part, extent, team);
    team_barrier();
    if constexpr (kPass == Pass::kGuesses) {
      guess_span<F>(params, part, extent, team);
    } else {
      gather_span<F, kPass>(params, part, extent, team);
    }
  }
}

// ---- Launches.

template <typename F, Pass kPass>
Status launch_pass(CudaStream& stream, const TokenGuessParams& params, std::int64_t teams) {
  const Extent extent = extent_of(params, F::kHeads);
  return launch("token_guesses", stream,
                {.teams_x = teams,
                 .threads = kThreads,
                 .shared_bytes = shared_bytes<F>(extent),
                 .early = true},
                pass_over_labels<F, kPass>, params, extent);
}
template <typename F>
Status guess_in_form(CudaStream& stream, const TokenGuessParams& params, std::int64_t teams) {
  STEMMA_RETURN_IF_ERROR((launch_pass<F, Pass::kLargest>(stream, params, teams)));
  STEMMA_RETURN_IF_ERROR((launch_pass<F, Pass::kTotals>(stream, params, teams)));
  return launch_pass<F, Pass::kGuesses>(stream, params, teams);
}
template <typename T>
Status guess_of_labels(CudaStream& stream, const TokenGuessParams& params, std::int64_t teams) {
  const std::int32_t group = params.attention.query_heads / params.attention.kv_heads;
  if (group == 1) return guess_in_form<Form<T, 1>>(stream, params, teams);
  if (group == 2) return guess_in_form<Form<T, 2>>(stream, params, teams);
  return guess_in_form<Form<T, 4>>(stream, params, teams);
}

}  // namespace

Status guess_tokens(CudaStream& stream, const TokenGuessParams& params, std::int64_t teams) {
  const DType dtype = params.attention.kv_dtype;
  if (is_scaled(dtype) || params.label_channels < 8 || params.label_channels % 8 != 0) {
    return Error{ErrorCode::kUnsupported, "token guesses: labels that there is no kernel for", 0};
  }
  if (dtype == DType::kF32) return guess_of_labels<float>(stream, params, teams);
  if (dtype == DType::kF16) return guess_of_labels<Float16>(stream, params, teams);
  return guess_of_labels<BFloat16>(stream, params, teams);
}

}  // namespace stemma
