// Shard: which part of a model a rank holds. The same on every device.
//
// Every matrix is cut by its outputs, never by what they are summed over, so that each output is
// the same chain of additions as on one rank, bit for bit (I13, docs/decisions/0012). Heads are cut
// evenly; other outputs as evenly as they go. Norms, embeddings, routers of mixtures and what makes
// latent rows are whole on every rank.
//
// Thread:     values and pure functions.                   Invariants: I13 (docs/INVARIANTS.md).
// Memory:     none.
// Cost:       none.
// Not here:   which tensors these are (weights), how parts come together (rank_rows).
#pragma once

#include <cstdint>

#include "base/math.h"
#include "device/rank_group.h"
#include "model/config.h"
#include "stemma/result.h"

namespace stemma {

// Neighbouring outputs of a matrix: its rows as a file holds it.
struct OutputRange {
  std::int64_t first = 0;
  std::int64_t outputs = 0;
};

struct Shard {
  int rank = 0;
  int ranks = 1;  // 1: it holds everything

  // That of this one of several ranks; nullptr: one alone.
  static Shard of(const RankGroup* ranks_or_null) {
    if (ranks_or_null == nullptr) return {};
    return {ranks_or_null->rank(), ranks_or_null->ranks()};
  }

  // The part of `outputs` that `of_rank` holds.
  OutputRange range(std::int64_t outputs, int of_rank) const {
    const std::int64_t first = outputs * of_rank / ranks;
    return {first, outputs * (of_rank + 1) / ranks - first};
  }
  // The part that this rank holds.
  OutputRange range(std::int64_t outputs) const { return range(outputs, rank); }
  // The most that one rank holds.
  std::int64_t most(std::int64_t outputs) const { return ceil_div(outputs, std::int64_t{ranks}); }
};

// The model as this rank's part of attention sees it: with its own heads, and the same otherwise.
// kInvalidArgument with the numbers where heads do not divide over ranks, and where a matrix has
// fewer outputs than there are ranks.
Result<ModelConfig> config_of_shard(const ModelConfig& config, const Shard& shard);

}  // namespace stemma
