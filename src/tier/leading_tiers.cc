#include "tier/leading_tiers.h"

#include <algorithm>
#include <string>

namespace stemma {

LeadingTiers::LeadingTiers(LowerTiers& own, RankGroup& ranks, const Clock& clock)
    : own_(own), ranks_(ranks), clock_(clock), transfers_(own, ranks, clock), host_files_(ranks) {
  for (PageStore* const store : own.stores()) {
    stores_.push_back(std::make_unique<LeadingStore>(*store, stores_.size(), transfers_, ranks));
    store_list_.push_back(stores_.back().get());
  }
}

Result<std::int64_t> LeadingStore::lookup(std::span<const PageKey> keys, std::int64_t) {
  write_lookup(number_, keys, words_);
  STEMMA_RETURN_IF_ERROR(tell(ranks_, {RankTask::kLookup}, words_));
  STEMMA_RETURN_IF_ERROR(transfers_.told(RankTask::kLookup, words_));
  std::int64_t found = std::ssize(keys);
  for (int rank = 0; rank < ranks_.ranks(); ++rank) {
    const std::int64_t own = transfers_.reports_of(rank).front();
    if (own < 0) {
      return Error{ErrorCode::kIo, "rank " + std::to_string(rank) + ": its store does not answer"};
    }
    found = std::min(found, own);
  }
  return found;
}

}  // namespace stemma
