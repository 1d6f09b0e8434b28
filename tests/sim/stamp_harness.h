// StampHarness: an engine over a StampModel and a real pool, driven step by step, with the audit
// after each step and every output compared with its closed form.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/prng.h"
#include "sim/metric_of.h"
#include "sim/simulated_tiers.h"
#include "sim/stamp_model.h"
#include "stemma/engine.h"

namespace stemma {

class StampHarness {
 public:
  struct Outcome {
    std::vector<TokenId> tokens;
    FinishReason finish = FinishReason::kNone;
    RequestStats stats;
  };

  explicit StampHarness(const EngineOptions& options, KvLayout layout = KvLayout::kLayerFirst,
                        const SimulatedTierOptions* tiers_or_null = nullptr)
      : options_(options),
        pool_(make_stamp_pool(stamp_shape(options.kv.pages, options.kv.page_size), layout)) {
    if (options.kv.window_tokens > 0) {
      windowed_pool_ =
          make_stamp_pool(stamp_shape(options.kv.windowed_pages, options.kv.page_size), layout);
      model_.look_back(options.kv.window_tokens);
    }
    if (tiers_or_null != nullptr) {
      tiers_ =
          std::make_unique<SimulatedTiers>(*tiers_or_null, *pool_, clock_, windowed_pool_.get());
    }
    open_engine();
  }

  // The engine is gone and comes back: what only it knew is lost, what stores keep is not.
  // REQUIRES: nothing is left to do.
  void restart() {
    engine_.reset();
    prompts_.clear();
    outcomes_.clear();
    open_engine();
  }

  RequestId submit(std::vector<TokenId> prompt, std::int64_t max_tokens) {
    RequestSpec spec;
    spec.prompt = prompt;
    spec.max_tokens = max_tokens;
    return submit(std::move(spec));
  }

  RequestId submit(RequestSpec spec) {
    std::vector<TokenId> prompt = spec.prompt;
    auto id = engine_->submit(std::move(spec));
    EXPECT_TRUE(id.ok()) << to_string(id.error());
    prompts_[*id] = std::move(prompt);
    return *id;
  }

  // One step, audited. False if there was nothing to do.
  bool step() {
    if (engine_->idle()) {
      return false;
    }
    clock_.advance_us(1);
    const StepReport report = engine_->step();
    ++steps_;
    in_flight_max_ = std::max(in_flight_max_, report.requests);
    for (const EngineEvent& event : report.events) {
      Outcome& outcome = outcomes_[event.request];
      EXPECT_EQ(outcome.finish, FinishReason::kNone) << "no event after the end";
      if (event.token >= 0) {
        outcome.tokens.push_back(event.token);
      }
      outcome.finish = event.finish;
      outcome.stats = event.stats;
    }
    if (audits_) {
      const auto contradiction = engine_->audit();
      EXPECT_FALSE(contradiction.has_value()) << *contradiction;
    }
    EXPECT_EQ(model_.fault(), "");
    return true;
  }

  // Steps until nothing is left; a limit far beyond any honest run catches a standstill.
  void run() {
    for (int left = 100'000; left > 0 && step(); --left) {
      if (::testing::Test::HasFailure()) {
        return;
      }
    }
    EXPECT_TRUE(engine_->idle()) << "no progress (I12)";
  }

  // Every output so far is the beginning of its closed form, all of it where it was finished.
  void expect_closed_form() {
    for (const auto& [id, outcome] : outcomes_) {
      const auto wanted =
          stamp_output(prompts_[id], static_cast<std::int64_t>(outcome.tokens.size()));
      EXPECT_EQ(outcome.tokens, wanted) << "request " << id;
    }
  }

  Engine& engine() { return *engine_; }
  StampModel& model() { return model_; }
  const Outcome& outcome(RequestId id) { return outcomes_[id]; }
  std::int64_t steps() const { return steps_; }
  std::int64_t in_flight_max() const { return in_flight_max_; }
  void set_audits(bool audits) { audits_ = audits; }

  SimulatedTiers& tiers() { return *tiers_; }
  FakeClock& clock() { return clock_; }
  std::int64_t metric(std::string_view name) const { return metric_of(*engine_, name); }

 private:
  void open_engine() {
    auto engine = Engine::open(options_, {.runner = model_,
                                          .pools = {*pool_, windowed_pool_.get()},
                                          .vocab_tokens = kStampVocab,
                                          .clock = clock_,
                                          .lower_tiers = tiers_.get()});
    EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : to_string(engine.error()));
    engine_ = std::move(engine).value();
  }

  EngineOptions options_;
  FakeClock clock_;
  StampModel model_;
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<KvPool> windowed_pool_;  // nullptr: no layers look back over a window
  std::unique_ptr<SimulatedTiers> tiers_;
  std::unique_ptr<Engine> engine_;
  std::map<RequestId, std::vector<TokenId>> prompts_;
  std::map<RequestId, Outcome> outcomes_;
  std::int64_t steps_ = 0;
  std::int64_t in_flight_max_ = 0;
  bool audits_ = true;
};

// `tokens` tokens that are a function of `seed` alone.
inline std::vector<TokenId> some_tokens(std::uint64_t seed, std::int64_t tokens) {
  Prng prng(seed);
  std::vector<TokenId> out;
  for (std::int64_t i = 0; i < tokens; ++i) {
    out.push_back(static_cast<TokenId>(prng.below(kStampVocab)));
  }
  return out;
}

inline std::vector<TokenId> joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace stemma
