// A team has three warpgroups: two that compute, 64 pairs each, and one that copies for both. What
// a group multiplies at once is a *stage*: K of a tile, whose scores are asked for, and V of the
// tile before, whose weights are there; while the values are summed, the scores become weights.
// Stages lie in a ring of four. A stage is full when every warp that copies has said that its
// copies are there, and free again when every warp that computes has said that its products are
// done.
//
// Warps that compute had copied for themselves at first: of 2,900 cycles a tile 760 were addresses
// and copies, each instruction waiting for the one before, and no other warp was there to run
// meanwhile. Now they have the registers of those that copy, too.
//
// Queries are registers, for products that read both operands from shared memory wait for it.
// Sums of partitions before lie in shared memory, where the item's queries were at first.
#include "attention/attention_products_cuda.h"
#include "attention/attention_rows_cuda.h"
#include "attention/attention_tiles_cuda.h"
#include "attention/chunk_walk_cuda.h"
#include "attention/group_chunks_cuda.h"
#include "attention/group_weights_cuda.h"
#include "attention/hopper_chunk_attention_cuda.h"
#include "device/cuda_warpgroup.h"

namespace stemma {
namespace {

// The walk of a warpgroup over an item.
struct Walk {
  int first_stage;  // of the item, counted from the kernel's begin
  int own_tiles;    // that a row of the group sees
  std::int32_t first_tile;
  int whole_tiles;  // from the first on, of which all rows of the warp see all keys
};

// Tiles of the item up to the last that a row of the group sees.
STEMMA_ON_DEVICE int own_tiles_of(const Chunk& chunk) {
  const int first_warp = warp_index() / kGroupWarps * kGroupWarps;
  std::int32_t last = -1;
  for (int warp = first_warp; warp < first_warp + kGroupWarps; ++warp) {
    last = chunk.positions[warp][1] > last ? chunk.positions[warp][1] : last;
  }
  if (last < 0) return 0;
  const int seen = last / kCudaTileKeys + 1 - chunk.item.first_tile;
  return seen < 0 ? 0 : (seen < chunk.tiles() ? seen : chunk.tiles());
}

// Of the item's tiles; none where rows see but a window.
STEMMA_ON_DEVICE int whole_tiles_of(const AttentionParams& params, const Chunk& chunk) {
  if (static_cast<std::uint32_t>(chunk.last_position()) >= params.window) return 0;
  return (chunk.first_position() + 1) / kCudaTileKeys - chunk.item.first_tile;
}

// ---- Products.

// Sums of a group's warp so far. Those of weights are products with 16 columns of ones, of which
// the first eight count: of fewer columns the assembler makes products wait for each other.
template <typename F>
struct GroupSums {
  Sums<F> sums;
  float totals[2][4];
};
template <typename F>
STEMMA_ON_DEVICE void clear(GroupSums<F>& group) {
  clear(group.sums);
  STEMMA_UNROLLED
  for (int i = 0; i < 8; ++i) group.totals[i / 4][i % 4] = 0;
}
template <typename F>
STEMMA_ON_DEVICE void settle_sums(GroupSums<F>& group) {
  settle(group.sums.o[0]);
  settle(group.totals);
}
template <typename F>
STEMMA_ON_DEVICE void keep_group(GroupSums<F>& group, const float (&kept)[2]) {
  keep(group.sums, 0, kept);
  STEMMA_UNROLLED
  for (int i = 0; i < 4; ++i) group.totals[0][i] *= kept[i / 2];
}
// Before the sums are used as those of other kernels.
template <typename F>
STEMMA_ON_DEVICE void gather(GroupSums<F>& group) {
  STEMMA_UNROLLED
  for (int i = 0; i < 4; ++i) group.sums.weights[0][i] = group.totals[0][i];
}

// s = q kᵀ, of the tile whose keys the stage has.
template <typename F>
STEMMA_ON_DEVICE void ask_scores(const GroupTeam<F>& team, int stage,
                                 const std::uint32_t (&q)[F::kColumns][4],
                                 float (&s)[F::kRows][2 * F::kKeys][4]) {
  const SharedMatrix keys = matrix_of_rows(team.keys(stage));
  STEMMA_UNROLLED
  for (int i = 0; i < F::kColumns; ++i) {
    const SharedMatrix columns = advanced(keys, i / 4 * F::kPanelBytes + i % 4 * 32);
    multiply_group<typename F::Operand, RightMatrix::kRows>(s[0], q[i], columns, i > 0);
  }
}
// o += w v and the sums of the weights, of the tile before.
template <typename F>
STEMMA_ON_DEVICE void ask_values(const GroupTeam<F>& team, int stage, GroupSums<F>& group,
                                 const std::uint32_t (&weights)[F::kKeys][4]) {
  const SharedMatrix values = matrix_of_columns(team.values(stage), F::kPanelBytes);
  const SharedMatrix ones = matrix_of_rows(team.ones);
  STEMMA_UNROLLED
  for (int n = 0; n < F::kKeys; ++n) {
    multiply_group<typename F::Operand, RightMatrix::kColumns>(
        group.sums.o[0], weights[n], advanced(values, n * 16 * kPanelRowBytes), true);
  }
  STEMMA_UNROLLED
  for (int n = 0; n < F::kKeys; ++n) {
    multiply_group<typename F::Operand, RightMatrix::kRows>(group.totals, weights[n], ones, true);
  }
}

// Scores become weights.
template <typename F>
STEMMA_ON_DEVICE Raised weigh(const AttentionParams& params, const Chunk& chunk, const Walk& walk,
                              float (&s)[F::kRows][2 * F::kKeys][4], const float (&before)[2],
                              int step) {
  cap_scores<F>(params, s);
  if (step >= walk.whole_tiles) {
    hide<F>(params, chunk, s, (walk.first_tile + step) * kCudaTileKeys);
  }
  return raise_scores<F>(s, score_factor(params), before);
}

// ---- Steps of a walk.

// The tile before the item's tile `tile` was the last of its partition.
template <typename F>
STEMMA_ON_DEVICE void end_partition(const GroupTeam<F>& team, GroupSums<F>& group, int tile) {
  gather(group);
  if (!is_first_partition(team.chunk->item, tile - 1)) fold_kept(team.kept, group.sums);
  keep_sums(team.kept, group.sums);
  clear(group);
}

// Values have been summed, and the stage is free.
template <typename F>
STEMMA_ON_DEVICE void await_values(const GroupTeam<F>& team, int stage, GroupSums<F>& group) {
  wait_products<0>();
  settle_sums(group);
  say(team.free, stage);
}

// The first tile of the group: scores alone.
template <typename F>
STEMMA_ON_DEVICE void begin_walk(const AttentionParams& params, const GroupTeam<F>& team,
                                 const Walk& walk, const std::uint32_t (&q)[F::kColumns][4],
                                 GroupSums<F>& group, std::uint32_t (&weights)[F::kKeys][4]) {
  float s[F::kRows][2 * F::kKeys][4];
  wait_full(team, walk.first_stage);
  fence_registers();
  ask_scores(team, walk.first_stage, q, s);
  commit_products();
  wait_products<0>();
  settle(s[0]);
  say(team.free, walk.first_stage);
  const Raised raised = weigh<F>(params, *team.chunk, walk, s, group.sums.largest[0], 0);
  group.sums.largest[0][0] = raised.largest[0];
  group.sums.largest[0][1] = raised.largest[1];
  narrow_weights<F>(s, weights);
}

// Scores of tile `step`, while values of the one before are summed.
template <typename F>
STEMMA_ON_DEVICE void go_on(const AttentionParams& params, const GroupTeam<F>& team,
                            const Walk& walk, int step, const std::uint32_t (&q)[F::kColumns][4],
                            GroupSums<F>& group, std::uint32_t (&weights)[F::kKeys][4]) {
  const int stage = walk.first_stage + step;
  float s[F::kRows][2 * F::kKeys][4];
  settle_sums(group);
  wait_full(team, stage);
  fence_registers();
  ask_scores(team, stage, q, s);
  commit_products();
  ask_values(team, stage, group, weights);
  commit_products();
  wait_products<1>();
  settle(s[0]);
  const int tile = walk.first_tile + step;
  const bool begins = tile % kCudaPartitionTiles == 0;
  const float before[2] = {begins ? minus_infinity() : group.sums.largest[0][0],
                           begins ? minus_infinity() : group.sums.largest[0][1]};
  const Raised raised = weigh<F>(params, *team.chunk, walk, s, before, step);
  // Each way waits by itself: before a branch the assembler would wait first, and weigh then.
  if (begins) {
    await_values(team, stage, group);
    end_partition(team, group, tile);
  } else if (any_lane(raised.kept[0] != 1.0f || raised.kept[1] != 1.0f)) {
    await_values(team, stage, group);
    keep_group(group, raised.kept);
  } else {
    await_values(team, stage, group);
  }
  group.sums.largest[0][0] = raised.largest[0];
  group.sums.largest[0][1] = raised.largest[1];
  narrow_weights<F>(s, weights);
}

// Values of the group's last tile, and what its rows get.
template <typename F>
STEMMA_ON_DEVICE void end_walk(const GroupTeam<F>& team, const Walk& walk, GroupSums<F>& group,
                               const std::uint32_t (&weights)[F::kKeys][4]) {
  const int stage = walk.first_stage + walk.own_tiles;
  settle_sums(group);
  wait_full(team, stage);
  fence_registers();
  ask_values(team, stage, group, weights);
  commit_products();
  wait_products<0>();
  settle_sums(group);
  say(team.free, stage);
  gather(group);
  const int tile = walk.first_tile + walk.own_tiles;
  if (!is_first_partition(team.chunk->item, tile - 1)) fold_kept(team.kept, group.sums);
}

// As load_queries; those of the operands' type are all on their way before one is stored.
template <typename F>
STEMMA_ON_DEVICE void load_all_queries(const AttentionParams& params, const Chunk& chunk,
                                       std::byte* tile) {
  using T = typename F::Operand;
  if (params.row_dtype != kDTypeOf<T>) {
    load_queries<T, F::kPairs, F::kPieces, F::kThreads>(params, chunk.item, chunk.kv_head, tile);
    return;
  }
  constexpr std::size_t kEach{F::kPairs * F::kPieces / F::kThreads};
  constexpr int kApart = F::kThreads / F::kPieces;
  const int piece = thread_index() % F::kPieces;
  const int first = thread_index() / F::kPieces;
  Words held[kEach];
  STEMMA_UNROLLED
  for (int i = 0; i < int{kEach}; ++i) {
    const Pair pair = pair_of(params, chunk.item, chunk.kv_head, first + i * kApart);
    const std::int64_t row = static_cast<std::int64_t>(pair.row) * params.query_heads + pair.head;
    held[i] = {};
    if (pair.row >= 0 && piece * 8 < params.head_dim) {
      held[i] = load_words(static_cast<const std::uint16_t*>(params.q) + row * params.head_dim +
                           piece * 8);
    }
  }
  STEMMA_UNROLLED
  for (int i = 0; i < int{kEach}; ++i) {
    store_words(tile + piece_at<F::kPieces>(first + i * kApart, piece), held[i]);
  }
}

template <typename F>
STEMMA_ON_DEVICE Walk begin_item(const AttentionParams& params, const GroupTeam<F>& team,
                                 std::int64_t work, int first_stage, int& meetings,
                                 std::uint32_t (&q)[F::kColumns][4]) {
  meet(team, meetings);  // the item before has been read
  load_chunk<F>(*team.chunk, params, work);
  meet(team, meetings);
  const Chunk& chunk = *team.chunk;
  load_all_queries<F>(params, chunk, team.kept);
  meet(team, meetings);
  const int row = warp_index() * 16 + lane_index() % 16;
  STEMMA_UNROLLED
  for (int i = 0; i < F::kColumns; ++i) {
    load_matrices(q[i], team.kept + piece_at<F::kPieces>(row, 2 * i + lane_index() / 16));
  }
  meet(team, meetings);  // sums may lie there from now on
  return {first_stage, own_tiles_of(chunk), chunk.item.first_tile, whole_tiles_of(params, chunk)};
}

// What those that compute do of an item; the number of the stage behind it.
template <typename F>
STEMMA_ON_DEVICE int walk_item(const AttentionParams& params, const GroupTeam<F>& team,
                               std::int64_t work, int first_stage, int& meetings) {
  std::uint32_t q[F::kColumns][4];
  const Walk walk = begin_item(params, team, work, first_stage, meetings, q);
  GroupSums<F> group;
  clear(group);
  int step = 0;
  if (walk.own_tiles > 0) {
    std::uint32_t weights[F::kKeys][4];
    begin_walk(params, team, walk, q, group, weights);
    STEMMA_ROLLED
    for (step = 1; step < walk.own_tiles; ++step)
      go_on(params, team, walk, step, q, group, weights);
    end_walk(team, walk, group, weights);
    ++step;
  }
  STEMMA_UNROLLED
  for (int half = 0; half < 2; ++half) end_row(params, *team.chunk, group.sums, 0, half);
  const int tiles = team.chunk->tiles();
  STEMMA_ROLLED
  for (; step <= tiles; ++step) {  // what other rows see
    wait_full(team, walk.first_stage + step);
    say(team.free, walk.first_stage + step);
  }
  return first_stage + tiles + 1;
}

template <typename F>
STEMMA_KERNEL STEMMA_TEAM(F::kTeamThreads, F::kResidents)
    walk_chunks_by_groups(AttentionParams params) {
  await_turn();
  const GroupTeam<F> team = team_of<F>();
  prepare(team);
  team_barrier();
  const std::int64_t total = chunks_of(params);
  if (warp_index() >= F::kWarps) {
    give_registers<kCopyRegisters>();
    feed(params, team, total);
  } else {
    take_registers<kComputeRegisters>();
    int stage = 0;
    int meetings = 0;
    for (std::int64_t round = 0; work_of(round, total) >= 0; ++round) {
      stage = walk_item(params, team, work_of(round, total), stage, meetings);
    }
  }
}

template <typename Call>
auto with_form(DType dtype, std::int64_t head_dim, const Call& call) {
  const bool half = dtype == DType::kF16;
  if (head_dim <= 64)
    return half ? call(GroupForm<Float16, 64>()) : call(GroupForm<BFloat16, 64>());
  return half ? call(GroupForm<Float16, 128>()) : call(GroupForm<BFloat16, 128>());
}

}  // namespace

Status hopper_chunk_attention(CudaStream& stream, const AttentionParams& params,
                              std::int64_t teams) {
  return with_form(params.kv_dtype, params.head_dim, [&](auto form) {
    using F = decltype(form);
    return launch("hopper_chunk_attention", stream,
                  {.teams_x = teams,
                   .threads = F::kTeamThreads,
                   .shared_bytes = F::kSharedBytes,
                   .early = true},
                  walk_chunks_by_groups<F>, params);
  });
}

std::int64_t hopper_chunk_attention_residents(DType dtype, std::int64_t head_dim,
                                              std::int64_t team_shared_bytes_max) {
  return with_form(dtype, head_dim, [&](auto form) {
    using F = decltype(form);
    return residents(F::kSharedBytes, F::kResidents, team_shared_bytes_max);
  });
}

}  // namespace stemma
