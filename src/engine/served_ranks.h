// ServedRanks: what ranks make sure of before they serve a model together.
//
// Thread:     the thread that opens the model.
// Memory:     none.
// Cost:       a few broadcasts and gathers.
// Not here:   the steps (model/leading_runner), how ranks talk (device/rank_group).
#pragma once

#include <cstdint>
#include <string_view>

#include "device/rank_group.h"
#include "engine/served_model.h"
#include "stemma/lower_tiers.h"
#include "stemma/prefix_cache.h"
#include "stemma/result.h"

namespace stemma {

// What must be the same on every rank.
struct RankTerms {
  std::int64_t pages = 0;
  std::int64_t windowed_pages = 0;
  std::int64_t host_pages = 0;  // below these; 0: there are no lower tiers
  std::int64_t host_windowed_pages = 0;
  NamespaceDigest digest = {};    // of the model, formats, arithmetic, stores, limits of a batch
  NamespaceDigest adapters = {};  // of what they compute and how they are called, in their order
};

// What a rank has.
struct RankParts {
  const LoadedRunner& runner;
  const KvPool& pool;
  const LowerTiers* tiers_or_null = nullptr;
  const EngineOptions& options;
  std::string_view tier_codec = "plain";
};

RankTerms rank_terms(const RankParts& parts);

// Nothing where all ranks have rank 0's terms; else the same error on all: it names the rank and
// what differs.
Status agree_on_terms(RankGroup& ranks, const RankTerms& own);

// Rank 0's namespace: what pages of all ranks are found in.
Result<NamespaceDigest> leading_namespace(RankGroup& ranks, const NamespaceDigest& own);

}  // namespace stemma
