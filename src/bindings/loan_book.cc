#include "bindings/loan_book.h"

#include <utility>

namespace stemma {

namespace {

Status check_lendable(const KvCache& kv, const Sequence& sequence, std::int64_t tokens) {
  if (sequence.on_loan()) {
    return Error{ErrorCode::kInvalidArgument, "the sequence names pages on loan already", 0};
  }
  const std::int64_t held = sequence.cached_tokens();
  if (sequence.published_tokens() != held || sequence.capacity_tokens() != held) {
    return Error{ErrorCode::kInvalidArgument, "the sequence holds more than begin found", 0};
  }
  if (tokens <= held) {
    return Error{ErrorCode::kInvalidArgument, "no more tokens than the sequence holds", 0};
  }
  if (tokens > kv.options().context_tokens_max) {
    return Error{ErrorCode::kTooLarge, "more than context_tokens_max", 0};
  }
  return {};
}

}  // namespace

Result<std::int64_t> LoanBook::lend(KvCache& kv, Sequence& sequence,
                                    std::span<const TokenId> tokens, PromotionId id) {
  STEMMA_RETURN_IF_ERROR(check_lendable(kv, sequence, std::ssize(tokens)));
  const std::int64_t named = kv.lend(sequence, tokens, id);
  if (sequence.on_loan()) loans_.push_back({&sequence, {tokens.begin(), tokens.end()}});
  return named;
}

void LoanBook::forget(const Sequence& sequence) {
  std::erase_if(loans_, [&](const Loan& loan) { return loan.sequence == &sequence; });
}

void LoanBook::release(KvCache& kv, PromotionId id) {
  if (kv.arriving_or_null() != nullptr) {
    let_go_.push_back(id);
  } else {
    kv.release_promotion(id, PromotionUse::kWaiting);
  }
}

bool LoanBook::end(KvCache& kv) {
  bool whole = kv.await_lent();
  for (const Loan& loan : std::exchange(loans_, {})) {
    whole = kv.end_loan(*loan.sequence, loan.tokens) && whole;
  }
  close(kv);
  return whole;
}

void LoanBook::close(KvCache& kv) {
  for (const PromotionId id : std::exchange(let_go_, {})) {
    kv.release_promotion(id, PromotionUse::kWaiting);
  }
}

}  // namespace stemma
