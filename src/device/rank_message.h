// RankMessage: what rank 0 tells the others to do: a task, and words that say more.
//
// Thread:     as RankGroup.
// Memory:     the listener's words, which keep their room.
// Cost:       two broadcasts; one where there are no words.
// Not here:   what the words of a task mean (model/leading_runner, tier/rank_transfers).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/rank_group.h"
#include "stemma/result.h"

namespace stemma {

enum class RankTask : std::int64_t {
  kEnd,
  // Of steps (model/leading_runner).
  kForward,
  kQueue,
  kWait,
  kCopyPages,
  kComparePages,
  // Of transfers (tier/rank_transfers).
  kOpenLanes,
  kTransfer,
  kReport,
  kLayers,
  kLookup,
  // Of the files that host memory survives in (tier/rank_host_image).
  kHostFile,
};

struct RankMessage {
  RankTask task = RankTask::kEnd;
  std::int64_t choices = 0;   // of kQueue, behind the batch
  std::int64_t arriving = 0;  // 1: pages of the batch may still be arriving
};

// Rank 0: all others hear it next. REQUIRES: they listen.
Status tell(RankGroup& ranks, const RankMessage& message, std::span<std::int64_t> words);
// The other ranks: waits for what rank 0 tells next.
Result<RankMessage> hear(RankGroup& ranks, std::vector<std::int64_t>& words);

// Does tasks that are no steps, on ranks that follow.
class RankListener {
 public:
  virtual ~RankListener() = default;

  // An error only where the other ranks cannot be reached any more.
  virtual Status told(RankTask task, std::span<const std::int64_t> words) = 0;
};

}  // namespace stemma
