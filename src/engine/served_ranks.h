// ServedRanks: what ranks make sure of before they serve a model together.
//
// Thread:     the thread that opens the model.
// Memory:     none.
// Cost:       a broadcast and a gather.
// Not here:   the steps (model/leading_runner), how ranks talk (device/rank_group).
#pragma once

#include <cstdint>

#include "device/rank_group.h"
#include "engine/served_model.h"
#include "stemma/prefix_cache.h"
#include "stemma/result.h"

namespace stemma {

// What must be the same on every rank.
struct RankTerms {
  std::int64_t pages = 0;
  std::int64_t windowed_pages = 0;
  NamespaceDigest digest;  // of the model, its formats, its arithmetic and the limits of a batch
};

// The terms of a rank that computes with `runner` and `pool`.
RankTerms rank_terms(const LoadedRunner& runner, const KvPool& pool, const EngineOptions& options);

// Nothing where all ranks have rank 0's terms; else the same error on all: it names the rank and
// what differs.
Status agree_on_terms(RankGroup& ranks, const RankTerms& own);

// What an engine of several ranks cannot do yet, by its flag.
Status check_ranked(const ServedModelOptions& options);

}  // namespace stemma
