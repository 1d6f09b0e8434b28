// Expert choice on a GPU: which experts of a mixture each row goes to and with which weights, by
// the rules of the CPU (model/expert_choice.h), and which rows each expert gets.
//
// A row that goes to an expert is a *visit*; visit row × row_experts + i is the row's expert i, in
// ascending order. For products over experts visits are sorted by expert, those of one expert in
// ascending order, and cut into tiles. The host knows how many visits there are, but not of which
// expert: it launches for as many tiles as there can be, of which some have no visits.
//
// A row's choice depends on that row alone (I13): scores are f32, exponentials are those of double,
// rounded; sums run in the order of the experts; of equal scores the lower expert wins, and NaN
// loses against everything.
//
// Thread:     as CudaStream.
// Memory:     none; addresses are the device's.
// Cost:       microseconds, for few rows that of the launches; sorting reads all visits once for
//             each expert, from the cache.
// Not here:   the scores (a product), computing experts (experts_cuda).
#pragma once

#include <cstdint>

#include "device/cuda_device.h"
#include "stemma/result.h"

namespace stemma {

inline constexpr std::int64_t kRowExpertsMax = 32;  // that a row goes to

struct ChooseExperts {
  const float* scores = nullptr;      // [slices, rows, experts]; the sum over slices, in order
  const float* correction = nullptr;  // [experts]; nullptr: softmax, else sigmoids that are chosen
                                      // after this was added
  std::int32_t* chosen = nullptr;     // [rows, row_experts], ascending
  float* weights = nullptr;           // [rows, row_experts]
  std::int64_t rows = 0;
  std::int64_t slices = 1;
  std::int64_t experts = 0;
  std::int64_t row_experts = 0;  // up to kRowExpertsMax
  std::int64_t groups = 1;       // equal runs of experts, of which row_groups are open to a row;
  std::int64_t row_groups = 1;   // a group counts as its best expert, or, corrected, its two best
  bool normalised = false;       // weights of a row are divided by their sum,
  float scaling = 1;             // and multiplied by this
};
Status choose_experts(CudaStream& stream, const ChooseExperts& params);

// Visits of one expert, one behind the other.
struct ExpertTile {
  std::int32_t expert = -1;  // -1: no visits
  std::int32_t first = 0;    // of the sorted visits
  std::int32_t visits = 0;
};

struct SortVisits {
  // [visits]: the experts; each from 0 to experts - 1. Aligned to 16 bytes.
  const std::int32_t* chosen = nullptr;
  std::int32_t* sorted = nullptr;  // [visits]: visits, sorted by expert
  std::int32_t* rows = nullptr;    // [visits]: the rows of these
  ExpertTile* tiles = nullptr;     // [tiles_count], those without visits last
  std::int64_t visits = 0;
  std::int64_t row_experts = 0;
  std::int64_t experts = 0;
  std::int64_t tile_visits = 0;  // that a tile has at most
  std::int64_t tiles_count = 0;  // at least expert_tiles_max
};
Status sort_visits(CudaStream& stream, const SortVisits& params);

// The most tiles that so many visits can need.
constexpr std::int64_t expert_tiles_max(std::int64_t visits, std::int64_t experts,
                                        std::int64_t tile_visits) {
  const std::int64_t cut = visits / tile_visits + (visits < experts ? visits : experts);
  return visits < cut ? visits : cut;
}

}  // namespace stemma
