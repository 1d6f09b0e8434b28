// A prefix that every tenant may share: its pages are computed once and found by all, what goes on
// from it by its tenant alone; in every tier, through evictions, purges and quarantine, with the
// answers of an engine that has no cache.
//
//   shared namespace    [ p p p p p ]            20 tokens, 5 pages
//   tenant 1                         [ a a a ]
//   tenant 2                         [ b b ]
#include <gtest/gtest.h>

#include <vector>

#include "engine/shadow_audit_fixture.h"

namespace stemma {
namespace {

class SharedPrefixTest : public ShadowAuditFixture {
 protected:
  static constexpr std::int64_t kSharedTokens = 20;

  SharedPrefixTest() { shared_tokens_ = kSharedTokens; }

  Tokens prompt(std::uint64_t seed, std::int64_t tokens = 11) const {
    return joined(shared_, text(seed, tokens));
  }
  // Of what a cold engine gives; a page of the prompt's end is computed anyway.
  void expect_answer(const Answer& answer, const Tokens& asked, std::int64_t cached) {
    EXPECT_EQ(answer.tokens, cold(asked, std::ssize(answer.tokens)));
    EXPECT_EQ(answer.stats.cached_tokens, cached);
  }
  static std::vector<NamespaceFamily> family(std::uint8_t first_byte) {
    return {family_of(NamespaceDigest{{first_byte}})};
  }
  // Texts of another tenant that fill the device.
  void fill_device() {
    shared_tokens_ = 0;
    for (std::uint64_t i = 0; i < 6; ++i) ask(text(500 + i, 90), 1, 9);
    shared_tokens_ = kSharedTokens;
  }

  const Tokens shared_ = text(1, kSharedTokens);
};

TEST_F(SharedPrefixTest, IsFoundByEveryTenantAndWhatGoesOnFromItByItsOwn) {
  open();
  expect_answer(ask(prompt(2), 3, 1), prompt(2), 0);
  expect_answer(ask(prompt(2), 3, 2), prompt(2), 20);
  expect_answer(ask(prompt(2), 3, 1), prompt(2), 28);
  expect_answer(ask(prompt(2), 3, 2), prompt(2), 28);
  EXPECT_EQ(engine_->totals().shadow_audit_mismatches, 0);
  EXPECT_EQ(engine_->totals().shadow_audits, 3);
}

TEST_F(SharedPrefixTest, WhoDoesNotShareFindsNothingOfIt) {
  open();
  ask(prompt(2), 3, 1);
  shared_tokens_ = 0;
  EXPECT_EQ(ask(prompt(2), 3, 1).stats.cached_tokens, 0);
  EXPECT_EQ(ask(prompt(2), 3, kShared).stats.cached_tokens, 20) << "the shared namespace's own";
}

TEST_F(SharedPrefixTest, WhereItIsColdNoOtherNamespaceHasMore) {
  open();
  RequestSpec spec;
  spec.prompt = prompt(1);
  spec.max_tokens = 1;
  spec.namespace_digest.bytes[0] = 1;
  spec.namespace_digest.bytes[8] = 1;
  spec.shared_prefix = SharedPrefix{.digest = {{kShared}}, .tokens = shared_tokens_};
  spec.siblings = {{.digest = {{2}}, .field = "extra_key"}};
  const RequestId id = *engine_->submit(std::move(spec));
  run();
  EXPECT_EQ(answers_[id].stats.stop, PrefixStop::kCold);
}

// Whoever asks for the first time, and has no namespace yet.
TEST_F(SharedPrefixTest, IsExplainedToATenantThatHasNothing) {
  open();
  ask(prompt(2), 3, 1);
  const SharedPrefix shared = {.digest = {{kShared}}, .tokens = kSharedTokens};
  const auto told = engine_->explain({{2}}, prompt(2), 8, &shared);
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->device_tokens, 20);
  EXPECT_TRUE(told->nearest.cached_next.empty());
  EXPECT_EQ(told->stop, PrefixStop::kCold);
}

// Counted from the first token on, the shared ones included.
TEST_F(SharedPrefixTest, TheNearestTextOfATenantBeginsWithIt) {
  open();
  ask(prompt(2), 3, 1);
  const SharedPrefix shared = {.digest = {{kShared}}, .tokens = kSharedTokens};
  NamespaceDigest own = {{1}};
  own.bytes[8] = 1;
  Tokens asked = prompt(2);
  asked[kSharedTokens + 6] ^= 1;
  const auto told = engine_->explain(own, asked, 1, &shared);
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->nearest.common_tokens, kSharedTokens + 6);
  EXPECT_EQ(told->nearest.cached_next, Tokens{prompt(2)[kSharedTokens + 6]});
}

TEST_F(SharedPrefixTest, IsComputedOnceByTenantsThatComeTogether) {
  options_.shadow_audit_percent = 0;
  options_.scheduler.chunk_tokens_max = 8;
  open();
  const RequestId one = submit(prompt(2), 1, 1);
  const RequestId other = submit(prompt(3), 1, 2);
  run();
  EXPECT_EQ(model_.computed_rows, 20 + 11 + 11);
  expect_answer(answers_[one], prompt(2), 0);
  EXPECT_EQ(answers_[other].tokens, cold(prompt(3), 1));
}

TEST_F(SharedPrefixTest, LongerPrefixesGoOnInTheSameNamespace) {
  open();
  const Tokens longer = joined(prompt(2, 12), text(3, 7));
  shared_tokens_ = 32;
  expect_answer(ask(longer, 3, 1), longer, 0);
  shared_tokens_ = 20;
  // Another digest than behind the longer one: here the tests' digests differ by tenant.
  expect_answer(ask(longer, 3, 2), longer, 20);
  shared_tokens_ = 32;
  expect_answer(ask(longer, 3, 3), longer, 32);
}

TEST_F(SharedPrefixTest, WhatIsLeftOfItIsUsedAndTheRestSharedAgain) {
  options_.kv.pages = 30;
  open();
  ask(prompt(2), 1, 1);
  // A request that needs all but three pages.
  shared_tokens_ = 0;
  ask(text(7, 105), 1, 9);
  shared_tokens_ = kSharedTokens;
  const Answer again = ask(prompt(2), 3, 2);
  EXPECT_LT(again.stats.cached_tokens, 20);
  EXPECT_EQ(again.tokens, cold(prompt(2), 3));
  expect_answer(ask(prompt(3), 3, 3), prompt(3), 20);
}

TEST_F(SharedPrefixTest, MayBeAllThatIsAsked) {
  open();
  expect_answer(ask(shared_, 9, 1), shared_, 0);
  expect_answer(ask(shared_, 9, 2), shared_, 16);
  expect_answer(ask(prompt(2), 3, 3), prompt(2), 20);
}

TEST_F(SharedPrefixTest, WhatASiblingHasIsToldAndNotShared) {
  open();
  ask(prompt(2), 1, 1);
  RequestSpec spec;
  spec.prompt = prompt(2);
  spec.max_tokens = 1;
  spec.namespace_digest = {{7, 0, 0, 0, 0, 0, 0, 0, 1}};
  spec.shared_prefix = SharedPrefix{.digest = {{kShared}}, .tokens = kSharedTokens};
  spec.siblings = {{.digest = {{3, 0, 0, 0, 0, 0, 0, 0, 1}}, .field = "nothing is there"},
                   {.digest = {{1, 0, 0, 0, 0, 0, 0, 0, 1}}, .field = "extra_key"}};
  const RequestId id = *engine_->submit(std::move(spec));
  run();
  EXPECT_EQ(answers_[id].stats.stop, PrefixStop::kOtherNamespace);
  EXPECT_EQ(answers_[id].stats.differing_field, "extra_key");
  expect_answer(answers_[id], prompt(2), 20);
}

TEST_F(SharedPrefixTest, CopiesOfARequestGoOnFromItToo) {
  open();
  RequestSpec spec;
  spec.prompt = prompt(2);
  spec.max_tokens = 5;
  spec.namespace_digest.bytes[0] = 1;
  spec.shared_prefix = SharedPrefix{.digest = {{kShared}}, .tokens = kSharedTokens};
  spec.copies = 3;
  const RequestId first = *engine_->submit(std::move(spec));
  run();
  EXPECT_EQ(engine_->totals().forks, 2);
  for (std::int64_t copy = 0; copy < 3; ++copy) {
    EXPECT_EQ(answers_[RequestId(first.value() + copy)].tokens, cold(prompt(2), 5));
  }
}

TEST_F(SharedPrefixTest, APurgeOfATenantLeavesIt) {
  open();
  ask(prompt(2), 1, 1);
  ask(prompt(3), 1, 2);
  ASSERT_TRUE(engine_->purge(family(1)).ok());
  expect_answer(ask(prompt(2), 3, 1), prompt(2), 20);
  expect_answer(ask(prompt(3), 3, 2), prompt(3), 28);
}

TEST_F(SharedPrefixTest, APurgeOfItHidesWhatGoesOnUntilItIsBack) {
  open();
  ask(prompt(2), 1, 1);
  ASSERT_TRUE(engine_->purge(family(kShared)).ok());
  expect_answer(ask(prompt(4), 3, 2), prompt(4), 0);
  expect_answer(ask(prompt(2), 3, 1), prompt(2), 28);
}

TEST_F(SharedPrefixTest, WhoRunsDuringItsPurgePublishesNothing) {
  open();
  const RequestId id = submit(prompt(2), 30, 1);
  for (int i = 0; i < 5; ++i) step();
  ASSERT_TRUE(engine_->purge(family(kShared)).ok());
  run();
  EXPECT_EQ(answers_[id].tokens, cold(prompt(2), 30));
  EXPECT_EQ(ask(prompt(2), 3, 1).stats.cached_tokens, 0);
}

TEST_F(SharedPrefixTest, NorDoesWhoIsNotTakenInYet) {
  open();
  submit(prompt(2), 3, 1);
  ASSERT_TRUE(engine_->purge(family(kShared)).ok());
  run();
  EXPECT_EQ(ask(prompt(2), 3, 1).stats.cached_tokens, 0);
}

TEST_F(SharedPrefixTest, AWrongPageOfItTakesAllThatWasComputedBehindItAlong) {
  open();
  ask(prompt(2), 3, 1);
  ask(prompt(3), 3, 2);
  flip(RequestId(0), 3);
  ask(prompt(4), 1, 3);  // its audit finds the page before the last one wrong
  EXPECT_EQ(engine_->totals().shadow_audit_mismatches, 1);
  const Answer one = ask(prompt(2), 3, 1);
  expect_answer(one, prompt(2), 12);
  expect_answer(ask(prompt(3), 3, 2), prompt(3), 20);
  expect_answer(ask(prompt(4), 3, 3), prompt(4), 20);
  EXPECT_EQ(engine_->totals().shadow_audit_mismatches, 1);
  EXPECT_EQ(engine_->kv().available_pages(), 100);
}

TEST_F(SharedPrefixTest, AWrongPageBehindItIsItsTenantsAlone) {
  open();
  ask(prompt(2), 3, 1);
  ask(prompt(2), 3, 2);
  flip(RequestId(0), 6);
  ask(prompt(2), 1, 1);
  EXPECT_EQ(engine_->totals().shadow_audit_mismatches, 1);
  expect_answer(ask(prompt(2), 3, 1), prompt(2), 24);
  expect_answer(ask(prompt(2), 3, 2), prompt(2), 28);
}

TEST_F(SharedPrefixTest, RequestsThatRunOnAWrongPageOfItComputeAnew) {
  open();
  ask(prompt(2), 1, 1);
  const RequestId far = submit(prompt(2), 60, 1);
  for (int i = 0; i < 10; ++i) step();
  const std::size_t said = answers_[far].tokens.size();
  flip(far, 4);
  ask(prompt(3), 1, 2);
  EXPECT_EQ(engine_->totals().shadow_audit_mismatches, 1);
  EXPECT_GE(engine_->totals().preemptions, 1);
  EXPECT_GT(answers_[far].tokens.size(), said);
  expect_answer(ask(prompt(2), 3, 1), prompt(2), 28);
  EXPECT_EQ(engine_->totals().shadow_audit_mismatches, 1) << "nothing wrong was published";
}

// Host memory and a store below it.
class SharedPrefixTiers : public SharedPrefixTest {
 protected:
  void SetUp() override {
    open_tiers(400, 1 << 20);
    open();
  }
};

TEST_F(SharedPrefixTiers, ComesBackFromHostMemoryWithWhatGoesOnFromIt) {
  ask(prompt(2), 1, 1);
  settle();
  fill_device();
  const Answer back = ask(prompt(2), 3, 1);
  EXPECT_EQ(back.tokens, cold(prompt(2), 3));
  EXPECT_GE(back.stats.brought.host, 20);
  expect_answer(ask(prompt(2), 3, 1), prompt(2), 28);
  expect_answer(ask(prompt(3), 3, 2), prompt(3), 20);
}

TEST_F(SharedPrefixTiers, CopiesOnTheirWayAreListedEachInItsNamespace) {
  tiers_->holds = true;
  ask(prompt(2), 1, 1);
  const auto transfers = engine_->kv().holds().transfers;
  ASSERT_EQ(transfers.size(), 2u);
  std::int64_t pages = 0;
  for (const TransferHold& transfer : transfers) {
    EXPECT_EQ(transfer.kind, "backup");
    const bool is_shared = transfer.digest == NamespaceDigest{{kShared}};
    EXPECT_EQ(transfer.pages, is_shared ? 5 : 2);
    pages += transfer.pages;
  }
  EXPECT_EQ(pages, 7);
  tiers_->holds = false;
  settle();
  EXPECT_TRUE(engine_->kv().holds().transfers.empty());
}

TEST_F(SharedPrefixTiers, TheNextLifeHasItFromTheStore) {
  ask(prompt(2), 1, 1);
  settle();
  EXPECT_EQ(store_->usage().pages, 7);
  open();
  const Answer back = ask(prompt(2), 3, 1);
  EXPECT_EQ(back.tokens, cold(prompt(2), 3));
  EXPECT_GE(back.stats.brought.disk, 20);
  ask(prompt(3), 1, 2);
  expect_answer(ask(prompt(2), 3, 1), prompt(2), 28);
}

TEST_F(SharedPrefixTiers, AWrongPageOfItGoesEverywhereWithWhatGoesOn) {
  model_.miscomputed_position = 17;  // in its last page
  ask(prompt(2), 1, 1);
  model_.miscomputed_position = -1;
  settle();
  EXPECT_EQ(store_->usage().pages, 7);
  ask(prompt(3), 1, 2);
  EXPECT_EQ(engine_->totals().shadow_audit_mismatches, 1);
  settle();
  expect_answer(ask(prompt(2), 3, 1), prompt(2), 16);
  settle();
  expect_answer(ask(prompt(2), 3, 1), prompt(2), 28);
  EXPECT_EQ(engine_->totals().shadow_audit_mismatches, 1);
}

TEST_F(SharedPrefixTest, IsWholePagesAndNotMoreThanThePrompt) {
  open();
  for (const std::int64_t tokens : {0, 3, 36}) {
    RequestSpec spec;
    spec.prompt = prompt(2, 12);
    spec.shared_prefix = SharedPrefix{.digest = {{kShared}}, .tokens = tokens};
    const auto refused = engine_->submit(std::move(spec));
    ASSERT_FALSE(refused.ok()) << tokens;
    EXPECT_NE(refused.error().detail.find("shared_prefix"), std::string::npos);
  }
}

}  // namespace
}  // namespace stemma
