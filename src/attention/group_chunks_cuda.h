// What a team of hopper_chunk_attention has in shared memory, a ring of stages among it, and the
// warps that copy into the ring.
//
// A *stage* is K of a tile and V of the tile before. It is full when every warp that copies has
// said that its copies are there, and free again when every warp that computes has said that its
// products are done. Warps that copy walk the team's items ahead of those that compute, as far as
// the ring allows; nothing else keeps the two together.
//
// Included by hopper_*.cu alone.
//
// Thread:     code of kernels.
// Memory:     shared memory of the team: GroupForm::kSharedBytes.
// Cost:       a warp that copies has some 250 instructions a stage.
// Not here:   what is computed (hopper_chunk_attention_cuda.cu).
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/attention_products_cuda.h"
#include "attention/attention_rows_cuda.h"
#include "attention/attention_tiles_cuda.h"
#include "attention/chunk_walk_cuda.h"
#include "attention/group_weights_cuda.h"
#include "device/cuda_warpgroup.h"

namespace stemma {

inline constexpr int kStages = 4;  // of the ring; a power of two
inline constexpr int kAhead = 2;   // stages that a warp has on their way
inline constexpr int kGroupWarps = 4;
inline constexpr int kCopyWarps = 4;
inline constexpr int kCopiedKeys = kCudaTileKeys / kCopyWarps;  // of a tile, by a warp
inline constexpr int kOffsetBytes = kCopyWarps * 2 * kCopiedKeys * 8;
// Registers of a thread: of 65,536 all have 168 at first.
inline constexpr int kCopyRegisters = 40;
inline constexpr int kComputeRegisters = 232;

// Where stage `stage`, counted from the kernel's begin, lies in the ring, and whether it is the
// ring's second, fourth … turn.
STEMMA_ON_DEVICE int slot_of_stage(int stage) {
  return stage & (kStages - 1);
}
STEMMA_ON_DEVICE int turn_of_stage(int stage) {
  return (stage & kStages) != 0 ? 1 : 0;
}

template <typename T, int kDim_>
struct GroupForm {
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
  static constexpr int kSharedBytes = kStages * kStageBytes + kOnesBytes + kKeptBytes +
                                      kOffsetBytes + kChunkBytes +
                                      (2 * kStages + 1) * static_cast<int>(sizeof(SharedBarrier));
  // Two would have to do with 128 registers a thread, for which products wait for each other.
  static constexpr int kResidents = 1;
};

template <typename F>
struct GroupTeam {
  std::byte* stages;
  std::byte* ones;  // a matrix of them
  std::byte* kept;
  Chunk* chunk;
  SharedBarrier* full;  // of stages
  SharedBarrier* free;
  SharedBarrier* met;
  std::int64_t* offsets;  // [copying warps, 2, keys of each]

  STEMMA_ON_DEVICE std::byte* keys(int stage) const {
    return stages + slot_of_stage(stage) * F::kStageBytes;
  }
  STEMMA_ON_DEVICE std::byte* values(int stage) const { return keys(stage) + F::kSlotBytes; }
};
template <typename F>
STEMMA_ON_DEVICE GroupTeam<F> team_of() {
  GroupTeam<F> team;
  team.stages = shared_memory();
  team.ones = team.stages + kStages * F::kStageBytes;
  team.kept = team.ones + kOnesBytes;
  team.offsets = reinterpret_cast<std::int64_t*>(team.kept + F::kKeptBytes);
  team.chunk = reinterpret_cast<Chunk*>(team.kept + F::kKeptBytes + kOffsetBytes);
  team.full =
      reinterpret_cast<SharedBarrier*>(team.kept + F::kKeptBytes + kOffsetBytes + kChunkBytes);
  team.free = team.full + kStages;
  team.met = team.free + kStages;
  return team;
}

// Once a kernel: barriers, and ones to multiply weights with.
template <typename F>
STEMMA_ON_DEVICE void prepare(const GroupTeam<F>& team) {
  if (thread_index() == 0) {
    for (int i = 0; i < kStages; ++i) {
      begin_barrier(team.full + i, kCopyWarps);
      begin_barrier(team.free + i, F::kWarps);
    }
    begin_barrier(team.met, F::kWarps);
  }
  write_ones<typename F::Operand>(team.ones);
  fence_shared_writes();
}

// ---- The ring.

// The thread's warp has copied its part of the stage, or computed with it.
STEMMA_ON_DEVICE void say(SharedBarrier* barriers, int stage) {
  arrive_as_warp(&barriers[slot_of_stage(stage)]);
}
template <typename F>
STEMMA_ON_DEVICE void wait_full(const GroupTeam<F>& team, int stage) {
  wait_for(&team.full[slot_of_stage(stage)], turn_of_stage(stage));
}
// The first time it is.
template <typename F>
STEMMA_ON_DEVICE void wait_free(const GroupTeam<F>& team, int stage) {
  wait_for(&team.free[slot_of_stage(stage)], turn_of_stage(stage) ^ 1);
}

// All warps that compute have come here, as often as this one.
template <typename F>
STEMMA_ON_DEVICE void meet(const GroupTeam<F>& team, int& meetings) {
  arrive_as_warp(team.met);
  wait_for(team.met, meetings++ & 1);
}

// Teams take items in turn, as those of walk_chunks do (written out there: called, it makes that
// kernel put more registers by); −1: there are no more.
STEMMA_ON_DEVICE std::int64_t work_of(std::int64_t round, std::int64_t total) {
  const std::int64_t turn = round % 2 == 0 ? team_x() : teams_x() - 1 - team_x();
  const std::int64_t work = round * teams_x() + turn;
  return work < total ? work : -1;
}

// ---- Copying.

// The lane's key of the item's tile `step`: two lanes have the same.
template <typename F>
STEMMA_ON_DEVICE KeyPlace own_place(const AttentionParams& params, const ItemOfHead& of, int step) {
  if (step >= of.tiles()) return {-1, 0, 0};
  const int key = (warp_index() - F::kWarps) * kCopiedKeys + lane_index() % kCopiedKeys;
  return place_of(params, of.item, of.kv_head, (of.item.first_tile + step) * kCudaTileKeys + key);
}

// Where the warp's rows of a tile of even or odd number lie, below 0 where there is no key: each
// lane's is to be written, all are read.
template <typename F>
STEMMA_ON_DEVICE std::int64_t* own_offsets(const GroupTeam<F>& team, int step) {
  return team.offsets + ((warp_index() - F::kWarps) * 2 + step % 2) * kCopiedKeys;
}

// Begins the copies of the warp's rows of a tile, which lie `offsets` behind `rows`. A lane has one
// piece of rows that are neighbours.
template <typename F>
STEMMA_ON_DEVICE void copy_keys(std::byte* slot, const std::byte* rows, const std::int64_t* offsets,
                                int head_dim) {
  constexpr std::size_t kEach{kCopiedKeys * F::kPieces / kWarpThreads};
  static_assert(kEach % 2 == 0);
  const int piece = lane_index() % F::kPieces;
  const int first = lane_index() / F::kPieces * int{kEach};
  const bool inside = piece * 8 < head_dim;
  Words two[kEach / 2];
  STEMMA_UNROLLED
  for (int i = 0; i < int{kEach}; i += 2) two[i / 2] = load_words(offsets + first + i);
  STEMMA_UNROLLED
  for (int i = 0; i < int{kEach}; ++i) {
    const std::uint32_t low = two[i / 2].w[i % 2 * 2];
    const std::uint32_t high = two[i / 2].w[i % 2 * 2 + 1];
    const bool wanted = inside && static_cast<std::int32_t>(high) >= 0;
    const std::int64_t from =
        static_cast<std::int64_t>(std::uint64_t{wanted ? high : 0} << 32 | (wanted ? low : 0));
    const int row = (warp_index() - F::kWarps) * kCopiedKeys + first + i;
    copy_words_later(slot + panel_piece_at<kCudaTileKeys>(row, piece),
                     rows + from + piece * kPieceBytes, wanted);
  }
}

// Copies of stage `stage` and all before are there, for products of all.
template <typename F, int kPending>
STEMMA_ON_DEVICE void hand_over(const GroupTeam<F>& team, int stage) {
  if (stage < 0) return;
  wait_copies<kPending>();
  fence_shared_writes();
  say(team.full, stage);
}

// Copies what an item's stages have; the number of the stage behind them. The last ones are handed
// over with those of the next item.
template <typename F>
STEMMA_ON_DEVICE int feed_item(const AttentionParams& params, const GroupTeam<F>& team,
                               std::int64_t work, int stage) {
  const ItemOfHead of = item_of(params, work);
  const int tiles = of.tiles();
  KeyPlace next = own_place<F>(params, of, 0);
  STEMMA_ROLLED
  for (int step = 0; step <= tiles; ++step, ++stage) {
    const std::int64_t* const now = own_offsets(team, step);
    warp_barrier();  // what lay there has been read
    if (lane_index() < kCopiedKeys) {
      own_offsets(team, step)[lane_index()] = offset_of(params, next);
    }
    next = own_place<F>(params, of, step + 1);
    warp_barrier();
    wait_free(team, stage);
    if (step < tiles) copy_keys<F>(team.keys(stage), params.k, now, params.head_dim);
    if (step > 0) {
      copy_keys<F>(team.values(stage), params.v, own_offsets(team, step - 1), params.head_dim);
    }
    commit_copies();
    hand_over<F, kAhead>(team, stage - kAhead);
  }
  return stage;
}
template <typename F>
STEMMA_ON_DEVICE void feed(const AttentionParams& params, const GroupTeam<F>& team,
                           std::int64_t total) {
  int stage = 0;
  for (std::int64_t round = 0; work_of(round, total) >= 0; ++round) {
    stage = feed_item(params, team, work_of(round, total), stage);
  }
  for (int i = kAhead; i > 0; --i) hand_over<F, 0>(team, stage - i);
}

}  // namespace stemma
