// Every step is two broadcasts: what it is and how many words say it, and these words.
#include "model/leading_runner.h"

#include <span>

#include "base/check.h"
#include "model/batch_message.h"

namespace stemma {

namespace {

enum class Step : std::int64_t { kEnd, kForward, kCopyPages };

struct StepHead {
  Step step = Step::kEnd;
  std::int64_t words = 0;
};

Status tell(RankGroup& ranks, Step step, std::span<std::int64_t> words) {
  StepHead head = {step, static_cast<std::int64_t>(words.size())};
  STEMMA_RETURN_IF_ERROR(ranks.broadcast(std::as_writable_bytes(std::span(&head, 1))));
  return words.empty() ? Status() : ranks.broadcast(std::as_writable_bytes(words));
}

Result<Step> hear(RankGroup& ranks, std::vector<std::int64_t>& words) {
  StepHead head;
  STEMMA_RETURN_IF_ERROR(ranks.broadcast(std::as_writable_bytes(std::span(&head, 1))));
  words.resize(static_cast<std::size_t>(head.words));
  if (head.words > 0) {
    STEMMA_RETURN_IF_ERROR(ranks.broadcast(std::as_writable_bytes(std::span(words))));
  }
  return head.step;
}

PageId page_of(std::int64_t word) {
  return PageId(static_cast<PageId::rep>(word));
}

PageCopies read_copies(std::span<const std::int64_t> words) {
  STEMMA_CHECK_EQ(words.size(), std::size_t{4});
  return {page_of(words[0]), page_of(words[1]), page_of(words[2]), page_of(words[3])};
}

Status compute(Runner& own, const KvPools& pools, std::span<const std::int64_t> words) {
  STEMMA_ASSIGN_OR_RETURN(const KvBatch batch, read_batch(words));
  const Result<LogitsView> computed = own.forward(batch, pools);
  return computed.ok() ? Status() : Status(computed.error());
}

}  // namespace

LeadingRunner::~LeadingRunner() {
  ignore_error(tell(ranks_, Step::kEnd, {}), "ranks that cannot be reached have gone");
}

Result<LogitsView> LeadingRunner::forward(const KvBatch& batch, KvPools pools) {
  write_batch(batch, words_);
  STEMMA_RETURN_IF_ERROR(tell(ranks_, Step::kForward, words_));
  Result<LogitsView> logits = own_.forward(batch, pools);
  STEMMA_RETURN_IF_ERROR(agree(ranks_, logits.ok() ? Status() : Status(logits.error())));
  return logits;
}

Status LeadingRunner::copy_pages(KvPools pools, const PageCopies& copies) {
  words_ = {copies.from.value(), copies.to.value(), copies.windowed_from.value(),
            copies.windowed_to.value()};
  STEMMA_RETURN_IF_ERROR(tell(ranks_, Step::kCopyPages, words_));
  return own_.copy_pages(pools, copies);
}

Status follow_leader(Runner& own, KvPools pools, RankGroup& ranks) {
  STEMMA_CHECK(ranks.rank() > 0, "rank 0 leads");
  std::vector<std::int64_t> words;
  Status copied;  // told with the next step
  for (;;) {
    STEMMA_ASSIGN_OR_RETURN(const Step step, hear(ranks, words));
    if (step == Step::kEnd) return {};
    if (step == Step::kCopyPages) {
      const Status now = own.copy_pages(pools, read_copies(words));
      if (copied.ok()) copied = now;
      continue;
    }
    const Status computed = compute(own, pools, words);
    ignore_error(agree(ranks, copied.ok() ? computed : copied), "rank 0 says it to its requests");
    copied = Status();
  }
}

}  // namespace stemma
