#include "model/leading_runner.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>
#include <span>

#include "base/check.h"
#include "device/rank_message.h"
#include "model/batch_message.h"
#include "stemma/log.h"

namespace stemma {

namespace {

constexpr std::size_t kChoiceWords = 5;
constexpr std::int64_t kNoLayer = std::numeric_limits<std::int64_t>::max();

void append_choice(const TokenChoice& choice, std::vector<std::int64_t>& words) {
  for (const double value :
       {double{choice.temperature}, double{choice.top_p}, double{choice.min_p}, choice.unit}) {
    words.push_back(std::bit_cast<std::int64_t>(value));
  }
  words.push_back(choice.top_k);
}

TokenChoice read_choice(std::span<const std::int64_t> words) {
  const auto number = [&](std::size_t i) { return std::bit_cast<double>(words[i]); };
  return {.temperature = static_cast<float>(number(0)),
          .top_k = words[4],
          .top_p = static_cast<float>(number(1)),
          .min_p = static_cast<float>(number(2)),
          .unit = number(3)};
}

PageId page_of(std::int64_t word) {
  return PageId(static_cast<PageId::rep>(word));
}

PageCopies read_copies(std::span<const std::int64_t> words) {
  STEMMA_CHECK_EQ(words.size(), std::size_t{4});
  return {page_of(words[0]), page_of(words[1]), page_of(words[2]), page_of(words[3])};
}

// The batch that was told, whose pages may arrive at `gate_or_null`.
Result<KvBatch> told_batch(std::span<const std::int64_t> words, LayerGate* gate_or_null) {
  STEMMA_ASSIGN_OR_RETURN(KvBatch batch, read_batch(words));
  batch.arriving = gate_or_null;
  return batch;
}

Status compute(Runner& own, const KvPools& pools, std::span<const std::int64_t> words,
               LayerGate* gate_or_null) {
  STEMMA_ASSIGN_OR_RETURN(const KvBatch batch, told_batch(words, gate_or_null));
  const Result<LogitsView> computed = own.forward(batch, pools);
  return computed.ok() ? Status() : Status(computed.error());
}

Status queue_step(Runner& own, const KvPools& pools, std::span<const std::int64_t> words,
                  std::size_t choice_count, LayerGate* gate_or_null) {
  const std::size_t batch_words = words.size() - kChoiceWords * choice_count;
  STEMMA_ASSIGN_OR_RETURN(const KvBatch batch, told_batch(words.first(batch_words), gate_or_null));
  std::vector<TokenChoice> choices;
  for (std::size_t at = batch_words; at < words.size(); at += kChoiceWords) {
    choices.push_back(read_choice(words.subspan(at, kChoiceWords)));
  }
  return own.queue(batch, pools, {.choices = choices, .logits = false});
}

// The first layer in which the two pages of `words` differ on each rank, or kNoLayer. An error is
// the same on all.
Result<std::vector<std::int64_t>> compare_pages(Runner& own, const KvPools& pools,
                                                std::span<const std::int64_t> words,
                                                RankGroup& ranks) {
  STEMMA_CHECK_EQ(words.size(), std::size_t{3});
  const auto compared =
      own.first_different_layer(pools, {page_of(words[0]), page_of(words[1]), words[2] != 0});
  STEMMA_RETURN_IF_ERROR(agree(ranks, compared.ok() ? Status() : Status(compared.error())));
  const std::int64_t layer = compared->value_or(kNoLayer);
  std::vector<std::int64_t> layers(static_cast<std::size_t>(ranks.ranks()));
  STEMMA_RETURN_IF_ERROR(ranks.all_gather(std::as_bytes(std::span(&layer, 1)),
                                          std::as_writable_bytes(std::span(layers))));
  return layers;
}

Status await_step(Runner& own) {
  const Result<StepOutputs> outputs = own.wait();
  return outputs.ok() ? Status() : Status(outputs.error());
}

}  // namespace

LeadingRunner::~LeadingRunner() {
  ignore_error(tell(ranks_, {RankTask::kEnd}, {}), "ranks that cannot be reached have gone");
}

// `batch` for this rank, and in words_ for the others.
KvBatch LeadingRunner::write(const KvBatch& batch) {
  KvBatch whole = batch;
  whole.arriving = nullptr;
  write_batch(whole, words_);
  if (batch.arriving == nullptr) return whole;
  gate_.inner = batch.arriving;
  whole.arriving = &gate_;
  return whole;
}

Result<LogitsView> LeadingRunner::forward(const KvBatch& batch, KvPools pools) {
  const KvBatch own = write(batch);
  const std::int64_t arriving = own.arriving != nullptr ? 1 : 0;
  STEMMA_RETURN_IF_ERROR(tell(ranks_, {.task = RankTask::kForward, .arriving = arriving}, words_));
  Result<LogitsView> logits = own_.forward(own, pools);
  STEMMA_RETURN_IF_ERROR(agree(ranks_, logits.ok() ? Status() : Status(logits.error())));
  return logits;
}

Status LeadingRunner::queue(const KvBatch& batch, KvPools pools, const StepWish& wish) {
  const KvBatch own = write(batch);
  for (const TokenChoice& choice : wish.choices) append_choice(choice, words_);
  const RankMessage message = {.task = RankTask::kQueue,
                               .choices = std::ssize(wish.choices),
                               .arriving = own.arriving != nullptr ? 1 : 0};
  STEMMA_RETURN_IF_ERROR(tell(ranks_, message, words_));
  return own_.queue(own, pools, wish);
}

Result<StepOutputs> LeadingRunner::wait() {
  STEMMA_RETURN_IF_ERROR(tell(ranks_, {RankTask::kWait}, {}));
  Result<StepOutputs> outputs = own_.wait();
  STEMMA_RETURN_IF_ERROR(agree(ranks_, outputs.ok() ? Status() : Status(outputs.error())));
  return outputs;
}

Status LeadingRunner::copy_pages(KvPools pools, const PageCopies& copies) {
  words_ = {copies.from.value(), copies.to.value(), copies.windowed_from.value(),
            copies.windowed_to.value()};
  STEMMA_RETURN_IF_ERROR(tell(ranks_, {RankTask::kCopyPages}, words_));
  return agree(ranks_, own_.copy_pages(pools, copies));
}

Result<std::optional<std::int64_t>> LeadingRunner::first_different_layer(KvPools pools,
                                                                         const PagePair& pages) {
  words_ = {pages.a.value(), pages.b.value(), pages.windowed ? 1 : 0};
  STEMMA_RETURN_IF_ERROR(tell(ranks_, {RankTask::kComparePages}, words_));
  STEMMA_ASSIGN_OR_RETURN(const std::vector<std::int64_t> layers,
                          compare_pages(own_, pools, words_, ranks_));
  for (std::size_t rank = 0; rank < layers.size(); ++rank) {
    if (layers[rank] == kNoLayer) continue;
    STEMMA_LOG(kWarning, "ranks.pages_differ", kv("rank", rank), kv("layer", layers[rank]));
  }
  const std::int64_t first = *std::min_element(layers.begin(), layers.end());
  return first == kNoLayer ? std::nullopt : std::optional(first);
}

Status follow_leader(Runner& own, KvPools pools, RankGroup& ranks, const FollowedTiers& tiers) {
  STEMMA_CHECK(ranks.rank() > 0, "rank 0 leads");
  std::vector<std::int64_t> words;
  for (;;) {
    STEMMA_ASSIGN_OR_RETURN(const RankMessage message, hear(ranks, words));
    LayerGate* const gate_or_null = message.arriving != 0 ? tiers.arriving : nullptr;
    switch (message.task) {
      case RankTask::kEnd:
        return {};
      case RankTask::kForward:
      case RankTask::kWait: {
        const bool waits = message.task == RankTask::kWait;
        const Status computed = waits ? await_step(own) : compute(own, pools, words, gate_or_null);
        ignore_error(agree(ranks, computed), "rank 0 says it to its requests");
        break;
      }
      case RankTask::kQueue:
        ignore_error(
            queue_step(own, pools, words, static_cast<std::size_t>(message.choices), gate_or_null),
            "rank 0 has the same");
        break;
      case RankTask::kCopyPages:
        ignore_error(agree(ranks, own.copy_pages(pools, read_copies(words))),
                     "rank 0 says it to who wanted the copy");
        break;
      case RankTask::kComparePages: {
        const auto layers = compare_pages(own, pools, words, ranks);
        ignore_error(layers.ok() ? Status() : Status(layers.error()), "rank 0 has the same");
        break;
      }
      case RankTask::kOpenLanes:
      case RankTask::kTransfer:
      case RankTask::kReport:
      case RankTask::kLayers:
      case RankTask::kLookup:
      case RankTask::kHostFile:
        STEMMA_CHECK(tiers.listener != nullptr, "all ranks have lower tiers, or none");
        STEMMA_RETURN_IF_ERROR(tiers.listener->told(message.task, words));
        break;
    }
  }
}

}  // namespace stemma
