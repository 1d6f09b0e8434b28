// A warp has 32 pairs (16 at head_dim 256) and all keys of a tile, so that what it reads of a tile
// in shared memory is multiplied with as many rows as registers hold. Tiles of K and V take turns
// in two slots each: while one is computed the next is on its way. Scores become weights in
// registers: a product's result lies as the next one's left operand does.
//
// Sums of a partition are in registers; what they are folded into waits, for most of the time, in
// memory of the device that the team's threads have to themselves, small enough to stay in L2.
#include "attention/attention_codes_cuda.h"
#include "attention/attention_products_cuda.h"
#include "attention/attention_rows_cuda.h"
#include "attention/attention_tiles_cuda.h"
#include "attention/chunk_attention_cuda.h"
#include "attention/chunk_walk_cuda.h"
#include "attention/code_tiles_cuda.h"

namespace stemma {
namespace {

template <typename T, int kDim, RowKind kKind, int kRows_>
struct Form : TileForm<T, kDim, kKind, kListPairs[kChunkPairs] / (16 * kRows_) * kWarpThreads> {
  static constexpr int kRows = kRows_;  // of 16 pairs, of a warp
  static constexpr int kKeys = kCudaTileKeys / 16;
  static constexpr int kPairs = kListPairs[kChunkPairs];
  static constexpr int kColumns = kDim / 16;  // of 16 columns
  static constexpr int kQueryBytes = kPairs * kDim * 2;
  static constexpr int kPagesBytes = kCudaTileKeys * 4;
  static constexpr int kPowerBytes = Form::kScaled ? kPairs * 4 : 0;
  static constexpr int kPartBytes = Form::kScaled ? kKeys * Form::kThreads * kPieceBytes : 0;
  static constexpr int kSharedBytes =
      Form::kTilesBytes + kQueryBytes + kChunkBytes + kPagesBytes + kPowerBytes + kPartBytes;
  // Pieces of a thread in the memory of its team: its sums; of each of its rows the largest score
  // and the sum of the weights.
  static constexpr int kPieceStride = Form::kThreads * kPieceBytes;
  static constexpr int kSumPieces = kRows * 2 * kColumns;
  static constexpr int kTeamBytes = (kSumPieces + kRows) * kPieceStride;
  // That a multiprocessor of 65,536 registers and 228 KB of shared memory should hold.
  static constexpr int kResidents = kDim > 128 ? 1 : (kDim > 64 || Form::kScaled ? 2 : 3);
};

template <typename F>
struct Team {
  Tiles<F> tiles;
  std::byte* queries;
  Chunk* chunk;
  std::int32_t* pages;  // of the keys of a tile
  float* powers;        // of codes: what undoes their queries' powers of two [pairs]
  std::byte* parts;     // of codes: of the sums of weights, by 16 keys of a tile and thread
  std::byte* kept;      // of the device
};
template <typename F>
STEMMA_ON_DEVICE Team<F> team_of(const AttentionParams& params) {
  Team<F> team;
  team.tiles = tiles_of<F>(shared_memory());
  team.queries = shared_memory() + F::kTilesBytes;
  team.chunk = reinterpret_cast<Chunk*>(team.queries + F::kQueryBytes);
  team.pages = reinterpret_cast<std::int32_t*>(team.queries + F::kQueryBytes + kChunkBytes);
  team.powers = reinterpret_cast<float*>(team.pages + kCudaTileKeys);
  team.parts = reinterpret_cast<std::byte*>(team.powers + (F::kScaled ? F::kPairs : 0));
  team.kept = params.chunk_sums + team_x() * F::kTeamBytes;
  return team;
}

template <typename F>
STEMMA_ON_DEVICE void ask(const Team<F>& team, const AttentionParams& params, int step) {
  copy_keys(team.tiles, params, step);
  copy_values(team.tiles, params, step);
  commit_copies();
}

// Looks up the key of tile `step` that the thread looks after: its place within its page; below 0:
// there is no such key. The number of the page is on its way to shared memory: in a register, of
// which there are too few, it would be put by, and waited for, at once.
template <typename F>
STEMMA_ON_DEVICE std::int32_t look_up_later(const AttentionParams& params, const Team<F>& team,
                                            int step) {
  const Chunk& chunk = *team.chunk;
  if (thread_index() >= kCudaTileKeys || step >= chunk.tiles()) return -1;
  const std::int32_t key = (chunk.item.first_tile + step) * kCudaTileKeys + thread_index();
  if (key >= chunk.item.keys) return -1;
  const KeyEntry entry = entry_of(params, chunk.item, key);
  copy_word_later(team.pages + thread_index(), table_of(params) + entry.index);
  return entry.within;
}
// When it is there.
template <typename F>
STEMMA_ON_DEVICE KeyPlace looked_up(const Team<F>& team, std::int32_t within) {
  if (within < 0) return {-1, 0, 0};
  return {team.pages[thread_index()], within, team.chunk->kv_head};
}

// The parts of 16 keys of a tile of the sums of weights of the lane's rows, where registers are
// short: four floats.
template <typename F>
STEMMA_ON_DEVICE std::byte* parts_of(const Team<F>& team, int sixteen) {
  return team.parts + (sixteen * F::kThreads + afresh(thread_index())) * kPieceBytes;
}
template <typename F>
STEMMA_ON_DEVICE void clear_parts(const Team<F>& team) {
  STEMMA_UNROLLED
  for (int n = 0; n < F::kKeys; ++n) store_words(parts_of(team, n), {});
}
template <typename F>
STEMMA_ON_DEVICE void keep_parts(const Team<F>& team, int r, const float (&kept)[2]) {
  STEMMA_UNROLLED
  for (int n = 0; n < F::kKeys; ++n) {
    auto* const two = reinterpret_cast<float*>(parts_of(team, n)) + 2 * r;
    const Two<float> parts = load_two(two);
    store_two(two, {kept_part(parts.first, kept[0]), kept_part(parts.second, kept[1])});
  }
}
// The weights of 16 keys of the lane's rows, four of each half of one.
template <typename F>
STEMMA_ON_DEVICE void add_to_parts(const Team<F>& team, int step, int sixteen,
                                   const float (&weights)[2 * F::kRows][4]) {
  const float* const inverses =
      team.tiles.value_inverses(step) + 16 * sixteen + lane_index() % 4 * 2;
  const Two<float> near = load_two(inverses);
  const Two<float> far = load_two(inverses + 8);
  std::byte* const place = parts_of(team, sixteen);
  Words parts = load_words(place);
  STEMMA_UNROLLED
  for (int i = 0; i < 2 * F::kRows; ++i) {
    parts.w[i] = float_as_word(word_as_float(parts.w[i]) + sum_of_four(weights[i], near, far));
  }
  store_words(place, parts);
}
// At the end of a partition.
template <typename F>
STEMMA_ON_DEVICE void gather_parts(const Team<F>& team, Sums<F>& sums) {
  STEMMA_UNROLLED
  for (int n = 0; n < F::kKeys; ++n) {
    const Words parts = load_words(parts_of(team, n));
    STEMMA_UNROLLED
    for (int i = 0; i < 2 * F::kRows; ++i) {
      const float part = sum_of_parts(word_as_float(parts.w[i]));
      float& total = sums.weights[i / 2][i % 2 * 2];
      total = n == 0 ? part : total + part;
    }
  }
  clear_parts(team);
}

// Sums are rebased to the largest scores with the tile's; `taken` is subtracted from its scores.
template <typename F>
STEMMA_ON_DEVICE void rebase_sums(const Team<F>& team, Sums<F>& sums, float factor,
                                  const float (&s)[F::kRows][2 * F::kKeys][4],
                                  float (&taken)[F::kRows][2]) {
  float largest[F::kRows][2];
  largest_scores<F>(largest, s);
  STEMMA_UNROLLED
  for (int r = 0; r < F::kRows; ++r) {
    float kept[2];
    STEMMA_UNROLLED
    for (int half = 0; half < 2; ++half) {
      taken[r][half] = raise(sums, r, half, largest[r][half] * factor, kept[half]);
    }
    // The largest scores of most tiles are below those before.
    if (!any_lane(kept[0] != 1.0f || kept[1] != 1.0f)) continue;
    if constexpr (F::kScaled) {
      keep_values(sums, r, kept);
      keep_parts(team, r, kept);
    } else {
      keep(sums, r, kept);
    }
  }
}

// Products of the warp's queries and a tile's keys, as scores that nothing is hidden of.
template <typename F>
STEMMA_ON_DEVICE void multiply(const AttentionParams& params, const Team<F>& team, int step,
                               float (&s)[F::kRows][2 * F::kKeys][4]) {
  const int first = warp_index() * 16 * F::kRows;
  multiply_keys<F>(s, team.queries, first, team.tiles.key_tile(step), 0);
  if constexpr (F::kScaled) {
    code_scores<F>(params, s, team.tiles, step, 0, team.powers + first);
  } else {
    cap_scores<F>(params, s);
  }
}

template <typename F>
STEMMA_ON_DEVICE void add_tile(const AttentionParams& params, const Chunk& chunk,
                               const Team<F>& team, Sums<F>& sums, int step) {
  float s[F::kRows][2 * F::kKeys][4] = {};
  multiply(params, team, step, s);
  hide<F>(params, chunk, s, (chunk.item.first_tile + step) * kCudaTileKeys);
  const float factor = F::kScaled ? 1.0f : score_factor(params);
  float taken[F::kRows][2];
  rebase_sums<F>(team, sums, factor, s, taken);
  STEMMA_UNROLLED
  for (int n = 0; n < F::kKeys; ++n) {
    std::uint32_t weights[F::kRows][4];
    float wide[2 * F::kRows][4];
    STEMMA_UNROLLED
    for (int i = 0; i < 4 * F::kRows; ++i) {
      const float(&pair)[4] = s[i / 4][2 * n + i % 4 / 2];
      const int half = i % 2;
      float(&two)[4] = wide[i / 4 * 2 + half];
      STEMMA_UNROLLED
      for (int j = 0; j < 2; ++j) {
        two[i % 4 / 2 * 2 + j] = weight_of(pair[2 * half + j], factor, taken[i / 4][half]);
      }
      weights[i / 4][i % 4] =
          narrow_pair<typename F::Operand>(two[i % 4 / 2 * 2], two[i % 4 / 2 * 2 + 1]);
    }
    add_values<F>(sums.o, weights, team.tiles.value_tile(step), 16 * n, 0);
    if constexpr (F::kScaled) {
      add_to_parts(team, step, n, wide);
    } else {
      add_weights<F>(sums.weights, weights);
    }
  }
}

// ---- Partitions.

template <typename F>
STEMMA_ON_DEVICE void end_partition(const AttentionParams& params, const Chunk& chunk,
                                    const Team<F>& team, Sums<F>& sums, int tile) {
  if constexpr (F::kScaled) gather_parts(team, sums);
  if (!is_first_partition(chunk.item, tile)) fold_kept(team.kept, sums);
  if (tile + 1 < chunk.item.end_tile) {
    keep_sums(team.kept, sums);
  } else {
    STEMMA_UNROLLED
    for (int i = 0; i < 2 * F::kRows; ++i) end_row(params, chunk, sums, i / 2, i % 2);
  }
  clear(sums);
}

template <typename F>
STEMMA_ON_DEVICE void load_chunk_queries(const AttentionParams& params, const Team<F>& team) {
  const Chunk& chunk = *team.chunk;
  if constexpr (F::kScaled) {
    load_code_queries<F::kPairs, F::kPieces, F::kThreads, /*kReordered=*/true>(
        params, chunk.item, chunk.kv_head, team.queries, team.powers);
  } else {
    load_queries<typename F::Operand, F::kPairs, F::kPieces, F::kThreads>(
        params, chunk.item, chunk.kv_head, team.queries);
  }
}

template <typename F>
STEMMA_ON_DEVICE void walk(const AttentionParams& params, const Team<F>& team, std::int64_t work) {
  team_barrier();  // the item before has been read
  load_chunk<F>(*team.chunk, params, work);
  team_barrier();
  const Chunk& chunk = *team.chunk;
  std::int64_t scales = -1;
  for (int step = 0; step < 2; ++step) {
    const KeyPlace place = look_up(params, chunk, step);
    set_offset(team.tiles, params, step, place);
    if (step > 0) copy_scales(team.tiles, params, step - 1, scales);
    scales = scale_at(params, place);
  }
  std::int32_t within = look_up_later(params, team, 2);
  load_chunk_queries(params, team);
  team_barrier();
  ask(team, params, 0);
  Sums<F> sums;
  clear(sums);
  if constexpr (F::kScaled) clear_parts(team);
  for (int step = 0; step < chunk.tiles(); ++step) {
    wait_copies<0>();
    settle_scales(team.tiles, step);
    team_barrier();
    if (step + 1 < chunk.tiles()) ask(team, params, step + 1);
    if (F::kWidened) {
      widen_keys(team.tiles, params, step);
      widen_values(team.tiles, params, step);
      team_barrier();
    }
    const KeyPlace place = looked_up(team, within);
    set_offset(team.tiles, params, step + 2, place);
    copy_scales(team.tiles, params, step + 1, scales);
    scales = scale_at(params, place);
    within = look_up_later(params, team, step + 3);
    commit_copies();
    const int tile = chunk.item.first_tile + step;
    if (tile * kCudaTileKeys <= chunk.last_position()) {
      add_tile(params, chunk, team, sums, step);
    }
    if ((tile + 1) % kCudaPartitionTiles == 0 || tile + 1 == chunk.item.end_tile) {
      end_partition(params, chunk, team, sums, tile);
    }
  }
}

// Teams take items in turn, every other time from behind: the items' lengths descend.
template <typename F>
STEMMA_KERNEL STEMMA_TEAM(F::kThreads, F::kResidents) walk_chunks(AttentionParams params) {
  await_turn();
  const Team<F> team = team_of<F>(params);
  const std::int64_t total = chunks_of(params);
  for (std::int64_t round = 0;; ++round) {
    const std::int64_t turn = round % 2 == 0 ? team_x() : teams_x() - 1 - team_x();
    const std::int64_t work = round * teams_x() + turn;
    if (work >= total) return;
    walk<F>(params, team, work);
  }
}

// Calls with a value of the form for rows of that type and extent.
template <typename T, RowKind kKind, typename Call>
auto with_dim(std::int64_t head_dim, const Call& call) {
  if (head_dim <= 64) return call(Form<T, 64, kKind, 2>());
  if (head_dim <= 128) return call(Form<T, 128, kKind, 2>());
  return call(Form<T, 256, kKind, 1>());
}
template <typename Call>
auto with_form(DType dtype, std::int64_t head_dim, const Call& call) {
  if (is_scaled(dtype)) return with_dim<Float16, RowKind::kWideCodes>(head_dim, call);
  if (dtype == DType::kF16) return with_dim<Float16, RowKind::kPlain>(head_dim, call);
  return with_dim<BFloat16, RowKind::kPlain>(head_dim, call);
}

}  // namespace

Status chunk_attention(CudaStream& stream, const AttentionParams& params, std::int64_t teams) {
  if (!has_tensor_kernel(params.kv_dtype, params.head_dim, params.value_dim) ||
      params.head_dim > kPlainDimMax) {
    return Error{ErrorCode::kUnsupported, "chunk attention: rows that there is no kernel for", 0};
  }
  return with_form(params.kv_dtype, params.head_dim, [&](auto form) {
    using F = decltype(form);
    return launch(
        "chunk_attention", stream,
        {.teams_x = teams, .threads = F::kThreads, .shared_bytes = F::kSharedBytes, .early = true},
        walk_chunks<F>, params);
  });
}

std::int64_t chunk_attention_residents(DType dtype, std::int64_t head_dim,
                                       std::int64_t team_shared_bytes_max) {
  if (head_dim > kPlainDimMax) return 0;
  return with_form(dtype, head_dim, [&](auto form) {
    using F = decltype(form);
    return residents(F::kSharedBytes, F::kResidents, team_shared_bytes_max);
  });
}

std::int64_t chunk_attention_team_bytes(std::int64_t head_dim) {
  return with_form(DType::kBF16, head_dim, [](auto form) {
    using F = decltype(form);
    return std::int64_t{F::kTeamBytes};
  });
}

}  // namespace stemma
