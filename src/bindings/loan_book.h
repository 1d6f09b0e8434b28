// LoanBook: which sequences of a cache name pages that are still arriving, for callers who may do
// everything wrong: what KvCache::lend requires is asked for here.
//
// Thread:     as KvCache.                                  Invariants: I8, I9 (docs/INVARIANTS.md).
// Memory:     the text of each sequence on loan, until the step has ended.
// Cost:       a copy of that text.
// Not here:   what is lent (KvCache), how callers say it (c_loans, python/tiers).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "stemma/kv_cache.h"

namespace stemma {

class LoanBook {
 public:
  // As KvCache::lend. kInvalidArgument: the sequence is on loan already, or holds more than begin
  // found, or of `tokens` there are no more than it holds; kTooLarge: more than the cache takes.
  Result<std::int64_t> lend(KvCache& kv, Sequence& sequence, std::span<const TokenId> tokens,
                            PromotionId id);
  // The sequence gives everything back.
  void forget(const Sequence& sequence);
  // Releases a promotion, at once or when what it brings is not lent any more.
  void release(KvCache& kv, PromotionId id);
  // The step has ended: see KvCache::await_lent and end_loan. REQUIRES: no step is in flight.
  [[nodiscard]] bool end(KvCache& kv);
  // Releases what still waits to be. For the end of the cache.
  void close(KvCache& kv);

 private:
  struct Loan {
    Sequence* sequence;
    std::vector<TokenId> tokens;
  };

  std::vector<Loan> loans_;
  std::vector<PromotionId> let_go_;  // while pages of theirs are lent
};

}  // namespace stemma
