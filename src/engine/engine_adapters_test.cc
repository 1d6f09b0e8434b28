// Adapters in the engine: who shares pages with whom, that copies, audits and explanations are of
// the request's own adapter, and what is said of an adapter that there is not. Every hit is
// computed again and compared (shadow audits of all), and answers are those of an engine without a
// cache.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "engine/shadow_audit_fixture.h"
#include "prefix/namespace_digest.h"

namespace stemma {
namespace {

class EngineAdaptersTest : public ShadowAuditFixture {
 protected:
  // "same" is "first" once more, under another name.
  EngineAdaptersTest() {
    model_.have_adapters({{"first", {{1}}}, {"second", {{2}}}, {"same", {{1}}}});
  }

  // The answer of `adapter`, which is what an engine without a cache gives.
  RequestStats ask_with(const std::string& adapter, const Tokens& prompt, int tenant = 0) {
    adapter_ = adapter;
    const Answer answer = ask(prompt, 3, tenant);
    EXPECT_EQ(answer.tokens, cold(prompt, 3)) << adapter;
    EXPECT_EQ(answer.finish, FinishReason::kLength);
    return answer.stats;
  }

  const Tokens prompt_ = text(1, 30);
};

TEST_F(EngineAdaptersTest, TwoAdaptersNeverShareAPage) {
  open();
  EXPECT_EQ(ask_with("", prompt_).cached_tokens, 0);
  EXPECT_EQ(ask_with("first", prompt_).cached_tokens, 0);
  EXPECT_EQ(ask_with("second", prompt_).cached_tokens, 0);
  for (const char* adapter : {"", "first", "second"}) {
    EXPECT_EQ(ask_with(adapter, prompt_).cached_tokens, 28) << adapter;
  }
  EXPECT_EQ(engine_->totals().shadow_audits, 3);
  EXPECT_EQ(engine_->totals().shadow_audit_mismatches, 0);
}

TEST_F(EngineAdaptersTest, TheSameAdapterLoadedTwiceDoes) {
  open();
  ask_with("first", prompt_);
  EXPECT_EQ(ask_with("same", prompt_).cached_tokens, 28);
  EXPECT_EQ(ask_with("second", prompt_).cached_tokens, 0);
  EXPECT_EQ(engine_->totals().shadow_audit_mismatches, 0);
}

TEST_F(EngineAdaptersTest, EachTenantHasPagesOfItsOwnUnderAnAdapterToo) {
  open();
  ask_with("first", prompt_, 1);
  EXPECT_EQ(ask_with("first", prompt_, 2).cached_tokens, 0);
  EXPECT_EQ(ask_with("first", prompt_, 1).cached_tokens, 28);
}

TEST_F(EngineAdaptersTest, AreFoundInLowerTiersAndByTheNextEngineUnderAnyName) {
  open_tiers(40, std::int64_t{1} << 20);
  open();
  ask_with("first", prompt_);
  ask_with("second", prompt_);
  settle();
  // As in another process: pages of the device are forgotten, and names are others.
  model_.have_adapters({{"other", {{2}}}, {"new", {{1}}}});
  options_.kv.tiers.load_wait_us = 1'000'000'000;
  open();
  EXPECT_EQ(ask_with("new", prompt_).brought.total(), 28);
  EXPECT_EQ(ask_with("", prompt_).cached_tokens, 0);
  EXPECT_EQ(ask_with("other", prompt_).brought.total(), 28);
}

TEST_F(EngineAdaptersTest, WhatIsCachedIsToldWithTheName) {
  struct Told final : PrefixEventSink {
    void take(const PrefixEvent& event) override {
      if (event.kind == PrefixEvent::Kind::kStored) adapters.emplace_back(event.adapter);
    }
    std::vector<std::string> adapters;
  } told;
  options_.kv.events_pages_max = 100;
  options_.shadow_audit_percent = 0;
  open();
  for (const char* adapter : {"", "first", "second"}) {
    told.adapters.clear();
    ask_with(adapter, prompt_);
    engine_->drain_kv_events(told);
    EXPECT_THAT(told.adapters, ::testing::Each(adapter));
    EXPECT_FALSE(told.adapters.empty());
  }
}

TEST_F(EngineAdaptersTest, MixInABatch) {
  options_.shadow_audit_percent = 0;
  open();
  std::map<RequestId, std::string> asked;
  for (const char* adapter : {"first", "", "second", "same", "second"}) {
    adapter_ = adapter;
    asked[submit(prompt_, 5)] = adapter;
  }
  run();
  for (const auto& [request, adapter] : asked) {
    adapter_ = adapter;
    EXPECT_EQ(answers_[request].tokens, cold(prompt_, 5)) << adapter;
  }
}

TEST_F(EngineAdaptersTest, CopiesOfARequestHaveItsAdapter) {
  open();
  adapter_ = "second";
  RequestSpec spec;
  spec.prompt = prompt_;
  spec.max_tokens = 3;
  spec.adapter = adapter_;
  spec.copies = 3;
  ASSERT_TRUE(engine_->submit(std::move(spec)).ok());
  run();
  ASSERT_EQ(answers_.size(), 3u);
  for (const auto& [request, answer] : answers_) EXPECT_EQ(answer.tokens, cold(prompt_, 3));
}

TEST_F(EngineAdaptersTest, AWrongPageIsFoundByAnAuditUnderTheSameAdapter) {
  open();
  adapter_ = "first";
  const RequestId first = submit(prompt_, 3);
  run();
  flip(first, 6);
  ask(prompt_, 3);
  EXPECT_EQ(engine_->totals().shadow_audit_mismatches, 1);
  ask_with("first", prompt_);
}

TEST_F(EngineAdaptersTest, ASharedPrefixIsSharedUnderEachAdapterByItself) {
  shared_tokens_ = 20;
  open();
  ask_with("first", prompt_, 1);
  EXPECT_EQ(ask_with("first", prompt_, 2).cached_tokens, 20);
  EXPECT_EQ(ask_with("second", prompt_, 1).cached_tokens, 0);
  EXPECT_EQ(ask_with("", prompt_, 1).cached_tokens, 0);
  EXPECT_EQ(ask_with("same", prompt_, 3).cached_tokens, 20);
}

TEST_F(EngineAdaptersTest, ASiblingIsLookedForUnderTheSameAdapter) {
  options_.shadow_audit_percent = 0;
  open();
  ask_with("", prompt_, 1);
  const auto stop_of = [&](const std::string& adapter, int tenant) {
    RequestSpec spec;
    spec.prompt = prompt_;
    spec.max_tokens = 1;
    spec.adapter = adapter;
    spec.namespace_digest.bytes[0] = static_cast<std::uint8_t>(tenant);
    spec.siblings = {{.digest = {{1}}, .field = "extra_key"}};
    const RequestId id = *engine_->submit(std::move(spec));
    run();
    return answers_[id].stats.stop;
  };
  EXPECT_EQ(stop_of("first", 2), PrefixStop::kCold);
  ask_with("first", prompt_, 1);
  EXPECT_EQ(stop_of("first", 3), PrefixStop::kOtherNamespace);
}

TEST_F(EngineAdaptersTest, AnExplanationIsOfTheAdapterAskedFor) {
  open();
  ask_with("first", prompt_);
  const auto matched = [&](std::string_view adapter) {
    return engine_->explain({}, prompt_, 0, nullptr, adapter)->device_tokens;
  };
  EXPECT_EQ(matched("first"), 28);
  EXPECT_EQ(matched("same"), 28);
  EXPECT_EQ(matched("second"), 0);
  EXPECT_EQ(matched(""), 0);
  EXPECT_FALSE(engine_->explain({}, prompt_, 0, nullptr, "third").has_value());
}

TEST_F(EngineAdaptersTest, APurgeOfATenantTakesItsPagesOfEveryAdapter) {
  open();
  ask_with("first", prompt_, 1);
  ask_with("", prompt_, 1);
  const NamespaceFamily family = family_of(NamespaceDigest{{1}});
  ASSERT_TRUE(engine_->purge({&family, 1}).ok());
  run();
  EXPECT_EQ(ask_with("first", prompt_, 1).cached_tokens, 0);
  EXPECT_EQ(ask_with("", prompt_, 1).cached_tokens, 0);
}

TEST_F(EngineAdaptersTest, RequestsGoOnWithOneThatWasTakenOutAndNoOthersBegin) {
  options_.shadow_audit_percent = 0;
  open();
  adapter_ = "first";
  const RequestId running = submit(prompt_, 8);
  step();
  const RequestId waiting = submit(text(2, 25), 3);  // no step has seen it yet
  ASSERT_TRUE(model_.book().take_out("first").ok());
  RequestSpec late;
  late.prompt = prompt_;
  late.adapter = "first";
  EXPECT_EQ(engine_->submit(std::move(late)).error().code, ErrorCode::kNotFound);
  while (!engine_->idle()) {
    EXPECT_TRUE(model_.book().free_ended().empty()) << "somebody is computed with it";
    step();
  }
  EXPECT_THAT(model_.book().free_ended(), testing::ElementsAre(AdapterId(0)));
  model_.have_adapters({{"first", {{1}}}});
  EXPECT_EQ(answers_[running].tokens, cold(prompt_, 8));
  EXPECT_EQ(answers_[waiting].tokens, cold(text(2, 25), 3));
}

TEST_F(EngineAdaptersTest, AnotherOfTheNameOfOneThatStillRunsIsAnother) {
  options_.shadow_audit_percent = 0;
  open();
  adapter_ = "first";
  const RequestId running = submit(prompt_, 8);
  step();
  AdapterBook& book = model_.book();
  ASSERT_TRUE(book.take_out("first").ok());
  ASSERT_TRUE(book.add({"first", {{7}}}, book.free_place()).ok());
  const RequestId other = submit(prompt_, 3);
  run();
  EXPECT_EQ(answers_[other].stats.cached_tokens, 0);
  EXPECT_EQ(answers_[other].tokens, cold(prompt_, 3));
  model_.have_adapters({{"first", {{1}}}});
  EXPECT_EQ(answers_[running].tokens, cold(prompt_, 8));
}

TEST_F(EngineAdaptersTest, AHitThatWaitsToBeAuditedKeepsItsAdapter) {
  open();
  ask_with("first", prompt_);
  submit(prompt_, 1);
  step();
  ASSERT_TRUE(model_.book().take_out("first").ok());
  run();
  EXPECT_EQ(engine_->totals().shadow_audits, 1);
  EXPECT_EQ(engine_->totals().shadow_audit_mismatches, 0);
  EXPECT_THAT(model_.book().free_ended(), testing::ElementsAre(AdapterId(0)));
}

TEST_F(EngineAdaptersTest, OneThatThereIsNotIsRefusedByName) {
  open();
  RequestSpec spec;
  spec.prompt = prompt_;
  spec.adapter = "third";
  const auto id = engine_->submit(std::move(spec));
  ASSERT_FALSE(id.ok());
  EXPECT_EQ(id.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(id.error().detail, "adapter 'third' is not one of the 3 that there are");
}

TEST(AdaptedNamespace, IsAnotherForEachAdapterAndOfTheSameFamily) {
  const NamespaceDigest plain = NamespaceFields().add("model", "m").finish();
  const Sha256Digest one = {1};
  const Sha256Digest other = {2};
  EXPECT_EQ(adapted(plain, one), adapted(plain, one));
  EXPECT_NE(adapted(plain, one), plain);
  EXPECT_NE(adapted(plain, one), adapted(plain, other));
  EXPECT_NE(adapted(NamespaceDigest(), one), adapted(plain, one));
  EXPECT_EQ(family_of(adapted(plain, one)), family_of(plain));
}

}  // namespace
}  // namespace stemma
