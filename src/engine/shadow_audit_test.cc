// The shadow audit: right pages are never complained of and nothing changes; a bit that is flipped
// behind the cache's back, or a page that was computed wrong, is found, and from then on nobody
// gets to see it, in whatever tier it was copied to meanwhile.
#include "engine/shadow_audit.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/late_runner.h"
#include "engine/shadow_audit_fixture.h"

namespace stemma {
namespace {

using Tokens = std::vector<TokenId>;

class ShadowAuditTest : public ShadowAuditFixture {};

TEST_F(ShadowAuditTest, PercentsThatAreNoneAreRefused) {
  for (const double percent : {-1.0, 100.5, std::nan("")}) {
    options_.shadow_audit_percent = percent;
    EXPECT_FALSE(validate(options_).ok()) << percent;
  }
}

TEST_F(ShadowAuditTest, ARunnerWhoseBitsDependOnTheBatchIsRefused) {
  class Vague final : public Runner {
   public:
    Result<LogitsView> forward(const KvBatch&, KvPools) override { return LogitsView(); }
    bool repeats_bits() const override { return false; }
  } vague;
  pool_ = HashModel::make_pool(options_.kv);
  const auto engine = Engine::open(
      options_,
      {.runner = vague, .pools = {*pool_}, .vocab_tokens = HashModel::kVocab, .clock = clock_});
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(engine.error().detail, testing::HasSubstr("depend on the batch"));
}

TEST_F(ShadowAuditTest, AHitIsComputedAgainAndItsPageIsRight) {
  open();
  ask(text(1, 30), 3);
  EXPECT_EQ(engine_->totals().shadow_audits, 0) << "nothing was found in the cache";
  const std::int64_t rows = model_.computed_rows;
  EXPECT_EQ(ask(text(1, 30), 3).stats.cached_tokens, 28);
  EXPECT_EQ(engine_->totals().shadow_audits, 1);
  EXPECT_EQ(engine_->totals().shadow_audit_mismatches, 0);
  EXPECT_EQ(model_.computed_rows - rows, 4 + 4) << "two of the prompt, two outputs, and a page";
  EXPECT_EQ(engine_->kv().available_pages(), 100);
}

// A copy found nothing by itself, however long it goes on.
TEST_F(ShadowAuditTest, CopiesOfARequestAreOneHit) {
  open();
  ask(text(1, 30), 1);
  RequestSpec copies;
  copies.prompt = text(1, 30);
  copies.max_tokens = 20;
  copies.copies = 4;
  ASSERT_TRUE(engine_->submit(std::move(copies)).ok());
  run();
  EXPECT_EQ(engine_->totals().forks, 3);
  EXPECT_EQ(engine_->totals().shadow_audits, 1);
  EXPECT_EQ(engine_->totals().shadow_audits_skipped, 0);
}

TEST_F(ShadowAuditTest, PagesLongerThanAStepAreComputedInPieces) {
  options_.kv.page_size = 32;
  options_.scheduler.step_tokens_max = 10;
  open();
  ask(text(1, 70), 3);
  ask(text(1, 70), 3);
  EXPECT_EQ(engine_->totals().shadow_audits, 1);
  EXPECT_EQ(engine_->totals().shadow_audit_mismatches, 0);
  flip(RequestId(1), 1);
  ask(text(1, 70), 3);
  EXPECT_EQ(engine_->totals().shadow_audit_mismatches, 1);
}

TEST_F(ShadowAuditTest, WithoutACacheThereIsNothingToAudit) {
  options_.kv.cache = "none";
  open();
  ask(text(1, 30), 3);
  ask(text(1, 30), 3);
  EXPECT_EQ(engine_->totals().shadow_audits + engine_->totals().shadow_audits_skipped, 0);
}

// A stream of requests that share prefixes, more than fit, in several namespaces.
class Workload {
 public:
  explicit Workload(std::uint64_t seed) : prng_(seed) {}
  Tokens prompt(Tokens family) {
    const std::int64_t kept = 8 + prng_.below(40);
    family.resize(static_cast<std::size_t>(kept));
    const std::int64_t more = 1 + prng_.below(20);
    for (std::int64_t i = 0; i < more; ++i) {
      family.push_back(static_cast<TokenId>(prng_.below(64)));
    }
    return family;
  }
  std::int64_t below(std::int64_t end) { return prng_.below(end); }

 private:
  Prng prng_;
};

class NothingChanges : public ShadowAuditTest, public ::testing::WithParamInterface<const char*> {
 protected:
  static constexpr std::uint64_t kSeed = 5;

  // Everything that came out, request by request.
  std::vector<std::pair<Tokens, std::int64_t>> outcome(double percent, std::int64_t pages) {
    SCOPED_TRACE(kSeed);
    options_.shadow_audit_percent = percent;
    options_.kv.pages = pages;
    options_.kv.eviction = GetParam();
    pool_.reset();
    open();
    Workload workload(kSeed);
    std::vector<RequestId> ids;
    for (int round = 0; round < 60; ++round) {
      const auto family = static_cast<std::uint64_t>(workload.below(3));
      ids.push_back(submit(workload.prompt(text(family, 60)), 1 + workload.below(12),
                           static_cast<int>(workload.below(2))));
      for (std::int64_t steps = workload.below(6); steps > 0; --steps) step();
    }
    run();
    std::vector<std::pair<Tokens, std::int64_t>> all;
    for (const RequestId id : ids) {
      all.emplace_back(answers_[id].tokens, answers_[id].stats.cached_tokens);
    }
    all.emplace_back(Tokens(), engine_->totals().evicted_pages);
    all.emplace_back(Tokens(), engine_->totals().preemptions);
    return all;
  }
};

TEST_P(NothingChanges, WhereNothingIsWrong) {
  for (const std::int64_t pages : {40, 60, 400}) {
    SCOPED_TRACE(pages);
    const auto plain = outcome(0, pages);
    EXPECT_EQ(engine_->totals().shadow_audits, 0);
    EXPECT_EQ(outcome(100, pages), plain);
    EXPECT_GT(engine_->totals().shadow_audits, 0);
    EXPECT_EQ(engine_->totals().shadow_audit_mismatches, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Orders, NothingChanges,
                         ::testing::Values("lru", "lfu", "slru", "s3fifo", "tlru", "hazard"));

TEST_F(ShadowAuditTest, WhichHitsAreDrawnIsTheSameEveryTime) {
  options_.shadow_audit_percent = 30;
  std::vector<std::int64_t> first;
  for (int round = 0; round < 2; ++round) {
    open();
    std::vector<std::int64_t> audits;
    for (int i = 0; i < 200; ++i) {
      ask(text(1, 20), 1);
      audits.push_back(engine_->totals().shadow_audits);
    }
    if (round == 0) first = audits;
    EXPECT_EQ(audits, first);
    EXPECT_GT(audits.back(), 40);
    EXPECT_LT(audits.back(), 80);
  }
}

TEST_F(ShadowAuditTest, UnderLoadOneInManyStepsAndNoMoreWaitThanMay) {
  options_.kv.requests_max = 8;
  open();
  ask(text(1, 20), 1);
  for (int i = 0; i < 8; ++i) submit(text(1, 20), 40);
  std::int64_t steps = 0;
  for (; engine_->totals().shadow_audits < 3; ++steps) step();
  EXPECT_GE(steps, 2 * ShadowAudit::kStepsApart);
  EXPECT_LT(steps, 4 * ShadowAudit::kStepsApart);
  run();
  EXPECT_EQ(engine_->totals().shadow_audits, ShadowAudit::kWaitingMax);
  EXPECT_EQ(engine_->totals().shadow_audits_skipped, 8 - ShadowAudit::kWaitingMax);
}

// Steps that follow each other without a pause make one for it.
TEST_F(ShadowAuditTest, WhereStepsAreQueuedAHitDoesNotWaitForTheirEnd) {
  LateRunner late(model_, HashModel::kVocab, 1);
  pool_ = HashModel::make_pool(options_.kv);
  engine_ = std::move(Engine::open(options_, {.runner = late,
                                              .pools = {*pool_},
                                              .vocab_tokens = HashModel::kVocab,
                                              .clock = clock_}))
                .value();
  ask(text(1, 30), 2);
  const RequestId id = submit(text(1, 30), 60);
  for (int i = 0; i < 20; ++i) step();
  EXPECT_EQ(answers_[id].finish, FinishReason::kNone);
  EXPECT_EQ(engine_->totals().shadow_audits, 1);
  EXPECT_GT(late.queued_behind, 10);
  engine_.reset();
}

TEST_F(ShadowAuditTest, AModelThatFailsIsNoMismatch) {
  open();
  ask(text(1, 30), 2);
  model_.fails_without_outputs = true;
  ask(text(1, 30), 2);
  EXPECT_EQ(engine_->totals().shadow_audits, 0);
  EXPECT_EQ(engine_->totals().shadow_audits_skipped, 1);
  model_.fails_without_outputs = false;
  EXPECT_EQ(ask(text(1, 30), 2).stats.cached_tokens, 28);
  EXPECT_EQ(engine_->totals().shadow_audits, 1);
  EXPECT_EQ(engine_->totals().shadow_audit_mismatches, 0);
}

// Six pages: what runs holds them all, and what waits cannot be admitted.
TEST_F(ShadowAuditTest, WherePagesAreShortAuditsAreGivenUp) {
  options_.kv.pages = 6;
  open();
  ask(text(1, 9), 1);
  submit(text(1, 9), 14);
  submit(text(2, 9), 14);
  run();
  EXPECT_EQ(engine_->totals().shadow_audits, 0);
  EXPECT_EQ(engine_->totals().shadow_audits_skipped, 1);
  for (const auto& [id, answer] : answers_) EXPECT_EQ(answer.finish, FinishReason::kLength);
}

TEST_F(ShadowAuditTest, WhereNothingIsFreeInTheEndAuditsAreGivenUp) {
  options_.kv.pages = 4;
  open();
  ask(text(1, 16), 1);
  EXPECT_EQ(engine_->kv().free_pages(), 0) << "all of it is cached";
  ask(text(1, 16), 1);
  EXPECT_EQ(engine_->totals().shadow_audits, 0);
  EXPECT_EQ(engine_->totals().shadow_audits_skipped, 1);
  EXPECT_EQ(engine_->totals().evicted_pages, 1) << "for what the request computed";
}

// Six pages, all of them held by the request that found four: one of them is free when it ends.
TEST_F(ShadowAuditTest, WhereNothingIsFreeButWillBeAHitWaits) {
  options_.kv.pages = 6;
  open();
  ask(text(1, 17), 1);
  EXPECT_EQ(ask(text(1, 22), 2).stats.cached_tokens, 16);
  EXPECT_EQ(engine_->totals().shadow_audits, 1);
  EXPECT_EQ(engine_->totals().shadow_audits_skipped, 0);
}

TEST_F(ShadowAuditTest, ABitThatFlippedIsFoundAndThePagesGo) {
  const Tokens prompt = text(1, 30);
  const Tokens right = cold(prompt, 6);
  for (const std::size_t page : {std::size_t{6}, std::size_t{3}, std::size_t{0}}) {
    SCOPED_TRACE(page);
    log_.clear();
    open();
    ask(prompt, 6);
    flip(RequestId(0), page);
    EXPECT_NE(ask(prompt, 1).tokens.front(), right.front()) << "it was served before it was found";
    EXPECT_EQ(engine_->totals().shadow_audit_mismatches, 1);
    const auto kept = static_cast<std::int64_t>(page) * 4;
    EXPECT_EQ(cached(prompt), kept) << "the first page that is wrong, and all behind it";
    ASSERT_EQ(log_.size(), 1u);
    EXPECT_THAT(log_[0], ::testing::HasSubstr("engine.shadow_audit_mismatch"));
    EXPECT_THAT(log_[0], ::testing::HasSubstr("first_token=" + std::to_string(kept)));
    const Answer again = ask(prompt, 6);
    EXPECT_EQ(again.tokens, right);
    EXPECT_EQ(again.stats.cached_tokens, kept);
    EXPECT_EQ(ask(prompt, 6).tokens, right);
    EXPECT_EQ(engine_->totals().shadow_audit_mismatches, 1) << "all is right again";
    EXPECT_EQ(engine_->kv().available_pages(), 100);
  }
}

// A page that cannot be computed again is not known to be right.
TEST_F(ShadowAuditTest, WhereLookingForAWrongPageFailsItEndsThere) {
  const Tokens prompt = text(1, 30);
  open();
  ask(prompt, 6);
  flip(RequestId(0), 3);
  model_.failing_position = 4;  // the second page's first
  ask(prompt, 1);
  EXPECT_EQ(engine_->totals().shadow_audit_mismatches, 1);
  EXPECT_EQ(cached(prompt), 4);
}

// To compute a long text page by page would take minutes, in which nobody is served.
TEST_F(ShadowAuditTest, OfALongTextTheFirstPagesAloneAreLookedThrough) {
  options_.kv.context_tokens_max = 380;
  const Tokens prompt = text(1, 350);
  const Tokens right = cold(prompt, 6);
  open();
  ask(prompt, 6);
  flip(RequestId(0), 80);
  ask(prompt, 1);
  EXPECT_EQ(engine_->totals().shadow_audit_mismatches, 1);
  EXPECT_EQ(cached(prompt), ShadowAudit::kSearchedPagesMax * 4) << "what is known to be right";
  EXPECT_EQ(ask(prompt, 6).tokens, right);
  EXPECT_EQ(engine_->totals().shadow_audit_mismatches, 1) << "all is right again";
}

// Several requests run on the page when it is found: one still computes its prompt, one is far
// beyond it, one only shares what comes before.
TEST_F(ShadowAuditTest, RequestsThatRunOnWrongPagesComputeAnew) {
  const Tokens prompt = text(1, 30);
  const Tokens longer = joined(prompt, text(9, 60));
  Tokens sibling(prompt.begin(), prompt.begin() + 17);
  open();
  ask(prompt, 1);
  const RequestId far = submit(prompt, 60);
  for (int i = 0; i < 10; ++i) step();  // its hit was audited: all was right
  ASSERT_EQ(engine_->totals().shadow_audits, 1);
  const Tokens before = answers_[far].tokens;
  flip(far, 5);
  const RequestId early = submit(longer, 20);
  const RequestId beside = submit(sibling, 60);
  while (engine_->totals().shadow_audit_mismatches == 0 && !engine_->idle()) step();
  EXPECT_EQ(answers_[early].finish, FinishReason::kNone) << "in the middle of everything";
  EXPECT_EQ(engine_->totals().preemptions, 2);
  EXPECT_EQ(cached(longer), 20);
  const std::size_t said = answers_[far].tokens.size();
  ASSERT_GT(said, before.size());
  const std::size_t said_early = answers_[early].tokens.size();
  run();
  EXPECT_EQ(engine_->totals().shadow_audit_mismatches, 1);
  // What they had said stays; what they say from then on is what a cold engine says to all that.
  for (const auto& [id, asked, count, kept] :
       {std::tuple(far, prompt, std::size_t{60}, said),
        std::tuple(early, longer, std::size_t{20}, said_early)}) {
    const Tokens& all = answers_[id].tokens;
    ASSERT_EQ(all.size(), count);
    Tokens so_far = asked;
    so_far.insert(so_far.end(), all.begin(), all.begin() + static_cast<std::ptrdiff_t>(kept));
    const Tokens rest(all.begin() + static_cast<std::ptrdiff_t>(kept), all.end());
    EXPECT_EQ(rest, cold(so_far, std::ssize(rest)));
  }
  EXPECT_EQ(answers_[beside].tokens, cold(sibling, 60));
  EXPECT_EQ(answers_[beside].stats.preemptions, 0);
  EXPECT_EQ(engine_->kv().available_pages(), 100);
}

// A page that is computed wrong has the right sums in every tier.
class ShadowAuditTiers : public ShadowAuditTest {
 protected:
  void SetUp() override {
    right_ = cold(prompt_, 6);
    open_tiers(64, 1 << 20);
    open();
    model_.miscomputed_position = 37;  // in the tenth page
  }
  void compute_wrong() {
    ask(prompt_, 1);
    model_.miscomputed_position = -1;
  }

  const Tokens prompt_ = text(1, 41);
  Tokens right_;
};

TEST_F(ShadowAuditTiers, AWrongPageThatWasCopiedDownGoesEverywhere) {
  compute_wrong();
  settle();
  EXPECT_EQ(in_host(prompt_), 40);
  EXPECT_EQ(store_->usage().pages, 10);
  EXPECT_NE(ask(prompt_, 1).tokens.front(), right_.front());
  EXPECT_EQ(engine_->totals().shadow_audit_mismatches, 1);
  EXPECT_EQ(cached(prompt_), 36);
  EXPECT_EQ(in_host(prompt_), 36);
  settle();
  EXPECT_EQ(store_->usage().pages, 9);
  EXPECT_EQ(ask(prompt_, 6).tokens, right_);
  settle();
  EXPECT_EQ(in_host(prompt_), 40) << "the right pages take their place";
  EXPECT_EQ(ask(prompt_, 6).stats.cached_tokens, 40);
  EXPECT_EQ(engine_->totals().shadow_audit_mismatches, 1);
}

// The store is not asked for the page while it is being removed, and keeps no wrong one after.
TEST_F(ShadowAuditTiers, NobodyGetsItFromAStoreMeanwhile) {
  compute_wrong();
  settle();
  tiers_->holds = true;
  EXPECT_NE(ask(prompt_, 1).tokens.front(), right_.front());
  EXPECT_EQ(engine_->totals().shadow_audit_mismatches, 1);
  const Answer meanwhile = ask(prompt_, 6);
  EXPECT_EQ(meanwhile.tokens, right_);
  EXPECT_EQ(meanwhile.stats.cached_tokens, 36);
  tiers_->holds = false;
  settle();
  open();
  EXPECT_EQ(ask(prompt_, 6).tokens, right_) << "in another life";
  EXPECT_EQ(engine_->totals().shadow_audit_mismatches, 0);
}

TEST_F(ShadowAuditTiers, ACopyThatLandsLaterPublishesNothing) {
  tiers_->holds = true;
  compute_wrong();
  EXPECT_NE(ask(prompt_, 1).tokens.front(), right_.front());
  EXPECT_EQ(engine_->totals().shadow_audit_mismatches, 1);
  EXPECT_EQ(cached(prompt_), 36);
  EXPECT_GT(engine_->kv().usage().locked_tokens, 36) << "copies hold what they read";
  EXPECT_EQ(ask(prompt_, 6).tokens, right_) << "though copies are under way";
  tiers_->holds = false;
  settle();
  EXPECT_EQ(engine_->audit(), std::nullopt);
  EXPECT_EQ(engine_->kv().usage().locked_tokens, 0);
  EXPECT_EQ(engine_->kv().available_pages(), 100);
  EXPECT_EQ(ask(prompt_, 6).tokens, right_);
  settle();
  open();
  EXPECT_EQ(ask(prompt_, 6).tokens, right_) << "whatever was stored is right";
  EXPECT_EQ(engine_->totals().shadow_audit_mismatches, 0);
}

TEST_F(ShadowAuditTiers, AWrongPageFromALowerTierIsFoundToo) {
  compute_wrong();
  settle();
  open();  // another life: only the store has it
  EXPECT_EQ(store_->usage().pages, 10);
  const Answer brought = ask(prompt_, 1);
  EXPECT_EQ(brought.stats.brought.disk, 40);
  EXPECT_NE(brought.tokens.front(), right_.front());
  EXPECT_EQ(engine_->totals().shadow_audit_mismatches, 1);
  settle();
  EXPECT_EQ(store_->usage().pages, 9);
  EXPECT_EQ(ask(prompt_, 6).tokens, right_);
}

// The store has what was computed from the wrong page, and nobody else knows of it.
TEST_F(ShadowAuditTiers, WhatAStoreHasBehindAWrongPageIsNotUsed) {
  const Tokens longer = joined(prompt_, text(2, 40));
  const Tokens right_longer = cold(longer, 6);
  ask(longer, 1);
  model_.miscomputed_position = -1;
  settle();
  EXPECT_EQ(store_->usage().pages, 20);
  open();  // another life
  EXPECT_EQ(ask(prompt_, 1).stats.brought.disk, 40);
  EXPECT_EQ(engine_->totals().shadow_audit_mismatches, 1);
  settle();
  EXPECT_EQ(ask(prompt_, 6).tokens, right_) << "the right page is stored in its place";
  settle();
  const Answer first = ask(longer, 6);
  EXPECT_EQ(first.tokens, right_longer);
  EXPECT_EQ(first.stats.cached_tokens, 40);
  settle();
  EXPECT_EQ(ask(longer, 6).tokens, right_longer);
  EXPECT_EQ(engine_->totals().shadow_audit_mismatches, 1);
  settle();
  open();
  EXPECT_EQ(ask(longer, 6).tokens, right_longer) << "one more life";
}

// Nor does a later life find it, which knows of no wrong page.
TEST_F(ShadowAuditTiers, WhatAStoreHasBehindAWrongPageIsGoneWhenTheNextLifeBegins) {
  const Tokens longer = joined(prompt_, text(2, 40));
  const Tokens right_longer = cold(longer, 6);
  ask(longer, 1);
  model_.miscomputed_position = -1;
  settle();
  open();
  ask(prompt_, 1);
  EXPECT_EQ(engine_->totals().shadow_audit_mismatches, 1);
  settle();
  EXPECT_EQ(store_->usage().pages, 9) << "those before it stay";
  EXPECT_EQ(ask(prompt_, 6).tokens, right_) << "the right page is stored in its place";
  settle();
  open();
  const Answer first = ask(longer, 6);
  EXPECT_EQ(first.tokens, right_longer);
  EXPECT_EQ(first.stats.brought.disk, 40);
  EXPECT_EQ(engine_->totals().shadow_audit_mismatches, 0);
}

// A longer text is being brought up through the wrong page when that is found.
TEST_F(ShadowAuditTiers, APromotionThroughAWrongPageComesToNothing) {
  const Tokens longer = joined(prompt_, text(2, 40));
  const Tokens right_longer = cold(longer, 6);
  ask(longer, 1);
  model_.miscomputed_position = -1;
  settle();
  options_.kv.tiers.load_wait_us = 1'000'000'000;
  open();
  ask(text(3, 30), 1);
  ask(text(3, 30), 1);  // is audited: the next one waits
  const RequestId found = submit(prompt_, 40);
  while (answers_[found].tokens.size() < 2) step();
  EXPECT_EQ(engine_->totals().shadow_audit_mismatches, 0);
  tiers_->holds = true;
  const RequestId waits = submit(longer, 6);
  while (engine_->totals().shadow_audit_mismatches == 0 && !engine_->idle()) step();
  EXPECT_TRUE(engine_->kv().transfers_underway());
  EXPECT_TRUE(answers_[waits].tokens.empty());
  tiers_->holds = false;
  run();
  EXPECT_EQ(answers_[waits].tokens, right_longer);
  EXPECT_EQ(ask(longer, 6).tokens, right_longer);
  EXPECT_EQ(engine_->totals().shadow_audit_mismatches, 1);
}

TEST_F(ShadowAuditTest, ItsCountersAreMetrics) {
  struct Names final : MetricVisitor {
    void counter(std::string_view name, std::int64_t value) override {
      if (name.find("shadow_audit") != std::string_view::npos) found[std::string(name)] = value;
    }
    void gauge(std::string_view, std::int64_t) override {}
    std::map<std::string, std::int64_t> found;
  } names;
  open();
  const RequestId first = submit(text(1, 30), 1);
  run();
  flip(first, 2);
  ask(text(1, 30), 1);
  engine_->visit_metrics(names);
  const std::map<std::string, std::int64_t> wanted = {{"stemma_shadow_audits_total", 1},
                                                      {"stemma_shadow_audit_mismatches_total", 1},
                                                      {"stemma_shadow_audit_skipped_total", 0}};
  EXPECT_EQ(names.found, wanted);
}

}  // namespace
}  // namespace stemma
