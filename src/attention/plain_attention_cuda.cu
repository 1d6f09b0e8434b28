// A warp has four pairs. For scores a lane has two keys of a tile, for outputs every 32nd pair of
// columns, so that every sum is a chain in one lane or one tree over the warp: a row's bits depend
// on its keys alone.
//
// There is one tile of K and one of V: the next of K is on its way while V is summed, that of V
// while scores are computed. Latent rows too long for two have one, and wait for it.
#include "attention/attention_products_cuda.h"
#include "attention/attention_rows_cuda.h"
#include "attention/attention_tiles_cuda.h"
#include "attention/plain_attention_cuda.h"

namespace stemma {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarpThreads;
constexpr int kPairs = kListPairs[kSinglePairs];
constexpr int kWarpPairs = kPairs / kWarps;
constexpr int kLaneKeys = kCudaTileKeys / kWarpThreads;

template <int kDim, RowKind kKind = RowKind::kPlain>
struct Form {
  static constexpr bool kChosen = kKind == RowKind::kChosen;
  static constexpr bool kLatent = kKind == RowKind::kLatent;
  static constexpr int kPieces = kDim / 4;
  // Pairs of columns, of a lane.
  static constexpr int kColumns = (kLatent ? int{kLatentValueDimMax} : kDim) / 64;
  static constexpr int kTileBytes = kCudaTileKeys * kDim * 4;
  static constexpr int kQueryBytes = kPairs * kDim * 4;
  static constexpr int kWeightBytes = kPairs * kCudaTileKeys * 4;
  static constexpr int kSharedBytes =
      (kLatent ? 1 : 2) * kTileBytes + kQueryBytes + kWeightBytes + 2 * kCudaTileKeys * 8;
  static constexpr int kResidents = kDim > 128 ? 1 : (kDim > 64 ? 2 : 4);
};

struct Team {
  std::byte* keys;
  std::byte* values;      // of latent rows the same
  std::byte* queries;     // [pairs, dim]
  float* weights;         // [pairs, tile keys]
  std::int64_t* offsets;  // [2, tile keys]
};
template <typename F>
STEMMA_ON_DEVICE Team team_of(std::byte* shared) {
  Team team;
  team.keys = shared;
  team.values = F::kLatent ? team.keys : team.keys + F::kTileBytes;
  team.queries = team.values + F::kTileBytes;
  team.weights = reinterpret_cast<float*>(team.queries + F::kQueryBytes);
  team.offsets = reinterpret_cast<std::int64_t*>(team.queries + F::kQueryBytes + F::kWeightBytes);
  return team;
}

struct Work {
  AttentionItem item;
  std::int32_t kv_head;
};

template <typename F>
STEMMA_ON_DEVICE void set_offset(const Team& team, const AttentionParams& params, const Work& work,
                                 int tile) {
  if (thread_index() >= kCudaTileKeys) return;
  const std::int32_t key = tile * kCudaTileKeys + thread_index();
  const KeyPlace place = F::kChosen ? chosen_place_of(params, work.item, work.kv_head, key)
                                    : place_of(params, work.item, work.kv_head, key);
  team.offsets[tile % 2 * kCudaTileKeys + thread_index()] = offset_of(params, place);
}
template <typename F>
STEMMA_ON_DEVICE void copy_rows(std::byte* tile_bytes, const std::byte* rows, const Team& team,
                                const AttentionParams& params, int tile) {
  const std::int64_t* const offsets = team.offsets + tile % 2 * kCudaTileKeys;
  for (int i = thread_index(); i < kCudaTileKeys * F::kPieces; i += kThreads) {
    const int row = i / F::kPieces;
    const int piece = i % F::kPieces;
    const bool wanted = offsets[row] >= 0 && piece < params.head_dim / 4;
    copy_words_later(tile_bytes + piece_at<F::kPieces>(row, piece),
                     wanted ? rows + offsets[row] + piece * kPieceBytes : rows, wanted);
  }
  commit_copies();
}

template <typename F>
STEMMA_ON_DEVICE void load_queries(const Team& team, const AttentionParams& params,
                                   const Work& work) {
  constexpr int kDim = F::kPieces * 4;
  auto* const queries = reinterpret_cast<float*>(team.queries);
  for (int i = thread_index(); i < kPairs * kDim; i += kThreads) {
    const Pair pair = pair_of(params, work.item, work.kv_head, i / kDim);
    const int column = i % kDim;
    const bool wanted = pair.row >= 0 && column < params.head_dim;
    queries[i] =
        wanted
            ? query_element(params,
                            (static_cast<std::int64_t>(pair.row) * params.query_heads + pair.head) *
                                    params.head_dim +
                                column)
            : 0.0f;
  }
}

STEMMA_ON_DEVICE float dot(const Words& a, const Words& b, float sum) {
  STEMMA_UNROLLED
  for (int i = 0; i < 4; ++i) sum = fused(word_as_float(a.w[i]), word_as_float(b.w[i]), sum);
  return sum;
}

// Of the warp's pairs and the lane's keys.
template <typename F>
STEMMA_ON_DEVICE void multiply_rows(float (&s)[kWarpPairs][kLaneKeys], const Team& team) {
  for (int piece = 0; piece < F::kPieces; ++piece) {
    Words keys[kLaneKeys];
    STEMMA_UNROLLED
    for (int i = 0; i < kLaneKeys; ++i) {
      keys[i] =
          load_words(team.keys + piece_at<F::kPieces>(lane_index() + kWarpThreads * i, piece));
    }
    STEMMA_UNROLLED
    for (int p = 0; p < kWarpPairs; ++p) {
      const Words query = load_words(
          team.queries + ((warp_index() * kWarpPairs + p) * F::kPieces + piece) * kPieceBytes);
      STEMMA_UNROLLED
      for (int i = 0; i < kLaneKeys; ++i) s[p][i] = dot(query, keys[i], s[p][i]);
    }
  }
}

// Over the partition so far; columns 64 n + 2 lane and the next.
template <typename F>
struct PairSums {
  float o[F::kColumns][2];
  float weights;
  float largest;
};
template <typename F>
STEMMA_ON_DEVICE void clear(PairSums<F>& sums) {
  STEMMA_UNROLLED
  for (int n = 0; n < F::kColumns; ++n) sums.o[n][0] = sums.o[n][1] = 0;
  sums.weights = 0;
  sums.largest = minus_infinity();
}

// Scores of a pair become weights in shared memory; its sums are rebased.
template <typename F>
STEMMA_ON_DEVICE void weigh(const AttentionParams& params, float* weights, PairSums<F>& sums,
                            float (&s)[kLaneKeys], std::int32_t position, int tile) {
  const float factor = score_factor(params);
  float most = minus_infinity();
  STEMMA_UNROLLED
  for (int i = 0; i < kLaneKeys; ++i) {
    if (params.score_cap > 0) s[i] = capped(params, s[i]);
    const std::int32_t key = tile * kCudaTileKeys + lane_index() + kWarpThreads * i;
    if (static_cast<std::uint32_t>(position - key) >= params.window) s[i] = minus_infinity();
    most = larger_of(most, s[i]);
  }
  const float now = larger_of(sums.largest, warp_max(most) * factor);
  const Rebase base = rebase(sums.largest, now);
  sums.largest = now;
  float total = 0;
  STEMMA_UNROLLED
  for (int i = 0; i < kLaneKeys; ++i) {
    const float weight = weight_of(s[i], factor, base.taken);
    weights[lane_index() + kWarpThreads * i] = weight;
    total += weight;
  }
  sums.weights = fused(sums.weights, base.kept, warp_sum(total));
  STEMMA_UNROLLED
  for (int n = 0; n < F::kColumns; ++n) {
    sums.o[n][0] *= base.kept;
    sums.o[n][1] *= base.kept;
  }
}

template <typename F>
STEMMA_ON_DEVICE void add_rows(const Team& team, PairSums<F> (&sums)[kWarpPairs]) {
  const float* const weights = team.weights + warp_index() * kWarpPairs * kCudaTileKeys;
  for (int key = 0; key < kCudaTileKeys; ++key) {
    STEMMA_UNROLLED
    for (int n = 0; n < F::kColumns; ++n) {
      const int column = 64 * n + 2 * lane_index();
      const auto* const v = reinterpret_cast<const float*>(
          team.values + piece_at<F::kPieces>(key, column / 4) + column % 4 * 4);
      STEMMA_UNROLLED
      for (int p = 0; p < kWarpPairs; ++p) {
        const float weight = weights[p * kCudaTileKeys + key];
        sums[p].o[n][0] = fused(weight, v[0], sums[p].o[n][0]);
        sums[p].o[n][1] = fused(weight, v[1], sums[p].o[n][1]);
      }
    }
  }
}

// What the item has of the row's partitions so far is kept in its sum.
template <typename F>
STEMMA_ON_DEVICE void end_pair(const AttentionParams& params, const Work& work, int tile, int p,
                               const PairSums<F>& sums, Kept& kept) {
  const Pair pair = pair_of(params, work.item, work.kv_head, warp_index() * kWarpPairs + p);
  if (pair.row < 0) return;
  const AttentionRow& row = row_of(params, pair.row);
  const std::int64_t sum = sum_of(params, work.item, row, pair);
  float* const values = params.sum_values + sum * params.value_dim;
  const bool fresh = is_first_partition(work.item, tile);
  const bool last = tile + 1 == work.item.end_tile;
  const Fold folding = fold_of(kept.largest, sums.largest);
  kept = fresh ? Kept{sums.largest, sums.weights}
               : Kept{folding.largest, fold(folding, kept.weights, sums.weights)};
  const float inverse = inverse_of(kept.weights);
  STEMMA_UNROLLED
  for (int n = 0; n < F::kColumns; ++n) {
    const int column = 64 * n + 2 * lane_index();
    if (column >= params.value_dim) continue;
    const float x = fresh ? sums.o[n][0] : fold(folding, values[column], sums.o[n][0]);
    const float y = fresh ? sums.o[n][1] : fold(folding, values[column + 1], sums.o[n][1]);
    if (last && row.sums == 1) {
      store_outputs(params, pair, column, output_of(x, inverse), output_of(y, inverse));
    } else {
      values[column] = x;
      values[column + 1] = y;
    }
  }
  if (last && row.sums > 1 && lane_index() == 0) {
    params.sum_weights[2 * sum] = kept.largest;
    params.sum_weights[2 * sum + 1] = kept.weights;
  }
}

template <typename F>
STEMMA_ON_DEVICE void walk(const AttentionParams& params, const Team& team, const Work& work) {
  team_barrier();  // the item before has been read
  set_offset<F>(team, params, work, work.item.first_tile);
  load_queries<F>(team, params, work);
  std::int32_t positions[kWarpPairs];
  PairSums<F> sums[kWarpPairs];
  Kept kept[kWarpPairs] = {};
  STEMMA_UNROLLED
  for (int p = 0; p < kWarpPairs; ++p) {
    positions[p] = position_of(
        params, pair_of(params, work.item, work.kv_head, warp_index() * kWarpPairs + p));
    clear(sums[p]);
  }
  team_barrier();
  copy_rows<F>(team.keys, params.k, team, params, work.item.first_tile);
  for (int tile = work.item.first_tile; tile < work.item.end_tile; ++tile) {
    set_offset<F>(team, params, work, tile + 1);
    wait_copies<0>();
    team_barrier();
    if (!F::kLatent) copy_rows<F>(team.values, params.v, team, params, tile);
    float s[kWarpPairs][kLaneKeys] = {};
    multiply_rows<F>(s, team);
    team_barrier();
    if (!F::kLatent) copy_rows<F>(team.keys, params.k, team, params, tile + 1);
    STEMMA_UNROLLED
    for (int p = 0; p < kWarpPairs; ++p) {
      weigh<F>(params, team.weights + (warp_index() * kWarpPairs + p) * kCudaTileKeys, sums[p],
               s[p], positions[p], tile);
    }
    if (!F::kLatent) wait_copies<1>();
    team_barrier();
    add_rows<F>(team, sums);
    if (F::kLatent) {
      team_barrier();  // all warps have added V
      copy_rows<F>(team.keys, params.k, team, params, tile + 1);
    }
    if ((tile + 1) % kCudaPartitionTiles != 0 && tile + 1 != work.item.end_tile) continue;
    STEMMA_UNROLLED
    for (int p = 0; p < kWarpPairs; ++p) {
      end_pair(params, work, tile, p, sums[p], kept[p]);
      clear(sums[p]);
    }
  }
  wait_copies<0>();
}

template <typename F>
STEMMA_KERNEL STEMMA_TEAM(kThreads, F::kResidents) walk_plain_items(AttentionParams params) {
  await_turn();
  const Team team = team_of<F>(shared_memory());
  const auto span = [&] {
    return F::kChosen ? chosen_items_of(params) : items_of(params, kSinglePairs);
  };
  const std::int64_t total = static_cast<std::int64_t>(span().count) * params.kv_heads;
  for (std::int64_t i = team_x(); i < total; i += teams_x()) {
    walk<F>(params, team,
            {span().items[i / params.kv_heads], static_cast<std::int32_t>(i % params.kv_heads)});
  }
}

template <RowKind kKind, typename Call>
auto with_dim(std::int64_t head_dim, const Call& call) {
  if (head_dim <= 64) return call(Form<64, kKind>());
  if (head_dim <= 128) return call(Form<128, kKind>());
  return call(Form<256, kKind>());
}
template <typename Call>
auto with_form(std::int64_t head_dim, AttentionList list, const Call& call) {
  if (list == kChosenPairs) return with_dim<RowKind::kChosen>(head_dim, call);
  if (head_dim <= kPlainDimMax) return with_dim<RowKind::kPlain>(head_dim, call);
  return call(Form<int{kLatentDimMax}, RowKind::kLatent>());
}

}  // namespace

Status plain_attention(CudaStream& stream, const AttentionParams& params, AttentionList list,
                       std::int64_t teams) {
  if (params.kv_dtype != DType::kF32 || !has_kernel_of_rows(params.head_dim, params.value_dim) ||
      (list == kChosenPairs && params.head_dim > kPlainDimMax)) {
    return Error{ErrorCode::kUnsupported, "plain attention: rows that there is no kernel for", 0};
  }
  return with_form(params.head_dim, list, [&](auto form) {
    using F = decltype(form);
    return launch(
        "plain_attention", stream,
        {.teams_x = teams, .threads = kThreads, .shared_bytes = F::kSharedBytes, .early = true},
        walk_plain_items<F>, params);
  });
}

std::int64_t plain_attention_residents(std::int64_t head_dim, std::int64_t team_shared_bytes_max) {
  return with_form(head_dim, kSinglePairs, [&](auto form) {
    using F = decltype(form);
    return residents(F::kSharedBytes, F::kResidents, team_shared_bytes_max);
  });
}

}  // namespace stemma
