// A team walks its items one after another without a pause: while a tile is computed, the next
// ones are on their way to shared memory, whatever item they belong to.
//
// Tiles of K and of V take turns in two slots each. K of tile t + 2 is asked for when all warps
// have multiplied K of tile t; V of tile t + 1 when they have added V of tile t − 1: three tiles
// are always on their way. Latent rows, whose tiles are K and V, have two slots: the next tile is
// asked for when all warps are done with the one before; codes of them are widened to a tile. Other
// codes are multiplied as they lie in their slots. Where rows of a tile lie is looked up three
// tiles ahead.
#include "attention/attention_codes_cuda.h"
#include "attention/attention_products_cuda.h"
#include "attention/attention_rows_cuda.h"
#include "attention/attention_tiles_cuda.h"
#include "attention/code_tiles_cuda.h"
#include "attention/partition_ends_cuda.h"
#include "attention/split_attention_cuda.h"
#include "base/math.h"

namespace stemma {
namespace {

template <typename T, int kDim, RowKind kKind, int kRows_, int kRowWarps_>
struct Form : TileForm<T, kDim, kKind, 4 * kWarpThreads * kRowWarps_> {
  static constexpr int kRows = kRows_;  // of 16 pairs, of a warp
  static constexpr int kKeys = 1;       // of 16 keys of a tile, of a warp
  static constexpr int kRowWarps = kRowWarps_;
  static constexpr int kPairs = 16 * kRows * kRowWarps;
  // Of 16 columns, of a warp.
  static constexpr int kColumns = (Form::kLatent ? int{kLatentValueDimMax} : kDim) / 64;
  static constexpr int kQueryBytes = kPairs * kDim * 2;
  static constexpr int kWeightBytes = kPairs * kCudaTileKeys * 2;
  static constexpr int kLargestBytes = 4 * kPairs * 4;
  static constexpr int kPowerBytes = Form::kScaled ? kPairs * 4 : 0;
  static constexpr int kSharedBytes =
      Form::kTilesBytes + kQueryBytes + kWeightBytes + kLargestBytes + kPowerBytes;
  // That a multiprocessor of 65,536 registers and 228 KB of shared memory should hold.
  static constexpr int kResidentsAt128 = kKind == RowKind::kCodes ? 4 : 3;
  static constexpr int kResidents = kRowWarps > 1 || kDim > 128 ? 1
                                                                : (kDim > 64 ? kResidentsAt128 : 5);
};

// Where a team is in its work: item and tile.
struct Cursor {
  AttentionItem item;
  std::int64_t work;
  std::int32_t kv_head;
  std::int32_t tile;
  bool live;
};

template <typename F>
STEMMA_ON_DEVICE void load_item(Cursor& at, const AttentionParams& params, int list) {
  const ItemSpan span = F::kChosen ? chosen_items_of(params) : items_of(params, list);
  at.live = at.work < static_cast<std::int64_t>(span.count) * params.kv_heads;
  if (!at.live) return;
  at.item = span.items[at.work / params.kv_heads];
  at.kv_head = static_cast<std::int32_t>(at.work % params.kv_heads);
  at.tile = at.item.first_tile;
}
template <typename F>
STEMMA_ON_DEVICE void advance(Cursor& at, const AttentionParams& params, int list) {
  if (!at.live || ++at.tile < at.item.end_tile) return;
  at.work += teams_x();
  load_item<F>(at, params, list);
}
template <typename F>
STEMMA_ON_DEVICE KeyPlace look_up(const Cursor& at, const AttentionParams& params) {
  if (!at.live || thread_index() >= kCudaTileKeys) return {-1, 0, 0};
  const std::int32_t key = at.tile * kCudaTileKeys + thread_index();
  return F::kChosen ? chosen_place_of(params, at.item, at.kv_head, key)
                    : place_of(params, at.item, at.kv_head, key);
}

template <typename F>
struct Team {
  Tiles<F> tiles;
  std::byte* queries;
  std::byte* weights;
  float* largest;  // [4 key warps, pairs]
  float* powers;   // of codes: what undoes their queries' powers of two [pairs]
};
template <typename F>
STEMMA_ON_DEVICE Team<F> team_of(std::byte* shared) {
  Team<F> team;
  team.tiles = tiles_of<F>(shared);
  team.queries = shared + F::kTilesBytes;
  team.weights = team.queries + F::kQueryBytes;
  team.largest = reinterpret_cast<float*>(team.weights + F::kWeightBytes);
  team.powers = team.largest + 4 * F::kPairs;
  return team;
}

// What the warp's rows come to in a partition.
template <typename F>
struct Partition {
  Sums<F> sums;
  float parts[F::kRows][2];  // of codes: of the sums of weights, by the warp's keys
};
template <typename F>
STEMMA_ON_DEVICE void clear(Partition<F>& partition) {
  clear(partition.sums);
  STEMMA_UNROLLED
  for (int i = 0; i < 2 * F::kRows; ++i) partition.parts[i / 2][i % 2] = 0;
}

// What the lane's scores of a row became, weights of two keys and of two 8 behind them, goes to its
// part of the row's sum, of which `kept` remains.
template <typename F>
STEMMA_ON_DEVICE void add_to_part(const Team<F>& team, float& part, int step, float kept,
                                  const float (&weights)[4]) {
  const float* const inverses =
      team.tiles.value_inverses(step) + warp_index() % 4 * 16 + lane_index() % 4 * 2;
  part = kept_part(part, kept) + sum_of_four(weights, load_two(inverses), load_two(inverses + 8));
}

// The largest scores over all of the tile's keys; sums are rebased, scores become weights.
template <typename F>
STEMMA_ON_DEVICE void weigh(const Team<F>& team, const AttentionParams& params,
                            Partition<F>& partition, int step, const float (&s)[F::kRows][2][4]) {
  const int key_warp = warp_index() % 4;
  const int first = warp_index() / 4 * 16 * F::kRows + lane_index() / 4;
  const float factor = F::kScaled ? 1.0f : score_factor(params);
  STEMMA_UNROLLED
  for (int r = 0; r < F::kRows; ++r) {
    float kept[2];
    STEMMA_UNROLLED
    for (int half = 0; half < 2; ++half) {
      const int row = first + 16 * r + 8 * half;
      float most = team.largest[row];
      for (int w = 1; w < 4; ++w) most = larger_of(most, team.largest[w * F::kPairs + row]);
      const float taken = raise(partition.sums, r, half, most * factor, kept[half]);
      float weights[4];
      STEMMA_UNROLLED
      for (int i = 0; i < 4; ++i) {
        weights[i] = weight_of(s[r][i / 2][2 * half + i % 2], factor, taken);
      }
      STEMMA_UNROLLED
      for (int n = 0; n < 2; ++n) {
        std::byte* const piece = team.weights + piece_at<8>(row, 2 * key_warp + n);
        reinterpret_cast<std::uint32_t*>(piece)[lane_index() % 4] =
            narrow_pair<typename F::Operand>(weights[2 * n], weights[2 * n + 1]);
      }
      if constexpr (F::kScaled) {
        add_to_part(team, partition.parts[r][half], step, kept[half], weights);
      }
    }
    F::kScaled ? keep_values(partition.sums, r, kept) : keep(partition.sums, r, kept);
  }
}

// The weights of the warp's rows and of 16 keys of the tile.
template <typename F>
STEMMA_ON_DEVICE void load_weights(const Team<F>& team, int step, std::uint32_t (&w)[F::kRows][4]) {
  const int lane = lane_index();
  const int place = piece_at<8>(warp_index() / 4 * 16 * F::kRows + lane % 16, lane / 16);
  STEMMA_UNROLLED
  for (int r = 0; r < F::kRows; ++r) {
    load_matrices(w[r], team.weights + pieces_behind(place, 2 * step) + rows_behind<8>(16 * r));
  }
}
template <typename F>
STEMMA_ON_DEVICE void add_tile(const Team<F>& team, Sums<F>& sums, const std::byte* v) {
  STEMMA_UNROLLED
  for (int step = 0; step < kCudaTileKeys / 16; ++step) {
    std::uint32_t w[F::kRows][4];
    load_weights(team, step, w);
    add_values<F>(sums.o, w, v, 16 * step, warp_index() % 4 * 2 * F::kColumns);
    if constexpr (!F::kScaled) add_weights<F>(sums.weights, w);
  }
}
template <typename Code, typename F>
STEMMA_ON_DEVICE void add_code_tile(const Team<F>& team, Sums<F>& sums, const std::byte* codes) {
  STEMMA_UNROLLED
  for (int step = 0; step < kCudaTileKeys / 16; step += 2) {
    CodeWords<F> words;
    load_code_values(words, codes, 16 * step, warp_index() % 4 * F::kColumns);
    STEMMA_UNROLLED
    for (int i = 0; i < 2; ++i) {
      std::uint32_t w[F::kRows][4];
      load_weights(team, step + i, w);
      add_code_values<Code, F>(sums.o, w, words.of[i]);
    }
  }
}
template <typename F>
STEMMA_ON_DEVICE void add_values_of(const Team<F>& team, const AttentionParams& params,
                                    Sums<F>& sums, int step) {
  const std::byte* const values = team.tiles.value_tile(step);
  if constexpr (F::kInSlots) {
    with_code(params.kv_dtype,
              [&](auto code) { add_code_tile<decltype(code)>(team, sums, values); });
  } else {
    add_tile(team, sums, values);
  }
}

// At the end of a partition: each warp has the weights of its own keys.
template <typename F>
STEMMA_ON_DEVICE void gather_parts(const Team<F>& team, Partition<F>& partition) {
  const int first = warp_index() / 4 * 16 * F::kRows + lane_index() / 4;
  STEMMA_UNROLLED
  for (int i = 0; i < 2 * F::kRows; ++i) {
    const float part = sum_of_parts(partition.parts[i / 2][i % 2]);
    if (lane_index() % 4 == 0) team.largest[warp_index() % 4 * F::kPairs + first + 8 * i] = part;
  }
  team_barrier();
  STEMMA_UNROLLED
  for (int i = 0; i < 2 * F::kRows; ++i) {
    float total = team.largest[first + 8 * i];
    for (int w = 1; w < 4; ++w) total += team.largest[w * F::kPairs + first + 8 * i];
    partition.sums.weights[i / 2][i % 2 * 2] = total;
  }
}

template <typename F>
STEMMA_ON_DEVICE void end_row(const AttentionParams& params, const Cursor& at, const Sums<F>& sums,
                              Kept (&kept)[F::kRows][2], int r, int half) {
  const int first = warp_index() / 4 * 16 * F::kRows + lane_index() / 4;
  const Pair pair = pair_of(params, at.item, at.kv_head, first + 16 * r + 8 * half);
  if (pair.row < 0) return;
  const Kept partition = {sums.largest[r][half], sums.weights[r][2 * half]};
  const PartitionEnd end = end_partition(params, at.item, at.tile, pair, partition, kept[r][half]);
  end_columns<F::kInSlots>(params, end, sums.o[r], half, warp_index() % 4 * 16 * F::kColumns);
  if (warp_index() % 4 == 0) end_scalars(params, end, kept[r][half]);
}

// What is looked up ahead of what is computed: where the rows of step + 2 lie, and what codes of
// step + 1 are multiplied by.
struct Ahead {
  Cursor at;
  KeyPlace place;
  RowScales scales;
};
template <typename F>
STEMMA_ON_DEVICE void begin(Ahead& ahead, const Team<F>& team, const AttentionParams& params,
                            int list) {
  for (int step = 0; step < 2; ++step) {
    const KeyPlace place = look_up<F>(ahead.at, params);
    set_offset(team.tiles, params, step, place);
    if (step > 0) set_scales(team.tiles, step - 1, ahead.scales);
    ahead.scales = load_scales<F>(params, place);
    advance<F>(ahead.at, params, list);
  }
  ahead.place = look_up<F>(ahead.at, params);
  team_barrier();
  copy_keys(team.tiles, params, 0);
  commit_copies();
  if (F::kLatent) return;
  copy_values(team.tiles, params, 0);
  commit_copies();
  copy_keys(team.tiles, params, 1);
  commit_copies();
}
template <typename F>
STEMMA_ON_DEVICE void look_ahead(Ahead& ahead, const Team<F>& team, const AttentionParams& params,
                                 int list, int step) {
  set_offset(team.tiles, params, step + 2, ahead.place);
  set_scales(team.tiles, step + 1, ahead.scales);
  ahead.scales = load_scales<F>(params, ahead.place);
  advance<F>(ahead.at, params, list);
  ahead.place = look_up<F>(ahead.at, params);
}

template <typename F>
STEMMA_ON_DEVICE void begin_item(const Cursor& now, const Team<F>& team,
                                 const AttentionParams& params,
                                 std::int32_t (&positions)[F::kRows][2]) {
  if constexpr (F::kScaled) {
    load_code_queries<F::kPairs, F::kPieces, F::kThreads, /*kReordered=*/F::kInSlots>(
        params, now.item, now.kv_head, team.queries, team.powers);
  } else {
    load_queries<typename F::Operand, F::kPairs, F::kPieces, F::kThreads>(
        params, now.item, now.kv_head, team.queries);
  }
  for (int i = 0; i < 2 * F::kRows; ++i) {
    const int pair = warp_index() / 4 * 16 * F::kRows + 8 * i + lane_index() / 4;
    positions[i / 2][i % 2] = position_of(params, pair_of(params, now.item, now.kv_head, pair));
  }
  team_barrier();
}

// Products of the warp's queries and keys, as scores that nothing is hidden of.
template <typename F>
STEMMA_ON_DEVICE void multiply(const Team<F>& team, const AttentionParams& params, int step,
                               float (&s)[F::kRows][2][4]) {
  const int first = warp_index() / 4 * 16 * F::kRows;
  const int key = warp_index() % 4 * 16;
  const std::byte* const keys = team.tiles.key_tile(step);
  if constexpr (F::kInSlots) {
    with_code(params.kv_dtype, [&](auto code) {
      multiply_code_keys<decltype(code), F>(s, team.queries, first, keys, key);
    });
  } else {
    multiply_keys<F>(s, team.queries, first, keys, key);
  }
  if constexpr (F::kScaled) {
    code_scores<F>(params, s, team.tiles, step, key, team.powers + first);
  } else {
    cap_scores<F>(params, s);
  }
}

// The warp's scores, and the largest of them in shared memory.
template <typename F>
STEMMA_ON_DEVICE void score(const Cursor& now, const Team<F>& team, const AttentionParams& params,
                            int step, const std::int32_t (&positions)[F::kRows][2],
                            float (&s)[F::kRows][2][4]) {
  const int row_warp = warp_index() / 4;
  const int key_warp = warp_index() % 4;
  multiply(team, params, step, s);
  hide_keys<F>(s, positions, now.tile * kCudaTileKeys + 16 * key_warp, params.window);
  float largest[F::kRows][2];
  largest_scores<F>(largest, s);
  for (int i = 0; i < 2 * F::kRows; ++i) {
    const int row = row_warp * 16 * F::kRows + 8 * i + lane_index() / 4;
    if (lane_index() % 4 == 0) team.largest[key_warp * F::kPairs + row] = largest[i / 2][i % 2];
  }
}

template <typename F>
STEMMA_ON_DEVICE void end_partition(const Team<F>& team, const AttentionParams& params,
                                    const Cursor& now, Partition<F>& partition,
                                    Kept (&kept)[F::kRows][2]) {
  if constexpr (F::kScaled) gather_parts(team, partition);
  STEMMA_UNROLLED
  for (int i = 0; i < 2 * F::kRows; ++i) {
    end_row(params, now, partition.sums, kept, i / 2, i % 2);
  }
  clear(partition);
}

template <typename F>
STEMMA_KERNEL STEMMA_TEAM(F::kThreads, F::kResidents) walk_items(AttentionParams params, int list) {
  await_turn();
  const Team<F> team = team_of<F>(shared_memory());
  Cursor now;
  now.work = team_x();
  load_item<F>(now, params, list);
  if (!now.live) return;
  Ahead ahead = {now, {}, {}};
  begin(ahead, team, params, list);
  Partition<F> partition;
  Kept kept[F::kRows][2] = {};
  std::int32_t positions[F::kRows][2] = {};
  clear(partition);
  for (int step = 0; now.live; ++step) {
    wait_copies<F::kLatent ? 0 : 2>();
    if (F::kLatent && F::kWidened) team_barrier();  // the tile before lies where this one will
    widen_keys(team.tiles, params, step);
    team_barrier();
    F::kLatent ? copy_keys(team.tiles, params, step + 1)
               : copy_values(team.tiles, params, step + 1);
    commit_copies();
    look_ahead(ahead, team, params, list, step);
    if (now.tile == now.item.first_tile) begin_item(now, team, params, positions);
    float s[F::kRows][2][4] = {};
    score(now, team, params, step, positions, s);
    team_barrier();
    if (!F::kLatent) {
      copy_keys(team.tiles, params, step + 2);
      commit_copies();
    }
    weigh(team, params, partition, step, s);
    if (!F::kLatent) wait_copies<3>();
    widen_values(team.tiles, params, step);
    team_barrier();
    add_values_of(team, params, partition.sums, step);
    if ((now.tile + 1) % kCudaPartitionTiles == 0 || now.tile + 1 == now.item.end_tile) {
      end_partition(team, params, now, partition, kept);
    }
    advance<F>(now, params, list);
  }
  wait_copies<0>();
}

constexpr int kMergeWarps = 4;  // of a team
constexpr int kMergeColumns = 2 * kWarpThreads;
constexpr int kMergedAtOnce = 8;  // sums of which a lane's part is on its way

int merge_parts(const AttentionParams& params) {
  return ceil_div<int>(params.value_dim, kMergeColumns);
}

// A warp has a row, a query head and one of `parts` parts of its columns, a lane two of them.
STEMMA_KERNEL merge_rows(AttentionParams params, int parts) {
  await_turn();
  pass_turn();
  const AttentionHeader& header = header_of(params);
  const int warp = static_cast<int>(team_y()) * kMergeWarps + warp_index();
  const std::int32_t head = warp / parts;
  const int column = warp % parts * kMergeColumns + 2 * lane_index();
  if (team_x() >= header.merged_rows || head >= params.query_heads) return;
  if (column >= params.value_dim) return;
  const Pair pair = {array_of<std::int32_t>(params, header.merged_rows_at)[team_x()], head};
  const AttentionRow& row = row_of(params, pair.row);
  const std::int64_t first = static_cast<std::int64_t>(row.first_sum) * params.query_heads + head;
  const float* values = params.sum_values + first * params.value_dim + column;
  const float* scales = params.sum_weights + 2 * first;
  Kept kept = {scales[0], scales[1]};
  Two<float> sum = load_two(values);
  for (int begin = 1; begin < row.sums; begin += kMergedAtOnce) {
    Two<float> next[kMergedAtOnce];
    Two<float> weights[kMergedAtOnce];
    STEMMA_UNROLLED
    for (int i = 0; i < kMergedAtOnce; ++i) {
      if (begin + i >= row.sums) break;
      values += static_cast<std::int64_t>(params.query_heads) * params.value_dim;
      scales += 2 * static_cast<std::int64_t>(params.query_heads);
      next[i] = load_two(values);
      weights[i] = load_two(scales);
    }
    STEMMA_UNROLLED
    for (int i = 0; i < kMergedAtOnce; ++i) {
      if (begin + i >= row.sums) break;
      const Fold folding = fold_of(kept.largest, weights[i].first);
      kept = {folding.largest, fold(folding, kept.weights, weights[i].second)};
      sum = {fold(folding, sum.first, next[i].first), fold(folding, sum.second, next[i].second)};
    }
  }
  const float inverse = inverse_of(kept.weights);
  store_outputs(params, pair, column, output_of(sum.first, inverse),
                output_of(sum.second, inverse));
}

template <typename F>
Status launch_form(CudaStream& stream, const AttentionParams& params, int list,
                   std::int64_t teams) {
  return launch(
      "split_attention", stream,
      {.teams_x = teams, .threads = F::kThreads, .shared_bytes = F::kSharedBytes, .early = true},
      walk_items<F>, params, list);
}

// Calls with a value of the form for rows of that type and extent.
template <typename T, RowKind kKind, int kDim, typename Call>
auto with_list(AttentionList list, const Call& call) {
  if constexpr (kKind == RowKind::kPlain) {
    if (list == kChosenPairs) return call(Form<T, kDim, RowKind::kChosen, 1, 1>());
  }
  if (list == kSinglePairs) return call(Form<T, kDim, kKind, 1, 1>());
  return call(Form<T, kDim, kKind, 2, 2>());
}
template <typename T, RowKind kKind, typename Call>
auto with_dim(std::int64_t head_dim, AttentionList list, const Call& call) {
  if (head_dim <= 64) return with_list<T, kKind, 64>(list, call);
  if (head_dim <= 128) return with_list<T, kKind, 128>(list, call);
  return with_list<T, kKind, int{kPlainDimMax}>(list, call);
}
template <typename T, typename Call>
auto with_elements(std::int64_t head_dim, AttentionList list, const Call& call) {
  if (head_dim <= kPlainDimMax) return with_dim<T, RowKind::kPlain>(head_dim, list, call);
  return with_list<T, RowKind::kLatent, int{kLatentDimMax}>(list, call);
}
template <typename Call>
auto with_form(DType dtype, std::int64_t head_dim, AttentionList list, const Call& call) {
  if (is_scaled(dtype) && head_dim > kPlainDimMax) {
    return with_list<Float16, RowKind::kLatentCodes, int{kLatentDimMax}>(list, call);
  }
  if (is_scaled(dtype)) return with_dim<Float16, RowKind::kCodes>(head_dim, list, call);
  if (dtype == DType::kF16) return with_elements<Float16>(head_dim, list, call);
  return with_elements<BFloat16>(head_dim, list, call);
}

}  // namespace

Status split_attention(CudaStream& stream, const AttentionParams& params, AttentionList list,
                       std::int64_t teams) {
  const bool plain = !is_scaled(params.kv_dtype) && params.head_dim <= kPlainDimMax;
  if (!has_tensor_kernel(params.kv_dtype, params.head_dim, params.value_dim) ||
      (list == kChosenPairs && !plain)) {
    return Error{ErrorCode::kUnsupported, "split attention: rows that there is no kernel for", 0};
  }
  return with_form(params.kv_dtype, params.head_dim, list, [&](auto form) {
    return launch_form<decltype(form)>(stream, params, list, teams);
  });
}

std::int64_t split_attention_residents(DType dtype, std::int64_t head_dim, AttentionList list,
                                       std::int64_t team_shared_bytes_max) {
  return with_form(dtype, head_dim, list, [&](auto form) {
    using F = decltype(form);
    return residents(F::kSharedBytes, F::kResidents, team_shared_bytes_max);
  });
}

Status merge_sums(CudaStream& stream, const AttentionParams& params, std::int64_t rows) {
  const int parts = merge_parts(params);
  const std::int64_t warps = std::int64_t{params.query_heads} * parts;
  return launch("merge_sums", stream,
                {.teams_x = rows,
                 .teams_y = ceil_div<std::int64_t>(warps, kMergeWarps),
                 .threads = kMergeWarps * kWarpThreads,
                 .early = true},
                merge_rows, params, parts);
}

}  // namespace stemma
