// LateRunner: a Runner that queues steps, over one that does not. A step is computed when somebody
// waits for it, or for the one before it, as is drawn: from a copy of its batch, and pages as they
// are by then. Pages that were given to others too soon show. Behind a step that failed nothing is
// computed: the next one fails as well.
//
// Thread:     tests.
// Memory:     copies of two batches.
// Cost:       that of the runner below.
// Not here:   anything that ships.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/prng.h"
#include "model/batch_message.h"
#include "model/sampler.h"
#include "stemma/runner.h"

namespace stemma {

class LateRunner final : public Runner {
 public:
  // `below` must outlive it.
  LateRunner(Runner& below, std::int64_t vocab_tokens, std::uint64_t seed)
      : below_(below), sampler_(vocab_tokens), prng_(seed) {}

  bool queues() const override { return true; }
  bool draws() const override { return can_draw; }
  bool waits_by_layer() const override { return below_.waits_by_layer(); }
  bool repeats_bits() const override { return below_.repeats_bits(); }
  const AdapterBook* adapters() const override { return below_.adapters(); }

  Result<LogitsView> forward(const KvBatch& batch, KvPools pools) override {
    STEMMA_CHECK(steps_.empty(), "nothing is queued");
    return below_.forward(batch, pools);
  }

  Result<std::optional<std::int64_t>> first_different_layer(KvPools pools,
                                                            const PagePair& pages) override {
    STEMMA_CHECK(steps_.empty(), "nothing is queued");
    return below_.first_different_layer(pools, pages);
  }
  Status copy_pages(KvPools pools, const PageCopies& copies) override {
    STEMMA_CHECK(steps_.empty(), "nothing is queued");
    return below_.copy_pages(pools, copies);
  }

  Status queue(const KvBatch& batch, KvPools pools, const StepWish& wish) override {
    STEMMA_CHECK(steps_.size() < 2, "at most one step was not waited for");
    if (prng_.below(1000) < refused_permille) return Error{ErrorCode::kInternal, "no room"};
    KvBatch whole = batch;
    whole.arriving = nullptr;
    STEMMA_CHECK(std::ssize(wish.choices) == batch.outputs(), "a choice for each output");
    steps_.push_back({.arriving = batch.arriving,
                      .pools = pools,
                      .choices = {wish.choices.begin(), wish.choices.end()},
                      .logits_wanted = wish.logits});
    write_batch(whole, steps_.back().batch);
    steps_.back().behind = steps_.size() == 2;
    queued_behind += steps_.back().behind ? 1 : 0;
    return {};
  }

  Result<StepOutputs> wait() override {
    STEMMA_CHECK(!steps_.empty(), "a step is queued");
    if (!steps_.front().computed) compute(steps_.front());
    given_.emplace(std::move(steps_.front()));
    steps_.pop_front();
    if (!steps_.empty() && computes_early && prng_.below(2) == 0) compute(steps_.front());
    STEMMA_RETURN_IF_ERROR(given_->status);
    StepOutputs outputs = {.logits = {}, .tokens = given_->chosen, .broken_rows = given_->broken};
    if (given_->logits_wanted) outputs.logits = given_->logits;
    outputs.logits.logits = given_->logits_values.data();
    if (spoil) spoil(outputs);
    return outputs;
  }

  bool can_draw = true;
  bool computes_early = true;         // now and then, a step that nobody waits for yet
  std::int64_t refused_permille = 0;  // of steps that are queued
  std::int64_t queued_behind = 0;     // steps, another that was not waited for
  TokenId breaking = -1;              // what is computed of this token is no number
  // What it makes of outputs that were right; may be empty. Lists that it points to outlive a step.
  std::function<void(StepOutputs&)> spoil = {};

 private:
  struct Step {
    std::vector<std::int64_t> batch = {};
    LayerGate* arriving;
    KvPools pools;
    std::vector<TokenChoice> choices = {};
    bool logits_wanted;
    bool behind = false;  // one that was not waited for
    bool computed = false;
    Status status = {};
    LogitsView logits = {};
    std::vector<float> logits_values = {};
    std::vector<TokenId> chosen = {};
    std::vector<std::int32_t> broken = {};
  };

  void compute(Step& step) {
    step.computed = true;
    if (step.behind && !last_.ok()) {
      step.status = last_;
      return;
    }
    last_ = compute_batch(step);
    step.status = last_;
  }

  Status compute_batch(Step& step) {
    KvBatch batch = std::move(read_batch(step.batch)).value();
    batch.arriving = step.arriving;
    std::vector<TokenId> tokens(batch.tokens.begin(), batch.tokens.end());
    for (TokenId& token : tokens) {
      if (token < 0) token = chosen_.at(static_cast<std::size_t>(-token - 1));
    }
    batch.tokens = tokens;
    for (const TokenId token : tokens) step.broken.push_back(token == breaking ? 1 : 0);
    const Result<LogitsView> logits = below_.forward(batch, step.pools);
    chosen_.assign(static_cast<std::size_t>(batch.outputs()), 0);
    STEMMA_RETURN_IF_ERROR(logits);
    step.logits = *logits;
    const float* const values = logits->logits;
    step.logits_values.assign(values, values + logits->outputs * logits->vocab_tokens);
    for (std::int64_t i = 0; i < logits->outputs; ++i) {
      const auto output = static_cast<std::size_t>(i);
      chosen_[output] = sampler_.try_choose(logits->row(i), step.choices[output]).value_or(-1);
    }
    step.chosen = chosen_;
    for (TokenId& token : chosen_) token = std::max(token, 0);  // nobody will look at it
    return {};
  }

  Runner& below_;
  Sampler sampler_;
  Prng prng_;
  std::deque<Step> steps_;
  Status last_;                  // of the step computed last
  std::vector<TokenId> chosen_;  // by the step computed last
  std::optional<Step> given_;    // by the last wait
};

}  // namespace stemma
