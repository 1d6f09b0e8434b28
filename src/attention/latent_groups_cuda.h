// What a team of hopper_latent_attention has in shared memory, and the warps that copy into it.
//
// A tile of 64 latent rows takes 72 KB, so that there are two slots, whose tiles take turns. A slot
// is full when both warps that copy its tiles have said that their copies are there, and free again
// when all warps that compute have said that their products are done. Two warps copy the even
// tiles and two the odd ones: copies of a tile begin when its slot is free, whether those of the
// tile before are there or not. Queries of an item come with its first tile.
//
// Included by hopper_*.cu alone.
//
// Thread:     code of kernels.
// Memory:     shared memory of the team: LatentForm::kSharedBytes, all but a KB of what there is.
// Cost:       a warp that copies has 72 copies and some 150 other instructions a tile.
// Not here:   what is computed (hopper_latent_attention_cuda.cu).
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/attention_products_cuda.h"
#include "attention/attention_rows_cuda.h"
#include "attention/attention_work_cuda.h"
#include "attention/group_weights_cuda.h"
#include "device/cuda_warpgroup.h"

namespace stemma {

template <typename T>
struct LatentForm {
  using Operand = T;
  static constexpr int kRows = 1;  // of 16 pairs, of a warp
  static constexpr int kKeys = kCudaTileKeys / 16;
  static constexpr int kPairs = kListPairs[kSharedPairs];
  static constexpr int kDim = int{kLatentDimMax};
  static constexpr int kGroupColumns = int{kLatentValueDimMax} / 2;  // of values, of a group
  static constexpr int kGroupWarps = 4;
  static constexpr int kComputingWarps = 2 * kGroupWarps;  // the first ones
  static constexpr int kCopyWarps = 4;
  static constexpr int kSlotWarps = kCopyWarps / 2;  // that copy tiles of a slot
  static constexpr int kCopiedKeys = kCudaTileKeys / kSlotWarps;
  static constexpr int kThreads = (kComputingWarps + kCopyWarps) * kWarpThreads;
  // Panels of 64 rows, of keys, queries and weights.
  static constexpr int kPanels = kDim / kPanelElements;
  static constexpr int kPanelBytes = kCudaTileKeys * kPanelRowBytes;
  static constexpr int kSlotBytes = kPanels * kPanelBytes;
  static constexpr int kLargestBytes = kPairs * 4;
  static constexpr int kBarriers = 7;
  static constexpr int kSharedBytes = 3 * kSlotBytes + kPanelBytes + kOnesBytes + kLargestBytes +
                                      kBarriers * static_cast<int>(sizeof(SharedBarrier));
  static constexpr int kResidents = 1;
  // Registers of a thread: of 65,536 all have 168 at first.
  static constexpr int kCopyRegisters = 56;
  static constexpr int kComputeRegisters = 224;
  static_assert(kPairs == kCudaTileKeys, "queries lie in panels of as many rows");
};

template <typename F>
struct LatentTeam {
  std::byte* slots;     // two, of a tile
  std::byte* queries;   // of the item
  std::byte* weights;   // [pairs, keys] of a tile, a panel
  std::byte* ones;      // a matrix of them
  float* largest;       // scores so far, of the pairs
  SharedBarrier* full;  // slots
  SharedBarrier* free;
  SharedBarrier* queries_free;
  SharedBarrier* weights_full;  // weights, and the largest scores
  SharedBarrier* weights_free;

  STEMMA_ON_DEVICE std::byte* slot(int step) const { return slots + step % 2 * F::kSlotBytes; }
};
template <typename F>
STEMMA_ON_DEVICE LatentTeam<F> latent_team() {
  LatentTeam<F> team;
  team.slots = shared_memory();
  team.queries = team.slots + 2 * F::kSlotBytes;
  team.weights = team.queries + F::kSlotBytes;
  team.ones = team.weights + F::kPanelBytes;
  team.largest = reinterpret_cast<float*>(team.ones + kOnesBytes);
  team.full = reinterpret_cast<SharedBarrier*>(team.largest + F::kPairs);
  team.free = team.full + 2;
  team.queries_free = team.free + 2;
  team.weights_full = team.queries_free + 1;
  team.weights_free = team.weights_full + 1;
  return team;
}

// Once a kernel: barriers, and ones to multiply weights with.
template <typename F>
STEMMA_ON_DEVICE void prepare(const LatentTeam<F>& team) {
  if (thread_index() == 0) {
    for (int i = 0; i < 2; ++i) {
      begin_barrier(team.full + i, F::kSlotWarps);
      begin_barrier(team.free + i, F::kComputingWarps);
    }
    for (int i = 0; i < 3; ++i) begin_barrier(team.queries_free + i, F::kGroupWarps);
  }
  write_ones<typename F::Operand>(team.ones);
  fence_shared_writes();
}

// Parities of barriers that have a phase each time, and of those that have one each second time,
// as those of slots.
STEMMA_ON_DEVICE int turn_of(int time) {
  return time & 1;
}
STEMMA_ON_DEVICE int slot_turn_of(int step) {
  return step / 2 & 1;
}
template <typename F>
STEMMA_ON_DEVICE void wait_full(const LatentTeam<F>& team, int step) {
  wait_for(&team.full[step % 2], slot_turn_of(step));
}
template <typename F>
STEMMA_ON_DEVICE void say_free(const LatentTeam<F>& team, int step) {
  arrive_as_warp(&team.free[step % 2]);
}

// An item and a KV head of the list; live: the team has one more.
struct LatentWork {
  AttentionItem item;
  std::int32_t kv_head;
  bool live;
};
STEMMA_ON_DEVICE LatentWork latent_work(const AttentionParams& params, int round) {
  const ItemSpan span = items_of(params, kSharedPairs);
  const std::int64_t work = team_x() + static_cast<std::int64_t>(round) * teams_x();
  if (work >= static_cast<std::int64_t>(span.count) * params.kv_heads) return {{}, 0, false};
  return {span.items[work / params.kv_heads], static_cast<std::int32_t>(work % params.kv_heads),
          true};
}

// ---- Copying. Of a row a lane has every eighth piece; of rows, every fourth.

// A warp's row of a tile or of queries that is the lane's i-th.
template <typename F>
STEMMA_ON_DEVICE int copied_row(int i) {
  return warp_index() % F::kSlotWarps * F::kCopiedKeys + 4 * i + lane_index() / 8;
}
inline constexpr int kCopiedPiecesApart = 8;

// Begins copies of the lane's pieces of a row, zeros where it is not wanted and beyond its end, of
// which nothing is read. `from`: the row's first piece of the lane.
template <typename F>
STEMMA_ON_DEVICE void copy_row(std::byte* panels, int row, const std::byte* from, bool wanted,
                               int head_dim) {
  const int pieces = wanted ? head_dim / 8 - lane_index() % 8 : 0;
  std::byte* const to = panels + panel_piece_at<F::kPairs>(row, lane_index() % 8);
  STEMMA_UNROLLED
  for (int p = 0; p < F::kPanels; ++p) {
    copy_words_later(to + p * F::kPanelBytes, from + p * kPanelRowBytes,
                     p * kCopiedPiecesApart < pieces);
  }
}

// Where the lane's key of the warp's in a tile lies; below 0: there is no such key.
template <typename F>
STEMMA_ON_DEVICE std::int64_t own_offset(const AttentionParams& params, const LatentWork& work,
                                         std::int32_t tile) {
  const int key = warp_index() % F::kSlotWarps * F::kCopiedKeys + lane_index();
  return offset_of(params, place_of(params, work.item, work.kv_head, tile * kCudaTileKeys + key));
}
template <typename F>
STEMMA_ON_DEVICE void copy_keys(std::byte* slot, const AttentionParams& params,
                                std::int64_t offset) {
  static_assert(F::kCopiedKeys == kWarpThreads);
  constexpr std::size_t kRows{F::kCopiedKeys / 4};
  std::int64_t from[kRows];
  STEMMA_UNROLLED
  for (int i = 0; i < int{kRows}; ++i) from[i] = shuffle(offset, 4 * i + lane_index() / 8);
  STEMMA_UNROLLED
  for (int i = 0; i < int{kRows}; ++i) {
    const bool wanted = from[i] >= 0;
    copy_row<F>(slot, copied_row<F>(i),
                params.k + (wanted ? from[i] : 0) + lane_index() % 8 * kPieceBytes, wanted,
                params.head_dim);
  }
}

// Those of a type that is not the operands' are narrowed on their way.
template <typename F>
STEMMA_ON_DEVICE void narrow_row(std::byte* panels, int row, const AttentionParams& params,
                                 std::int64_t first, bool wanted) {
  using T = typename F::Operand;
  STEMMA_ROLLED
  for (int p = 0; p < F::kPanels; ++p) {
    const int piece = p * kCopiedPiecesApart + lane_index() % 8;
    Words words = {};
    for (int w = 0; w < 4 && wanted && piece * 8 < params.head_dim; ++w) {
      words.w[w] = narrow_pair<T>(query_element(params, first + piece * 8 + 2 * w),
                                  query_element(params, first + piece * 8 + 2 * w + 1));
    }
    store_words(panels + panel_piece_at<F::kPairs>(row, piece), words);
  }
}
template <typename F>
STEMMA_ON_DEVICE void copy_queries(const LatentTeam<F>& team, const AttentionParams& params,
                                   const LatentWork& work) {
  const bool narrow = params.row_dtype != kDTypeOf<typename F::Operand>;
  STEMMA_ROLLED
  for (int i = 0; i < F::kCopiedKeys / 4; ++i) {
    const int row = copied_row<F>(i);
    const Pair pair = pair_of(params, work.item, work.kv_head, row);
    const bool wanted = pair.row >= 0;
    const std::int64_t first =
        wanted ? (static_cast<std::int64_t>(pair.row) * params.query_heads + pair.head) *
                     params.head_dim
               : 0;
    if (narrow) {
      narrow_row<F>(team.queries, row, params, first, wanted);
    } else {
      copy_row<F>(
          team.queries, row,
          static_cast<const std::byte*>(params.q) + 2 * first + lane_index() % 8 * kPieceBytes,
          wanted, params.head_dim);
    }
  }
}

// What a warp that copies does: its slot's tiles of all items of the team.
template <typename F>
STEMMA_ON_DEVICE void feed(const AttentionParams& params, const LatentTeam<F>& team) {
  const int slot = (warp_index() - F::kComputingWarps) / F::kSlotWarps;
  int step = 0;
  int round = 0;
  for (LatentWork work = latent_work(params, 0); work.live; work = latent_work(params, ++round)) {
    for (std::int32_t tile = work.item.first_tile; tile < work.item.end_tile; ++tile, ++step) {
      if (step % 2 != slot) continue;
      const std::int64_t offset = own_offset<F>(params, work, tile);
      wait_for(&team.free[slot], slot_turn_of(step) ^ 1);
      copy_keys<F>(team.slot(step), params, offset);
      if (tile == work.item.first_tile) {
        wait_for(team.queries_free, turn_of(round) ^ 1);
        copy_queries(team, params, work);
      }
      commit_copies();
      wait_copies<0>();
      fence_shared_writes();
      arrive_as_warp(&team.full[slot]);
    }
  }
}

}  // namespace stemma
