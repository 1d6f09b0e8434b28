// A team has three warpgroups. The first multiplies the item's queries with a tile's rows and makes
// weights of the scores, which it keeps in registers for its own products and puts into shared
// memory for the second one. Both sum values, 256 columns each: sums of all 512 would be all of a
// group's registers. The third copies for both (latent_groups_cuda).
//
// A tile's rows are K and V; the next tile is on its way meanwhile. There is no room for a third
// one, so that a tile's scores are not asked for before the values of the one before are summed:
// the second group may still do so while the first asks for scores.
#include "attention/attention_products_cuda.h"
#include "attention/attention_rows_cuda.h"
#include "attention/attention_tiles_cuda.h"
#include "attention/group_weights_cuda.h"
#include "attention/hopper_latent_attention_cuda.h"
#include "attention/latent_groups_cuda.h"
#include "attention/partition_ends_cuda.h"
#include "device/cuda_warpgroup.h"

namespace stemma {
namespace {

// ---- What a group has of values, 256 columns for each of its warps' 16 rows.

constexpr std::size_t kHalves = 2;  // products have 128 columns each
constexpr std::size_t kHalfEights = 16;

struct GroupValues {
  float o[kHalves][kHalfEights][4];
  float totals[2][4];  // of weights: products with 16 columns of ones, of which the first counts
  float largest[2];    // scores of the partition so far, of a lane's two rows
};
STEMMA_ON_DEVICE void clear(GroupValues& values) {
  STEMMA_UNROLLED
  for (int i = 0; i < 4; ++i) {
    values.totals[0][i] = values.totals[1][i] = 0;
    STEMMA_UNROLLED
    for (std::size_t n = 0; n < kHalfEights; ++n) values.o[0][n][i] = values.o[1][n][i] = 0;
  }
  values.largest[0] = values.largest[1] = minus_infinity();
}
STEMMA_ON_DEVICE void settle_values(GroupValues& values) {
  settle(values.o[0]);
  settle(values.o[1]);
  settle(values.totals);
}

// The largest scores are others now.
STEMMA_ON_DEVICE void rebase_values(GroupValues& values, const Raised& raised) {
  values.largest[0] = raised.largest[0];
  values.largest[1] = raised.largest[1];
  if (!any_lane(raised.kept[0] != 1.0f || raised.kept[1] != 1.0f)) return;
  STEMMA_UNROLLED
  for (int i = 0; i < 4; ++i) {
    values.totals[0][i] *= raised.kept[i / 2];
    STEMMA_UNROLLED
    for (std::size_t n = 0; n < kHalfEights; ++n) {
      values.o[0][n][i] *= raised.kept[i / 2];
      values.o[1][n][i] *= raised.kept[i / 2];
    }
  }
}

// o += w v and the sums of the weights, and the slot is free. `left`: weights of 16 keys each.
template <typename F, typename Left>
STEMMA_ON_DEVICE void add_values(const LatentTeam<F>& team, int step, int group,
                                 GroupValues& values, const Left& left) {
  using T = typename F::Operand;
  const SharedMatrix ones = matrix_of_rows(team.ones);
  const std::byte* const own = team.slot(step) + group * (F::kPanels / 2) * F::kPanelBytes;
  const SharedMatrix columns[kHalves] = {
      matrix_of_columns(own, F::kPanelBytes),
      matrix_of_columns(own + 2 * F::kPanelBytes, F::kPanelBytes)};
  settle_values(values);
  fence_registers();
  STEMMA_UNROLLED
  for (int n = 0; n < F::kKeys; ++n) {
    STEMMA_UNROLLED
    for (std::size_t half = 0; half < kHalves; ++half) {
      multiply_group<T, RightMatrix::kColumns>(
          values.o[half], left(n), advanced(columns[half], n * 16 * kPanelRowBytes), true);
    }
    multiply_group<T, RightMatrix::kRows>(values.totals, left(n), ones, true);
  }
  commit_products();
  wait_products<0>();
  settle_values(values);
  say_free(team, step);
}

// Where a partition ends with the tile, what it left of the lane's rows.
template <typename F>
STEMMA_ON_DEVICE void end_tile(const AttentionParams& params, const LatentWork& work,
                               std::int32_t tile, int group, GroupValues& values, Kept (&kept)[2]) {
  if ((tile + 1) % kCudaPartitionTiles != 0 && tile + 1 != work.item.end_tile) return;
  STEMMA_UNROLLED
  for (int half = 0; half < 2; ++half) {
    const int row = warp_index() % F::kGroupWarps * 16 + 8 * half + lane_index() / 4;
    const Pair pair = pair_of(params, work.item, work.kv_head, row);
    if (pair.row < 0) continue;
    const Kept partition = {values.largest[half], values.totals[0][2 * half]};
    const PartitionEnd end = end_partition(params, work.item, tile, pair, partition, kept[half]);
    STEMMA_UNROLLED
    for (std::size_t i = 0; i < kHalves; ++i) {
      const int first = group * F::kGroupColumns + static_cast<int>(8 * kHalfEights * i);
      end_columns(params, end, values.o[i], half, first);
    }
    if (group == 0) end_scalars(params, end, kept[half]);
  }
  clear(values);
}

// ---- The first group: scores, weights, the left half of values.

// s = q kᵀ.
template <typename F>
STEMMA_ON_DEVICE void multiply_rows(const LatentTeam<F>& team, int step,
                                    float (&s)[F::kRows][2 * F::kKeys][4]) {
  const SharedMatrix queries = matrix_of_rows(team.queries);
  const SharedMatrix keys = matrix_of_rows(team.slot(step));
  fence_registers();
  STEMMA_UNROLLED
  for (int i = 0; i < F::kDim / 16; ++i) {
    const int place = i / 4 * F::kPanelBytes + i % 4 * 32;
    multiply_group<typename F::Operand, RightMatrix::kRows>(s[0], advanced(queries, place),
                                                            advanced(keys, place), i > 0);
  }
  commit_products();
  wait_products<0>();
  settle(s[0]);
}

// Keys that the lane's rows do not see get no weight. Latent rows have no window.
template <typename F>
STEMMA_ON_DEVICE void hide_unseen(const AttentionParams& params, std::int32_t tile,
                                  const std::int32_t (&positions)[F::kRows][2],
                                  float (&s)[F::kRows][2 * F::kKeys][4]) {
  const std::int32_t first_key = tile * kCudaTileKeys;
  const std::int32_t last_key = first_key + kCudaTileKeys - 1;
  const bool whole = last_key <= positions[0][0] && last_key <= positions[0][1];
  if (any_lane(!whole)) hide_keys<F>(s, positions, first_key, params.window);
}

// For the other group, when it has read those of the tile before.
template <typename F>
STEMMA_ON_DEVICE void hand_over(const LatentTeam<F>& team, int step, const Raised& raised,
                                const std::uint32_t (&weights)[F::kKeys][4]) {
  wait_for(team.weights_free, turn_of(step) ^ 1);
  const int row = warp_index() * 16 + lane_index() % 16;
  STEMMA_UNROLLED
  for (int n = 0; n < F::kKeys; ++n) {
    store_matrices(team.weights + panel_piece_at<F::kPairs>(row, 2 * n + lane_index() / 16),
                   weights[n]);
  }
  STEMMA_UNROLLED
  for (int half = 0; half < 2; ++half) {
    const int own = warp_index() * 16 + 8 * half + lane_index() / 4;
    if (lane_index() % 4 == 0) team.largest[own] = raised.largest[half];
  }
  fence_shared_writes();
  arrive_as_warp(team.weights_full);
}

template <typename F>
STEMMA_ON_DEVICE void load_positions(const AttentionParams& params, const LatentWork& work,
                                     std::int32_t (&positions)[F::kRows][2]) {
  STEMMA_UNROLLED
  for (int half = 0; half < 2; ++half) {
    const int row = warp_index() * 16 + 8 * half + lane_index() / 4;
    positions[0][half] = position_of(params, pair_of(params, work.item, work.kv_head, row));
  }
}

// The number of the tile behind the item's last one.
template <typename F>
STEMMA_ON_DEVICE int lead_item(const AttentionParams& params, const LatentTeam<F>& team,
                               const LatentWork& work, int step) {
  std::int32_t positions[F::kRows][2];
  load_positions<F>(params, work, positions);
  GroupValues values;
  clear(values);
  Kept kept[2] = {};
  STEMMA_ROLLED
  for (std::int32_t tile = work.item.first_tile; tile < work.item.end_tile; ++tile, ++step) {
    float s[F::kRows][2 * F::kKeys][4];
    wait_full(team, step);
    multiply_rows(team, step, s);
    if (tile + 1 == work.item.end_tile) arrive_as_warp(team.queries_free);
    hide_unseen<F>(params, tile, positions, s);
    const Raised raised = raise_scores<F>(s, score_factor(params), values.largest);
    std::uint32_t weights[F::kKeys][4];
    narrow_weights<F>(s, weights);
    hand_over(team, step, raised, weights);
    rebase_values(values, raised);
    add_values(team, step, 0, values,
               [&](int n) -> const std::uint32_t(&)[4] { return weights[n]; });
    end_tile<F>(params, work, tile, 0, values, kept);
  }
  return step;
}

// ---- The second group: the right half of values.

template <typename F>
STEMMA_ON_DEVICE Raised take_largest(const LatentTeam<F>& team, const float (&before)[2]) {
  Raised raised;
  STEMMA_UNROLLED
  for (int half = 0; half < 2; ++half) {
    const int row = warp_index() % F::kGroupWarps * 16 + 8 * half + lane_index() / 4;
    raised.largest[half] = team.largest[row];
    raised.kept[half] = rebase(before[half], raised.largest[half]).kept;
  }
  return raised;
}

// The number of the tile behind the item's last one.
template <typename F>
STEMMA_ON_DEVICE int follow_item(const AttentionParams& params, const LatentTeam<F>& team,
                                 const LatentWork& work, int step) {
  const SharedMatrix weights = matrix_of_rows(team.weights);
  GroupValues values;
  clear(values);
  Kept kept[2] = {};
  STEMMA_ROLLED
  for (std::int32_t tile = work.item.first_tile; tile < work.item.end_tile; ++tile, ++step) {
    wait_for(team.weights_full, turn_of(step));  // the first group has waited for the tile
    rebase_values(values, take_largest(team, values.largest));
    add_values(team, step, 1, values, [&](int n) { return advanced(weights, 32 * n); });
    arrive_as_warp(team.weights_free);
    end_tile<F>(params, work, tile, 1, values, kept);
  }
  return step;
}

template <typename F>
STEMMA_KERNEL STEMMA_TEAM(F::kThreads, F::kResidents) walk_latent_items(AttentionParams params) {
  await_turn();
  const LatentTeam<F> team = latent_team<F>();
  prepare(team);
  team_barrier();
  if (warp_index() >= F::kComputingWarps) {
    give_registers<F::kCopyRegisters>();
    feed(params, team);
    return;
  }
  take_registers<F::kComputeRegisters>();
  int step = 0;
  int round = 0;
  for (LatentWork work = latent_work(params, 0); work.live; work = latent_work(params, ++round)) {
    step = warp_index() < F::kGroupWarps ? lead_item(params, team, work, step)
                                         : follow_item(params, team, work, step);
  }
}

template <typename F>
Status launch_form(CudaStream& stream, const AttentionParams& params, std::int64_t teams) {
  return launch(
      "hopper_latent_attention", stream,
      {.teams_x = teams, .threads = F::kThreads, .shared_bytes = F::kSharedBytes, .early = true},
      walk_latent_items<F>, params);
}

}  // namespace

Status hopper_latent_attention(CudaStream& stream, const AttentionParams& params,
                               std::int64_t teams) {
  return params.kv_dtype == DType::kF16 ? launch_form<LatentForm<Float16>>(stream, params, teams)
                                        : launch_form<LatentForm<BFloat16>>(stream, params, teams);
}

std::int64_t hopper_latent_attention_residents(std::int64_t team_shared_bytes_max) {
  using F = LatentForm<BFloat16>;
  return residents(F::kSharedBytes, F::kResidents, team_shared_bytes_max);
}

}  // namespace stemma
