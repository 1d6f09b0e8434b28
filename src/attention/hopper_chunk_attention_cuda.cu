// Two warpgroups have 64 pairs each. What they multiply at once is a *stage*: K of a tile, whose
// scores are asked for, and V of the tile before, whose weights are there; while the values are
// summed, the scores become weights. All threads copy, two stages ahead, into a ring of four. A
// stage is full when every warp has said that its copies are there; it says so when its products
// of the stage two before are done, so that what is copied next is free.
//
// Groups take turns in asking for products: those of one run while the scores of the other become
// weights. Asked for at once they would end at once too, and nothing would be left to multiply.
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
constexpr int kAhead = 2;   // stages that are on their way
constexpr int kGroups = 2;
constexpr int kGroupWarps = 4;

template <typename T, int kDim_>
struct Form {
  using Operand = T;
  static constexpr int kDim = kDim_;
  static constexpr int kRows = 1;  // of 16 pairs, of a warp
  static constexpr int kKeys = kCudaTileKeys / 16;
  static constexpr int kColumns = kDim / 16;  // of 16 columns
  static constexpr int kPairs = kListPairs[kChunkPairs];
  static constexpr int kThreads = kPairs / 16 * kWarpThreads;
  static constexpr int kWarps = kThreads / kWarpThreads;
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
  static constexpr int kOffsetBytes = kStages * kCudaTileKeys * 8;
  static constexpr int kSharedBytes = kStages * kStageBytes + kOnesBytes + kKeptBytes +
                                      kOffsetBytes + kChunkBytes +
                                      (kStages + kGroups) * static_cast<int>(sizeof(SharedBarrier));
  // Two would have to do with 128 registers a thread, for which products wait for each other.
  static constexpr int kResidents = 1;
};

template <typename F>
struct Team {
  std::byte* stages;
  std::byte* ones;  // a matrix of them
  std::byte* kept;
  std::int64_t* offsets;  // [stages, tile keys]
  Chunk* chunk;
  SharedBarrier* full;  // of stages
  SharedBarrier* turn;  // of groups

  STEMMA_ON_DEVICE std::byte* keys(int stage) const {
    return stages + stage % kStages * F::kStageBytes;
  }
  STEMMA_ON_DEVICE std::byte* values(int stage) const { return keys(stage) + F::kSlotBytes; }
  STEMMA_ON_DEVICE std::int64_t* tile_offsets(int step) const {
    return offsets + step % kStages * kCudaTileKeys;
  }
};
template <typename F>
STEMMA_ON_DEVICE Team<F> team_of() {
  Team<F> team;
  team.stages = shared_memory();
  team.ones = team.stages + kStages * F::kStageBytes;
  team.kept = team.ones + F::kOnesBytes;
  team.offsets = reinterpret_cast<std::int64_t*>(team.kept + F::kKeptBytes);
  team.chunk = reinterpret_cast<Chunk*>(team.kept + F::kKeptBytes + F::kOffsetBytes);
  team.full =
      reinterpret_cast<SharedBarrier*>(team.kept + F::kKeptBytes + F::kOffsetBytes + kChunkBytes);
  team.turn = team.full + kStages;
  return team;
}

// Once a kernel: barriers, and ones to multiply weights with.
template <typename F>
STEMMA_ON_DEVICE void prepare(const Team<F>& team) {
  if (thread_index() == 0) {
    for (int i = 0; i < kStages; ++i) begin_barrier(team.full + i, F::kWarps);
    for (int i = 0; i < kGroups; ++i) begin_barrier(team.turn + i, kGroupWarps);
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
  int tiles;        // of the item: stages 0 … tiles
  int own_tiles;    // that a row of the group sees
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

// ---- The ring.

// Below 0, and of whole pieces, where there is no key.
template <typename F>
STEMMA_ON_DEVICE void set_offset(const Team<F>& team, const AttentionParams& params, int step,
                                 const KeyPlace& place) {
  if (thread_index() >= kCudaTileKeys) return;
  const std::int64_t offset = offset_of(params, place);
  team.tile_offsets(step)[thread_index()] = offset < 0 ? -kPieceBytes : offset;
}

// What a thread copies of a tile: one piece of rows that lie whole eights apart, so that their
// places in shared memory do too.
template <typename F>
struct PanelShare {
  static constexpr int kApart = F::kThreads / F::kPieces;
  static constexpr int kRows = kCudaTileKeys / kApart;
  static_assert(kApart % 8 == 0 && kCudaTileKeys % kApart == 0);

  int row;
  int piece_bytes;
  int place;
  bool inside;  // of the rows' extent
};
template <typename F>
STEMMA_ON_DEVICE PanelShare<F> panel_share_of(int head_dim) {
  const int thread = afresh(thread_index());
  const int row = thread / F::kPieces;
  const int piece = thread % F::kPieces;
  return {row, piece * kPieceBytes, panel_piece_at<kCudaTileKeys>(row, piece),
          piece * 8 < head_dim};
}
// As copy_rows of other tiles.
template <typename F>
STEMMA_ON_DEVICE void copy_tile(std::byte* slot, const std::byte* rows, const std::int64_t* offsets,
                                const PanelShare<F>& share) {
  std::int64_t from[PanelShare<F>::kRows];
  STEMMA_UNROLLED
  for (int i = 0; i < PanelShare<F>::kRows; ++i)
    from[i] = offsets[share.row + i * PanelShare<F>::kApart];
  STEMMA_UNROLLED
  for (int i = 0; i < PanelShare<F>::kRows; ++i) {
    copy_words_later(slot + share.place + i * PanelShare<F>::kApart * kPanelRowBytes,
                     rows + share.piece_bytes + from[i],
                     share.inside && static_cast<std::int32_t>(from[i] >> 32) >= 0);
  }
}

// Begins the copies of the walk's stage `step`, if it has one.
template <typename F>
STEMMA_ON_DEVICE void ask(const Team<F>& team, const AttentionParams& params, const Walk& walk,
                          int step) {
  const int stage = walk.first_stage + step;
  const PanelShare<F> share = panel_share_of<F>(params.head_dim);
  if (step < walk.tiles) {
    copy_tile<F>(team.keys(stage), params.k, team.tile_offsets(step), share);
  }
  if (step > 0 && step <= walk.tiles) {
    copy_tile<F>(team.values(stage), params.v, team.tile_offsets(step - 1), share);
  }
  commit_copies();
}
// The warp's copies of stage `step` are there, for products of all.
template <typename F>
STEMMA_ON_DEVICE void pass_on(const Team<F>& team, const Walk& walk, int step) {
  if (step > walk.tiles) return;
  wait_copies<kAhead - 1>();
  fence_shared_writes();
  warp_barrier();
  if (lane_index() == 0) arrive(&team.full[(walk.first_stage + step) % kStages]);
}
template <typename F>
STEMMA_ON_DEVICE void wait_full(const Team<F>& team, const Walk& walk, int step) {
  const int stage = walk.first_stage + step;
  wait_for(&team.full[stage % kStages], stage / kStages & 1);
}

// Until the other group has asked for what comes before: the first one for the stage before, the
// second one for this stage. The first turn of all is the first group's.
template <typename F>
STEMMA_ON_DEVICE void await_products_turn(const Team<F>& team, const Walk& walk, int step) {
  const int group = warp_index() / kGroupWarps;
  wait_for(&team.turn[group], (walk.first_stage + step + 1 - group) & 1);
}
template <typename F>
STEMMA_ON_DEVICE void end_products_turn(const Team<F>& team) {
  warp_barrier();
  if (lane_index() == 0) arrive(&team.turn[1 - warp_index() / kGroupWarps]);
}

// What all threads do in each step while products are on their way.
template <typename F>
STEMMA_ON_DEVICE void feed(const Team<F>& team, const AttentionParams& params, const Walk& walk,
                           int step, KeyPlace& place) {
  set_offset(team, params, step + kAhead + 1, place);
  place = look_up(params, *team.chunk, step + kAhead + 2);
  ask(team, params, walk, step + kAhead);
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

// s = q kᵀ, of the walk's tile `step`.
template <typename F>
STEMMA_ON_DEVICE void ask_scores(const Team<F>& team, const Walk& walk, int step,
                                 const std::uint32_t (&q)[F::kColumns][4],
                                 float (&s)[F::kRows][2 * F::kKeys][4]) {
  const SharedMatrix keys = matrix_of_rows(team.keys(walk.first_stage + step));
  STEMMA_UNROLLED
  for (int i = 0; i < F::kColumns; ++i) {
    const SharedMatrix columns = advanced(keys, i / 4 * F::kPanelBytes + i % 4 * 32);
    multiply_group<typename F::Operand, RightMatrix::kRows>(s[0], q[i], columns, i > 0);
  }
}
// o += w v and the sums of the weights, of the tile before.
template <typename F>
STEMMA_ON_DEVICE void ask_values(const Team<F>& team, const Walk& walk, int step,
                                 GroupSums<F>& group, const std::uint32_t (&weights)[F::kKeys][4]) {
  const SharedMatrix values =
      matrix_of_columns(team.values(walk.first_stage + step), F::kPanelBytes);
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
STEMMA_ON_DEVICE Raised weigh(const AttentionParams& params, const Chunk& chunk,
                              float (&s)[F::kRows][2 * F::kKeys][4], const float (&before)[2],
                              int step) {
  cap_scores<F>(params, s);
  hide<F>(params, chunk, s, (chunk.item.first_tile + step) * kCudaTileKeys);
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
                                 GroupSums<F>& group, std::uint32_t (&weights)[F::kKeys][4],
                                 KeyPlace& place) {
  float s[F::kRows][2 * F::kKeys][4];
  await_products_turn(team, walk, 0);
  fence_registers();
  ask_scores(team, walk, 0, q, s);
  commit_products();
  end_products_turn(team);
  feed(team, params, walk, 0, place);
  wait_products<0>();
  settle(s[0]);
  pass_on(team, walk, 1);
  const Raised raised = weigh<F>(params, *team.chunk, s, group.sums.largest[0], 0);
  group.sums.largest[0][0] = raised.largest[0];
  group.sums.largest[0][1] = raised.largest[1];
  narrow_weights<F>(s, weights);
}

// Scores of tile `step`, while values of the one before are summed.
template <typename F>
STEMMA_ON_DEVICE void go_on(const AttentionParams& params, const Team<F>& team, const Walk& walk,
                            int step, const std::uint32_t (&q)[F::kColumns][4], GroupSums<F>& group,
                            std::uint32_t (&weights)[F::kKeys][4], KeyPlace& place) {
  float s[F::kRows][2 * F::kKeys][4];
  await_products_turn(team, walk, step);
  settle_sums(group);
  fence_registers();
  ask_scores(team, walk, step, q, s);
  commit_products();
  ask_values(team, walk, step, group, weights);
  commit_products();
  end_products_turn(team);
  feed(team, params, walk, step, place);
  wait_products<1>();
  settle(s[0]);
  pass_on(team, walk, step + 1);
  const int tile = team.chunk->item.first_tile + step;
  const bool begins = tile % kCudaPartitionTiles == 0;
  const float before[2] = {begins ? minus_infinity() : group.sums.largest[0][0],
                           begins ? minus_infinity() : group.sums.largest[0][1]};
  const Raised raised = weigh<F>(params, *team.chunk, s, before, step);
  wait_products<0>();
  settle_sums(group);
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
STEMMA_ON_DEVICE void end_walk(const AttentionParams& params, const Team<F>& team, const Walk& walk,
                               GroupSums<F>& group, const std::uint32_t (&weights)[F::kKeys][4],
                               KeyPlace& place) {
  const int step = walk.own_tiles;
  await_products_turn(team, walk, step);
  settle_sums(group);
  fence_registers();
  ask_values(team, walk, step, group, weights);
  commit_products();
  end_products_turn(team);
  feed(team, params, walk, step, place);
  wait_products<0>();
  settle_sums(group);
  pass_on(team, walk, step + 1);
  const int tile = team.chunk->item.first_tile + step;
  gather(group);
  if (!is_first_partition(team.chunk->item, tile - 1)) fold_kept(team.kept, group.sums);
}

template <typename F>
STEMMA_ON_DEVICE Walk begin_item(const AttentionParams& params, const Team<F>& team,
                                 std::int64_t work, int first_stage,
                                 std::uint32_t (&q)[F::kColumns][4]) {
  team_barrier();  // the item before has been read
  load_chunk<F>(*team.chunk, params, work);
  team_barrier();
  const Chunk& chunk = *team.chunk;
  for (int step = 0; step <= kAhead; ++step) {
    set_offset(team, params, step, look_up(params, chunk, step));
  }
  load_queries<typename F::Operand, F::kPairs, F::kPieces, F::kThreads>(params, chunk.item,
                                                                        chunk.kv_head, team.kept);
  team_barrier();
  const int row = warp_index() * 16 + lane_index() % 16;
  STEMMA_UNROLLED
  for (int i = 0; i < F::kColumns; ++i) {
    load_matrices(q[i], team.kept + piece_at<F::kPieces>(row, 2 * i + lane_index() / 16));
  }
  return {first_stage, chunk.tiles(), own_tiles_of(chunk)};
}

// The number of the stage behind the item's.
template <typename F>
STEMMA_ON_DEVICE int walk_item(const AttentionParams& params, const Team<F>& team,
                               std::int64_t work, int first_stage) {
  std::uint32_t q[F::kColumns][4];
  const Walk walk = begin_item(params, team, work, first_stage, q);
  for (int step = 0; step < kAhead; ++step) ask(team, params, walk, step);
  pass_on(team, walk, 0);
  KeyPlace place = look_up(params, *team.chunk, kAhead + 1);
  GroupSums<F> group;
  clear(group);
  int step = 0;
  if (walk.own_tiles > 0) {
    std::uint32_t weights[F::kKeys][4];
    wait_full(team, walk, 0);
    begin_walk(params, team, walk, q, group, weights, place);
    STEMMA_ROLLED
    for (step = 1; step < walk.own_tiles; ++step) {
      wait_full(team, walk, step);
      go_on(params, team, walk, step, q, group, weights, place);
    }
    wait_full(team, walk, step);
    end_walk(params, team, walk, group, weights, place);
    ++step;
  }
  STEMMA_UNROLLED
  for (int half = 0; half < 2; ++half) end_row(params, *team.chunk, group.sums, 0, half);
  STEMMA_ROLLED
  for (; step <= walk.tiles; ++step) {  // what other rows see
    wait_full(team, walk, step);
    await_products_turn(team, walk, step);
    end_products_turn(team);
    feed(team, params, walk, step, place);
    pass_on(team, walk, step + 1);
  }
  return first_stage + walk.tiles + 1;
}

// Teams take items in turn, as those of walk_chunks do.
template <typename F>
STEMMA_KERNEL STEMMA_TEAM(F::kThreads, F::kResidents)
    walk_chunks_by_groups(AttentionParams params) {
  await_turn();
  const Team<F> team = team_of<F>();
  prepare(team);
  const std::int64_t total = chunks_of(params);
  int stage = 0;
  for (std::int64_t round = 0;; ++round) {
    const std::int64_t turn = round % 2 == 0 ? team_x() : teams_x() - 1 - team_x();
    const std::int64_t work = round * teams_x() + turn;
    if (work >= total) return;
    stage = walk_item(params, team, work, stage);
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
    return launch(
        "hopper_chunk_attention", stream,
        {.teams_x = teams, .threads = F::kThreads, .shared_bytes = F::kSharedBytes, .early = true},
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
