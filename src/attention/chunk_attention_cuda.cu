// A warp has 32 pairs (16 at head_dim 256) and all keys of a tile, so that what it reads of a tile
// in shared memory is multiplied with as many rows as registers hold. Tiles of K and V take turns
// in two slots each: while one is computed the next is on its way. Scores become weights in
// registers: a product's result lies as the next one's left operand does.
//
// Sums of a partition are in registers; what they are folded into waits, for most of the time, in
// memory of the device that the team's threads have to themselves, small enough to stay in L2.
#include "attention/attention_products_cuda.h"
#include "attention/attention_rows_cuda.h"
#include "attention/attention_tiles_cuda.h"
#include "attention/chunk_attention_cuda.h"

namespace stemma {
namespace {

constexpr int kChunkBytes = 128;

template <typename T, int kDim, RowKind kKind, int kRows_>
struct Form : TileForm<T, kDim, kKind, kListPairs[kChunkPairs] / (16 * kRows_) * kWarpThreads> {
  static constexpr int kRows = kRows_;  // of 16 pairs, of a warp
  static constexpr int kKeys = kCudaTileKeys / 16;
  static constexpr int kPairs = kListPairs[kChunkPairs];
  static constexpr int kColumns = kDim / 16;  // of 16 columns
  static constexpr int kQueryBytes = kPairs * kDim * 2;
  static constexpr int kSharedBytes = Form::kTilesBytes + kQueryBytes + kChunkBytes;
  // Pieces of a thread in the memory of its team: its sums; of each of its rows the largest score
  // and the sum of the weights.
  static constexpr int kPieceStride = Form::kThreads * kPieceBytes;
  static constexpr int kSumPieces = kRows * 2 * kColumns;
  static constexpr int kTeamBytes = (kSumPieces + kRows) * kPieceStride;
  // That a multiprocessor of 65,536 registers and 228 KB of shared memory should hold.
  static constexpr int kResidents = kDim > 128 ? 1 : (kDim > 64 ? 2 : 3);
};

// An item and a KV head, in shared memory: registers are for sums.
struct Chunk {
  AttentionItem item;
  std::int32_t kv_head;
  std::int32_t positions[8][2];  // of each warp's first pair and of its last; −1: it has none

  STEMMA_ON_DEVICE int tiles() const { return item.end_tile - item.first_tile; }
  STEMMA_ON_DEVICE std::int32_t first_position() const { return positions[warp_index()][0]; }
  STEMMA_ON_DEVICE std::int32_t last_position() const { return positions[warp_index()][1]; }
};
static_assert(sizeof(Chunk) <= kChunkBytes);

template <typename F>
struct Team {
  Tiles<F> tiles;
  std::byte* queries;
  Chunk* chunk;
  std::byte* kept;  // of the device
};
template <typename F>
STEMMA_ON_DEVICE Team<F> team_of(const AttentionParams& params) {
  Team<F> team;
  team.tiles = tiles_of<F>(shared_memory());
  team.queries = shared_memory() + F::kTilesBytes;
  team.chunk = reinterpret_cast<Chunk*>(team.queries + F::kQueryBytes);
  team.kept = params.chunk_sums + team_x() * F::kTeamBytes;
  return team;
}

// By the first lane of each warp; its own fields are there for the warp, all after a barrier.
template <typename F>
STEMMA_ON_DEVICE void load_chunk(Chunk& chunk, const AttentionParams& params, std::int64_t work) {
  if (lane_index() != 0) return;
  const AttentionItem item = array_of<AttentionItem>(
      params, header_of(params).items_at[kChunkPairs])[work / params.kv_heads];
  const auto kv_head = static_cast<std::int32_t>(work % params.kv_heads);
  if (warp_index() == 0) {
    chunk.item = item;
    chunk.kv_head = kv_head;
  }
  const std::int32_t first = warp_index() * 16 * F::kRows;
  std::int32_t last = first + 16 * F::kRows - 1;
  if (last >= item.pairs) last = first < item.pairs ? item.pairs - 1 : last;
  chunk.positions[warp_index()][0] = position_of(params, pair_of(params, item, kv_head, first));
  chunk.positions[warp_index()][1] = position_of(params, pair_of(params, item, kv_head, last));
}

STEMMA_ON_DEVICE KeyPlace look_up(const AttentionParams& params, const Chunk& chunk, int step) {
  if (thread_index() >= kCudaTileKeys || step >= chunk.tiles()) return {-1, 0, 0};
  return place_of(params, chunk.item, chunk.kv_head,
                  (chunk.item.first_tile + step) * kCudaTileKeys + thread_index());
}
template <typename F>
STEMMA_ON_DEVICE void ask(const Team<F>& team, const AttentionParams& params, int step) {
  copy_keys(team.tiles, params, step);
  copy_values(team.tiles, params, step);
  commit_copies();
}

// Where all rows of the warp see all keys of a tile there is nothing to hide.
template <typename F>
STEMMA_ON_DEVICE void hide(const AttentionParams& params, const Chunk& chunk,
                           float (&s)[F::kRows][2 * F::kKeys][4], std::int32_t first_key) {
  const std::int32_t last_key = first_key + kCudaTileKeys - 1;
  const auto farthest = static_cast<std::uint32_t>(chunk.last_position() - first_key);
  if (last_key <= chunk.first_position() && farthest < params.window) return;
  std::int32_t positions[F::kRows][2];
  STEMMA_UNROLLED
  for (int i = 0; i < 2 * F::kRows; ++i) {
    const int pair = warp_index() * 16 * F::kRows + 8 * i + lane_index() / 4;
    positions[i / 2][i % 2] = position_of(params, pair_of(params, chunk.item, chunk.kv_head, pair));
  }
  hide_keys<F>(s, positions, first_key, params.window);
}

// Sums are rebased to the largest scores with the tile's; `taken` is subtracted from its scores.
template <typename F>
STEMMA_ON_DEVICE void rebase_sums(Sums<F>& sums, float factor,
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
    if (any_lane(kept[0] != 1.0f || kept[1] != 1.0f)) keep(sums, r, kept);
  }
}

template <typename F>
STEMMA_ON_DEVICE void add_tile(const AttentionParams& params, const Chunk& chunk,
                               const Team<F>& team, Sums<F>& sums, int step) {
  float s[F::kRows][2 * F::kKeys][4] = {};
  multiply_keys<F>(s, team.queries, warp_index() * 16 * F::kRows, team.tiles.key_tile(step), 0);
  scale_scores<F>(s, team.tiles.key_scales(step));
  cap_scores<F>(params, s);
  hide<F>(params, chunk, s, (chunk.item.first_tile + step) * kCudaTileKeys);
  const float factor = score_factor(params);
  float taken[F::kRows][2];
  rebase_sums<F>(sums, factor, s, taken);
  STEMMA_UNROLLED
  for (int n = 0; n < F::kKeys; ++n) {
    std::uint32_t weights[F::kRows][4];
    STEMMA_UNROLLED
    for (int i = 0; i < 4 * F::kRows; ++i) {
      const float(&pair)[4] = s[i / 4][2 * n + i % 4 / 2];
      const int half = i % 2;
      weights[i / 4][i % 4] = narrow_pair<typename F::Operand>(
          weight_of(pair[2 * half], factor, taken[i / 4][half]),
          weight_of(pair[2 * half + 1], factor, taken[i / 4][half]));
    }
    add_values<F>(sums.o, weights, team.tiles.value_tile(step), 16 * n, 0);
    add_weights<F>(sums.weights, weights);
  }
}

// ---- Partitions.

// Piece i of the thread's is this + i × kPieceStride.
template <typename F>
STEMMA_ON_DEVICE std::byte* kept_pieces(const Team<F>& team) {
  return team.kept + afresh(thread_index()) * kPieceBytes;
}
STEMMA_ON_DEVICE Words as_words(float a, float b, float c, float d) {
  return {{float_as_word(a), float_as_word(b), float_as_word(c), float_as_word(d)}};
}

// What was kept, and this partition, become the sums.
template <typename F>
STEMMA_ON_DEVICE void fold_kept(const Team<F>& team, Sums<F>& sums) {
  const std::byte* const pieces = kept_pieces(team);
  STEMMA_UNROLLED
  for (int r = 0; r < F::kRows; ++r) {
    const Words scalars = load_words(pieces + (F::kSumPieces + r) * F::kPieceStride);
    Fold folding[2];
    STEMMA_UNROLLED
    for (int half = 0; half < 2; ++half) {
      folding[half] = fold_of(word_as_float(scalars.w[2 * half]), sums.largest[r][half]);
      sums.largest[r][half] = folding[half].largest;
      sums.weights[r][2 * half] =
          fold(folding[half], word_as_float(scalars.w[2 * half + 1]), sums.weights[r][2 * half]);
    }
    STEMMA_UNROLLED
    for (int n = 0; n < 2 * F::kColumns; ++n) {
      const Words kept = load_words(pieces + (r * 2 * F::kColumns + n) * F::kPieceStride);
      STEMMA_UNROLLED
      for (int i = 0; i < 4; ++i) {
        sums.o[r][n][i] = fold(folding[i / 2], word_as_float(kept.w[i]), sums.o[r][n][i]);
      }
    }
  }
}
template <typename F>
STEMMA_ON_DEVICE void keep_sums(const Team<F>& team, const Sums<F>& sums) {
  std::byte* const pieces = kept_pieces(team);
  STEMMA_UNROLLED
  for (int r = 0; r < F::kRows; ++r) {
    store_words(
        pieces + (F::kSumPieces + r) * F::kPieceStride,
        as_words(sums.largest[r][0], sums.weights[r][0], sums.largest[r][1], sums.weights[r][2]));
    STEMMA_UNROLLED
    for (int n = 0; n < 2 * F::kColumns; ++n) {
      const float(&o)[4] = sums.o[r][n];
      store_words(pieces + (r * 2 * F::kColumns + n) * F::kPieceStride,
                  as_words(o[0], o[1], o[2], o[3]));
    }
  }
}

// The output of a row that has no other items; else what these are to be merged with.
template <typename F>
STEMMA_ON_DEVICE void end_row(const AttentionParams& params, const Chunk& chunk,
                              const Sums<F>& sums, int r, int half) {
  const int i = warp_index() * 16 * F::kRows + 16 * r + 8 * half + lane_index() / 4;
  const Pair pair = pair_of(params, chunk.item, chunk.kv_head, i);
  if (pair.row < 0) return;
  const AttentionRow& row = row_of(params, pair.row);
  const std::int64_t sum = sum_of(params, chunk.item, row, pair);
  const float weights = sums.weights[r][2 * half];
  const float inverse = inverse_of(weights);
  STEMMA_UNROLLED
  for (int n = 0; n < 2 * F::kColumns; ++n) {
    const int column = 8 * n + lane_index() % 4 * 2;
    if (column >= params.value_dim) continue;
    const float x = sums.o[r][n][2 * half];
    const float y = sums.o[r][n][2 * half + 1];
    if (row.sums == 1) {
      store_outputs(params, pair, column, output_of(x, inverse), output_of(y, inverse));
    } else {
      params.sum_values[sum * params.value_dim + column] = x;
      params.sum_values[sum * params.value_dim + column + 1] = y;
    }
  }
  if (row.sums > 1 && lane_index() % 4 == 0) {
    params.sum_weights[2 * sum] = sums.largest[r][half];
    params.sum_weights[2 * sum + 1] = weights;
  }
}

template <typename F>
STEMMA_ON_DEVICE void end_partition(const AttentionParams& params, const Chunk& chunk,
                                    const Team<F>& team, Sums<F>& sums, int tile) {
  if (!is_first_partition(chunk.item, tile)) fold_kept(team, sums);
  if (tile + 1 < chunk.item.end_tile) {
    keep_sums(team, sums);
  } else {
    STEMMA_UNROLLED
    for (int i = 0; i < 2 * F::kRows; ++i) end_row(params, chunk, sums, i / 2, i % 2);
  }
  clear(sums);
}

template <typename F>
STEMMA_ON_DEVICE void walk(const AttentionParams& params, const Team<F>& team, std::int64_t work) {
  team_barrier();  // the item before has been read
  load_chunk<F>(*team.chunk, params, work);
  team_barrier();
  const Chunk& chunk = *team.chunk;
  RowScales scales = {};
  for (int step = 0; step < 2; ++step) {
    const KeyPlace place = look_up(params, chunk, step);
    set_offset(team.tiles, params, step, place);
    if (step > 0) set_scales(team.tiles, step - 1, scales);
    scales = load_scales<F>(params, place);
  }
  KeyPlace place = look_up(params, chunk, 2);
  load_queries<typename F::Operand, F::kPairs, F::kPieces, F::kThreads>(
      params, chunk.item, chunk.kv_head, team.queries);
  team_barrier();
  ask(team, params, 0);
  Sums<F> sums;
  clear(sums);
  for (int step = 0; step < chunk.tiles(); ++step) {
    wait_copies<0>();
    team_barrier();
    if (step + 1 < chunk.tiles()) ask(team, params, step + 1);
    if (F::kScaled) {
      widen_keys(team.tiles, params, step);
      widen_values(team.tiles, params, step);
      team_barrier();
    }
    set_offset(team.tiles, params, step + 2, place);
    set_scales(team.tiles, step + 1, scales);
    scales = load_scales<F>(params, place);
    place = look_up(params, chunk, step + 3);
    const int tile = chunk.item.first_tile + step;
    if (tile * kCudaTileKeys <= chunk.last_position()) add_tile(params, chunk, team, sums, step);
    if ((tile + 1) % kCudaPartitionTiles == 0 || tile + 1 == chunk.item.end_tile) {
      end_partition(params, chunk, team, sums, tile);
    }
  }
}

// Teams take items in turn, every other time from behind: the items' lengths descend.
template <typename F>
STEMMA_KERNEL STEMMA_TEAM(F::kThreads, F::kResidents) walk_chunks(AttentionParams params) {
  const Team<F> team = team_of<F>(params);
  const std::int64_t total =
      static_cast<std::int64_t>(header_of(params).items[kChunkPairs]) * params.kv_heads;
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
  if (is_scaled(dtype)) return with_dim<BFloat16, RowKind::kCodes>(head_dim, call);
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
    return launch("chunk_attention", stream,
                  {.teams_x = teams, .threads = F::kThreads, .shared_bytes = F::kSharedBytes},
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
