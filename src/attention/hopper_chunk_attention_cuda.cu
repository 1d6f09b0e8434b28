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
#include "attention/hopper_chunk_attention_cuda.h"
#include "device/cuda_warpgroup.h"

namespace stemma {
namespace {

constexpr int kStages = 4;  // of the ring; a power of two
constexpr int kAhead = 2;   // stages that a warp has on their way
constexpr int kGroupWarps = 4;
constexpr int kCopyWarps = 4;
constexpr int kCopiedKeys = kCudaTileKeys / kCopyWarps;  // of a tile, by a warp
// Registers of a thread: of 65,536 all have 168 at first.
constexpr int kCopyRegisters = 40;
constexpr int kComputeRegisters = 232;

template <typename T, int kDim_>
struct Form {
  using Operand = T;
  static constexpr int kDim = kDim_;
  static constexpr int kRows = 1;  // of 16 pairs, of a warp
  static constexpr int kKeys = kCudaTileKeys / 16;
  static constexpr int kColumns = kDim / 16;  // of 16 columns
  static constexpr int kPairs = kListPairs[kChunkPairs];
  static constexpr int kThreads = kPairs / 16 * kWarpThreads;  // that compute, the first ones
  static constexpr int kWarps = kThreads / kWarpThreads;
  static constexpr int kTeamThreads = kThreads + kCopyWarps * kWarpThreads;
  static constexpr int kPieces = kDim / 8;
  static constexpr int kPanelBytes = kCudaTileKeys * kPanelRowBytes;
  static constexpr int kSlotBytes = kCudaTileKeys * kDim * 2;  // a tile of K or of V
  static constexpr int kStageBytes = 2 * kSlotBytes;
  // Pieces of a thread: its sums; the largest scores and the sums of the weights.
  static constexpr int kPieceStride = kThreads * kPieceBytes;
  static constexpr int kSumPieces = kRows * 2 * kColumns;
  static constexpr int kKeptBytes = (kSumPieces + kRows) * kPieceStride;
  static_assert(kPairs * kDim * 2 <= kKeptBytes, "queries lie there at first");
  static constexpr int kOnesBytes = 2 * kPanelAlignment;  // of 16 keys by 16 columns
  static constexpr int kSharedBytes = kStages * kStageBytes + kOnesBytes + kKeptBytes +
                                      kChunkBytes +
                                      2 * kStages * static_cast<int>(sizeof(SharedBarrier));
  // Two would have to do with 128 registers a thread, for which products wait for each other.
  static constexpr int kResidents = 1;
};

template <typename F>
struct Team {
  std::byte* stages;
  std::byte* ones;  // a matrix of them
  std::byte* kept;
  Chunk* chunk;
  SharedBarrier* full;  // of stages
  SharedBarrier* free;

  STEMMA_ON_DEVICE std::byte* keys(int stage) const {
    return stages + stage % kStages * F::kStageBytes;
  }
  STEMMA_ON_DEVICE std::byte* values(int stage) const { return keys(stage) + F::kSlotBytes; }
};
template <typename F>
STEMMA_ON_DEVICE Team<F> team_of() {
  Team<F> team;
  team.stages = shared_memory();
  team.ones = team.stages + kStages * F::kStageBytes;
  team.kept = team.ones + F::kOnesBytes;
  team.chunk = reinterpret_cast<Chunk*>(team.kept + F::kKeptBytes);
  team.full = reinterpret_cast<SharedBarrier*>(team.kept + F::kKeptBytes + kChunkBytes);
  team.free = team.full + kStages;
  return team;
}

// Once a kernel: barriers, and ones to multiply weights with.
template <typename F>
STEMMA_ON_DEVICE void prepare(const Team<F>& team) {
  if (thread_index() == 0) {
    for (int i = 0; i < kStages; ++i) {
      begin_barrier(team.full + i, kCopyWarps);
      begin_barrier(team.free + i, F::kWarps);
    }
  }
  const std::uint32_t one = narrow_pair<typename F::Operand>(1.0f, 1.0f);
  if (thread_index() < F::kOnesBytes / kPieceBytes) {
    store_words(team.ones + thread_index() * kPieceBytes, {{one, one, one, one}});
  }
  fence_shared_writes();
}

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

// ---- The ring.

// The thread's warp has copied its part of the stage, or computed with it.
STEMMA_ON_DEVICE void say(SharedBarrier* barriers, int stage) {
  warp_barrier();
  if (lane_index() == 0) arrive(&barriers[stage % kStages]);
}
template <typename F>
STEMMA_ON_DEVICE void wait_full(const Team<F>& team, int stage) {
  wait_for(&team.full[stage % kStages], stage / kStages & 1);
}
// The first time it is.
template <typename F>
STEMMA_ON_DEVICE void wait_free(const Team<F>& team, int stage) {
  wait_for(&team.free[stage % kStages], (stage / kStages & 1) ^ 1);
}

// All of the team, those that compute and those that copy.
STEMMA_ON_DEVICE void meet_team() {
  team_barrier();
}

// ---- Copying.

// The lane's key of the item's tile `step`: two lanes have the same.
template <typename F>
STEMMA_ON_DEVICE KeyPlace own_place(const AttentionParams& params, const Chunk& chunk, int step) {
  if (step >= chunk.tiles()) return {-1, 0, 0};
  const int key = (warp_index() - F::kWarps) * kCopiedKeys + lane_index() % kCopiedKeys;
  return place_of(params, chunk.item, chunk.kv_head,
                  (chunk.item.first_tile + step) * kCudaTileKeys + key);
}

// Begins the copies of the warp's rows of a tile, which lie `offset` behind `rows`: each lane's is
// that of its key, below 0 where there is none.
template <typename F>
STEMMA_ON_DEVICE void copy_keys(std::byte* slot, const std::byte* rows, std::int64_t offset,
                                int head_dim) {
  constexpr int kApart = kWarpThreads / F::kPieces;
  static_assert(kCopiedKeys % kApart == 0);
  const int piece = lane_index() % F::kPieces;
  const int first = (warp_index() - F::kWarps) * kCopiedKeys;
  const bool inside = piece * 8 < head_dim;
  STEMMA_UNROLLED
  for (int i = 0; i < kCopiedKeys / kApart; ++i) {
    const int row = lane_index() / F::kPieces + i * kApart;
    const std::int64_t from = shuffle(offset, row);
    copy_words_later(slot + panel_piece_at<kCudaTileKeys>(first + row, piece),
                     rows + (from < 0 ? 0 : from) + piece * kPieceBytes, inside && from >= 0);
  }
}

// Copies of stage `stage` and all before are there, for products of all.
template <typename F, int kPending>
STEMMA_ON_DEVICE void hand_over(const Team<F>& team, int stage) {
  wait_copies<kPending>();
  fence_shared_writes();
  say(team.full, stage);
}

// What those that copy do of an item; the number of the stage behind it.
template <typename F>
STEMMA_ON_DEVICE int feed_item(const AttentionParams& params, const Team<F>& team,
                               int first_stage) {
  meet_team();  // the item before has been read
  meet_team();  // this one is there
  const Chunk& chunk = *team.chunk;
  const int tiles = chunk.tiles();
  KeyPlace next = own_place<F>(params, chunk, 0);
  std::int64_t before = -1;
  STEMMA_ROLLED
  for (int step = 0; step <= tiles; ++step) {
    const int stage = first_stage + step;
    const std::int64_t offset = offset_of(params, next);
    next = own_place<F>(params, chunk, step + 1);
    wait_free(team, stage);
    if (step < tiles) copy_keys<F>(team.keys(stage), params.k, offset, params.head_dim);
    if (step > 0) copy_keys<F>(team.values(stage), params.v, before, params.head_dim);
    commit_copies();
    before = offset;
    if (step == 0) meet_team();  // queries are there
    if (step >= kAhead) hand_over<F, kAhead>(team, stage - kAhead);
  }
  for (int step = tiles + 1 - kAhead; step <= tiles; ++step) {
    if (step >= 0) hand_over<F, 0>(team, first_stage + step);
  }
  return first_stage + tiles + 1;
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
STEMMA_ON_DEVICE void ask_scores(const Team<F>& team, int stage,
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
STEMMA_ON_DEVICE void ask_values(const Team<F>& team, int stage, GroupSums<F>& group,
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

// A tile's largest scores with those before; what sums so far are to be multiplied by.
struct Raised {
  float largest[2];
  float kept[2];
};
// Scores become weights.
template <typename F>
STEMMA_ON_DEVICE Raised weigh(const AttentionParams& params, const Chunk& chunk, const Walk& walk,
                              float (&s)[F::kRows][2 * F::kKeys][4], const float (&before)[2],
                              int step) {
  cap_scores<F>(params, s);
  if (step >= walk.whole_tiles) {
    hide<F>(params, chunk, s, (walk.first_tile + step) * kCudaTileKeys);
  }
  const float factor = score_factor(params);
  float largest[F::kRows][2];
  largest_scores<F>(largest, s);
  Raised raised;
  float taken[2];
  STEMMA_UNROLLED
  for (int half = 0; half < 2; ++half) {
    raised.largest[half] = larger_of(before[half], largest[0][half] * factor);
    const Rebase base = rebase(before[half], raised.largest[half]);
    raised.kept[half] = base.kept;
    taken[half] = base.taken;
  }
  STEMMA_UNROLLED
  for (int n = 0; n < 2 * F::kKeys; ++n) {
    STEMMA_UNROLLED
    for (int i = 0; i < 4; ++i) s[0][n][i] = weight_of(s[0][n][i], factor, taken[i / 2]);
  }
  return raised;
}
template <typename F>
STEMMA_ON_DEVICE void narrow_weights(const float (&s)[F::kRows][2 * F::kKeys][4],
                                     std::uint32_t (&weights)[F::kKeys][4]) {
  STEMMA_UNROLLED
  for (int n = 0; n < F::kKeys; ++n) {
    STEMMA_UNROLLED
    for (int i = 0; i < 4; ++i) {
      const float(&four)[4] = s[0][2 * n + i / 2];
      const int half = i % 2;
      weights[n][i] = narrow_pair<typename F::Operand>(four[2 * half], four[2 * half + 1]);
    }
  }
}

// ---- Steps of a walk.

// The tile before the item's tile `tile` was the last of its partition.
template <typename F>
STEMMA_ON_DEVICE void end_partition(const Team<F>& team, GroupSums<F>& group, int tile) {
  gather(group);
  if (!is_first_partition(team.chunk->item, tile - 1)) fold_kept(team.kept, group.sums);
  keep_sums(team.kept, group.sums);
  clear(group);
}

// The first tile of the group: scores alone.
template <typename F>
STEMMA_ON_DEVICE void begin_walk(const AttentionParams& params, const Team<F>& team,
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
STEMMA_ON_DEVICE void go_on(const AttentionParams& params, const Team<F>& team, const Walk& walk,
                            int step, const std::uint32_t (&q)[F::kColumns][4], GroupSums<F>& group,
                            std::uint32_t (&weights)[F::kKeys][4]) {
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
  wait_products<0>();
  settle_sums(group);
  say(team.free, stage);
  if (begins) {
    end_partition(team, group, tile);
  } else if (any_lane(raised.kept[0] != 1.0f || raised.kept[1] != 1.0f)) {
    keep_group(group, raised.kept);
  }
  group.sums.largest[0][0] = raised.largest[0];
  group.sums.largest[0][1] = raised.largest[1];
  narrow_weights<F>(s, weights);
}

// Values of the group's last tile, and what its rows get.
template <typename F>
STEMMA_ON_DEVICE void end_walk(const Team<F>& team, const Walk& walk, GroupSums<F>& group,
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

template <typename F>
STEMMA_ON_DEVICE Walk begin_item(const AttentionParams& params, const Team<F>& team,
                                 std::int64_t work, int first_stage,
                                 std::uint32_t (&q)[F::kColumns][4]) {
  meet_team();  // the item before has been read
  load_chunk<F>(*team.chunk, params, work);
  meet_team();
  const Chunk& chunk = *team.chunk;
  load_queries<typename F::Operand, F::kPairs, F::kPieces, F::kThreads>(params, chunk.item,
                                                                        chunk.kv_head, team.kept);
  meet_team();
  const int row = warp_index() * 16 + lane_index() % 16;
  STEMMA_UNROLLED
  for (int i = 0; i < F::kColumns; ++i) {
    load_matrices(q[i], team.kept + piece_at<F::kPieces>(row, 2 * i + lane_index() / 16));
  }
  return {first_stage, own_tiles_of(chunk), chunk.item.first_tile, whole_tiles_of(params, chunk)};
}

// What those that compute do of an item; the number of the stage behind it.
template <typename F>
STEMMA_ON_DEVICE int walk_item(const AttentionParams& params, const Team<F>& team,
                               std::int64_t work, int first_stage) {
  std::uint32_t q[F::kColumns][4];
  const Walk walk = begin_item(params, team, work, first_stage, q);
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

// Teams take items in turn, as those of walk_chunks do; −1: there are no more.
STEMMA_ON_DEVICE std::int64_t work_of(std::int64_t round, std::int64_t total) {
  const std::int64_t turn = round % 2 == 0 ? team_x() : teams_x() - 1 - team_x();
  const std::int64_t work = round * teams_x() + turn;
  return work < total ? work : -1;
}
template <typename F>
STEMMA_KERNEL STEMMA_TEAM(F::kTeamThreads, F::kResidents)
    walk_chunks_by_groups(AttentionParams params) {
  await_turn();
  const Team<F> team = team_of<F>();
  prepare(team);
  const std::int64_t total = chunks_of(params);
  int stage = 0;
  if (warp_index() >= F::kWarps) {
    give_registers<kCopyRegisters>();
    for (std::int64_t round = 0; work_of(round, total) >= 0; ++round) {
      stage = feed_item(params, team, stage);
    }
  } else {
    take_registers<kComputeRegisters>();
    for (std::int64_t round = 0; work_of(round, total) >= 0; ++round) {
      stage = walk_item(params, team, work_of(round, total), stage);
    }
  }
}

template <typename Call>
auto with_form(DType dtype, std::int64_t head_dim, const Call& call) {
  const bool half = dtype == DType::kF16;
  if (head_dim <= 64) return half ? call(Form<Float16, 64>()) : call(Form<BFloat16, 64>());
  return half ? call(Form<Float16, 128>()) : call(Form<BFloat16, 128>());
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
