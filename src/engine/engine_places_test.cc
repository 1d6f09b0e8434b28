// What a request leaves behind in its place of the slab: nothing for whoever gets the place next,
// and nothing of one that was turned away.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/hash_model.h"
#include "engine/hash_prompts.h"
#include "prefix/namespace_examples.h"
#include "stemma/engine.h"

namespace stemma {
namespace {

class EnginePlaces : public ::testing::Test {
 protected:
  void open() {
    pool_ = HashModel::make_pool(options_.kv);
    auto engine = Engine::open(
        options_,
        {.runner = model_, .pools = {*pool_}, .vocab_tokens = HashModel::kVocab, .clock = clock_});
    ASSERT_TRUE(engine.ok()) << to_string(engine.error());
    engine_ = std::move(engine).value();
  }

  static RequestSpec spec(int tenant, std::int64_t prompt_tokens = 20) {
    RequestSpec out;
    out.prompt = hash_text(prompt_tokens);
    out.max_tokens = 3;
    out.namespace_digest = digest_of(tenant);
    return out;
  }

  // All events of a request that is alone.
  std::vector<EngineEvent> ask(RequestSpec spec) {
    EXPECT_TRUE(engine_->submit(std::move(spec)).ok());
    std::vector<EngineEvent> all;
    for (int left = 1'000; left > 0 && !engine_->idle(); --left) {
      clock_.advance_us(10);
      const auto events = engine_->step().events;
      all.insert(all.end(), events.begin(), events.end());
    }
    EXPECT_TRUE(engine_->idle());
    return all;
  }

  EngineOptions options_ = small_engine_options();
  FakeClock clock_;
  HashModel model_;
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<Engine> engine_;
};

// Where the cache has few names for namespaces, each refusal gives its own back.
TEST_F(EnginePlaces, WhoIsTurnedAwayKeepsNoNamespace) {
  options_.scheduler.waiting_max = 1;
  options_.kv.requests_max = 1;
  options_.kv.namespaces_max = 3;
  open();
  RequestSpec runs = spec(1);
  runs.max_tokens = 60;
  for (const RequestSpec& one : {runs, spec(1)}) {
    ASSERT_TRUE(engine_->submit(one).ok());
    engine_->step();
  }
  for (int tenant = 2; tenant < 8; ++tenant) {
    const RequestId id = *engine_->submit(spec(tenant));
    std::string refusal;
    for (const EngineEvent& event : engine_->step().events) {
      if (event.request == id) refusal = event.error.detail;
    }
    EXPECT_EQ(refusal, "waiting_max: 1 requests wait already") << tenant;
  }
}

TEST_F(EnginePlaces, EachRequestIsTimedFromItsOwnFirstToken) {
  open();
  const RequestStats first = ask(spec(1)).back().stats;
  clock_.advance_us(1'000);
  const std::vector<EngineEvent> next = ask(spec(2));
  EXPECT_EQ(next.back().stats.ttft_us, first.ttft_us);
  EXPECT_EQ(next.back().stats.queue_us, first.queue_us);
  EXPECT_EQ(next.front().stats.prompt_tokens, 20) << "as far as known with the first token";
}

// Of two the older one stays, as its client said that it comes back.
TEST_F(EnginePlaces, HowSoonAClientComesBackIsWeighedWhereThePolicyDoesThat) {
  options_.kv.eviction = "hazard";
  options_.kv.pages = 12;
  open();
  RequestSpec kept = spec(1, 16);
  kept.retention = Retention::kLong;
  ask(kept);
  for (const int tenant : {2, 3}) ask(spec(tenant, 16));
  EXPECT_EQ(ask(spec(1, 17)).back().stats.cached_tokens, 16);
  EXPECT_LT(ask(spec(2, 17)).back().stats.cached_tokens, 16);
}

TEST_F(EnginePlaces, InWhichFieldANamespaceDiffersIsSaidOfThatRequestAlone) {
  open();
  ask(spec(1));
  RequestSpec beside = spec(2);
  beside.siblings = {{.digest = digest_of(1), .field = "cache_salt"}};
  EXPECT_EQ(ask(beside).back().stats.differing_field, "cache_salt");
  EXPECT_EQ(ask(spec(3)).back().stats.differing_field, "");
}

}  // namespace
}  // namespace stemma
