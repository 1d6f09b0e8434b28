// A purge is of everything that was said before it: nothing of a request that was submitted before
// is found afterwards, whether it ran, waited, gave its pages up or was not taken in yet.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "engine/hash_model.h"
#include "engine/hash_prompts.h"
#include "prefix/namespace_examples.h"
#include "stemma/engine.h"

namespace stemma {
namespace {

class EnginePurges : public ::testing::Test {
 protected:
  void SetUp() override { options_.kv.requests_max = 1; }

  void open() {
    pool_ = HashModel::make_pool(options_.kv);
    auto engine = Engine::open(
        options_,
        {.runner = model_, .pools = {*pool_}, .vocab_tokens = HashModel::kVocab, .clock = clock_});
    ASSERT_TRUE(engine.ok()) << to_string(engine.error());
    engine_ = std::move(engine).value();
  }

  static std::vector<TokenId> text(int number) {
    std::vector<TokenId> tokens = hash_text(20);
    tokens[0] = static_cast<TokenId>(number);
    return tokens;
  }
  RequestId submit(int number, int tenant = 1, std::int64_t copies = 1) {
    RequestSpec spec;
    spec.prompt = text(number);
    spec.max_tokens = 6;
    spec.namespace_digest = digest_of(tenant);
    spec.copies = copies;
    return *engine_->submit(std::move(spec));
  }
  void step() {
    for (const EngineEvent& event : engine_->step().events) {
      if (event.token >= 0) ++answered_[event.request];
    }
    EXPECT_EQ(engine_->audit().value_or(""), "");
  }
  void run() {
    for (int left = 2'000; left > 0 && !engine_->idle(); --left) step();
    EXPECT_TRUE(engine_->idle());
  }
  void purge(int tenant) {
    const NamespaceFamily family = family_of(digest_of(tenant));
    ASSERT_TRUE(engine_->purge({&family, 1}).ok());
  }
  std::int64_t found(int number, int tenant = 1) {
    return engine_->explain(digest_of(tenant), text(number), 0)->device_tokens;
  }

  EngineOptions options_ = small_engine_options();
  FakeClock clock_;
  HashModel model_;
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<Engine> engine_;
  std::map<RequestId, std::int64_t> answered_;
};

TEST_F(EnginePurges, WhoWaitsRunsAndPublishesNothing) {
  open();
  submit(1);
  const RequestId waits = submit(2);
  step();
  purge(1);
  run();
  EXPECT_EQ(answered_[waits], 6);
  EXPECT_EQ(found(1), 0);
  EXPECT_EQ(found(2), 0);
}

TEST_F(EnginePurges, SoWhoIsNotTakenInYet) {
  open();
  submit(2);
  purge(1);
  run();
  EXPECT_EQ(found(2), 0);
}

TEST_F(EnginePurges, WhoComesAfterItIsCachedAndFoundByThoseThatWait) {
  open();
  submit(1);
  step();
  purge(1);
  submit(2);
  run();
  EXPECT_EQ(found(1), 0);
  EXPECT_EQ(found(2), 16);
}

TEST_F(EnginePurges, OthersThatWaitAreCached) {
  open();
  submit(1);
  submit(2, /*tenant=*/2);
  step();
  submit(3, /*tenant=*/2);
  purge(1);
  run();
  EXPECT_EQ(found(2, 2), 16);
  EXPECT_EQ(found(3, 2), 16);
}

TEST_F(EnginePurges, CopiesThatWaitEachComputeTheirPrompt) {
  open();
  submit(1);
  step();
  const RequestId copies = submit(2, 1, /*copies=*/3);
  step();
  purge(1);
  run();
  for (std::int64_t copy = 0; copy < 3; ++copy) {
    EXPECT_EQ(answered_[RequestId(copies.value() + copy)], 6);
  }
  EXPECT_EQ(found(2), 0);
}

// Both run; then pages are short, and the second waits again.
TEST_F(EnginePurges, WhoGivesItsPagesUpAfterwardsPublishesNothing) {
  options_.kv.requests_max = 2;
  options_.kv.pages = 12;
  options_.scheduler.watermark_pages = 0;
  open();
  submit(1);
  submit(2);
  step();
  step();
  purge(1);
  run();
  EXPECT_GT(engine_->totals().preemptions, 0);
  EXPECT_EQ(found(1), 0);
  EXPECT_EQ(found(2), 0);
}

}  // namespace
}  // namespace stemma
