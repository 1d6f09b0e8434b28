// Covers the engine around a model of a few lines: requests refused at the door with the numbers,
// events, cancels in every state, failing models, threads, and a step loop that allocates nothing.
#include "stemma/engine.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/heap_counter.h"
#include "base/thread_pool.h"
#include "pool/kv_pool_factory.h"
#include "prefix/tree_listing.h"

namespace stemma {
namespace {

constexpr std::int64_t kVocab = 32;

// Answers (token + 1) mod 32; allocates nothing after its first large step.
class NextToken final : public Runner {
 public:
  NextToken() { logits_.reserve(64 * kVocab); }

  Result<LogitsView> forward(const KvBatch& batch, KvPools) override {
    if (std::exchange(fail_next, false)) {
      return Error{ErrorCode::kInternal, "out of order"};
    }
    logits_.assign(static_cast<std::size_t>(batch.outputs() * kVocab),
                   std::exchange(nan_next, false) ? std::nanf("") : 0.0f);
    for (std::size_t i = 0; i < batch.logit_rows.size(); ++i) {
      const TokenId token = batch.tokens[static_cast<std::size_t>(batch.logit_rows[i])];
      float& wanted = logits_[i * kVocab + static_cast<std::size_t>((token + 1) % kVocab)];
      wanted = std::isnan(wanted) ? wanted : 1.0f;
    }
    return LogitsView{logits_.data(), batch.outputs(), kVocab};
  }

  bool fail_next = false;
  bool nan_next = false;

 private:
  std::vector<float> logits_;
};

class EngineTest : public ::testing::Test {
 protected:
  EngineTest() {
    options_.kv.page_size = 4;
    options_.kv.pages = 64;
    options_.kv.requests_max = 4;
    options_.kv.context_tokens_max = 300;
    options_.scheduler.step_tokens_max = 64;
    options_.scheduler.chunk_tokens_max = 32;
    options_.scheduler.waiting_max = 8;
    options_.inbox_max = 16;
  }

  void open() {
    const bool windowed = options_.kv.window_tokens > 0;
    pool_ = make_pool(windowed ? 0 : 1, options_.kv.pages);
    if (windowed) windowed_pool_ = make_pool(1, options_.kv.windowed_pages);
    auto engine = Engine::open(options_, {.runner = model_,
                                          .pools = {*pool_, windowed_pool_.get()},
                                          .vocab_tokens = kVocab,
                                          .clock = clock_});
    ASSERT_TRUE(engine.ok()) << to_string(engine.error());
    engine_ = std::move(engine).value();
  }

  std::unique_ptr<KvPool> make_pool(std::int64_t layers, std::int64_t pages) const {
    ThreadPool threads(1);
    const KvShape shape = {.layers = layers,
                           .pages = pages,
                           .page_size = options_.kv.page_size,
                           .heads = 1,
                           .head_dim = 4,
                           .dtype = DType::kF32};
    return std::move(make_kv_pool(shape, KvLayout::kLayerFirst, threads)).value();
  }

  static RequestSpec spec(std::vector<TokenId> prompt, std::int64_t max_tokens) {
    RequestSpec out;
    out.prompt = std::move(prompt);
    out.max_tokens = max_tokens;
    return out;
  }

  // Steps until nothing is left; the events of each request in order.
  std::map<RequestId, std::vector<EngineEvent>> run() {
    std::map<RequestId, std::vector<EngineEvent>> events;
    for (int left = 10'000; left > 0 && !engine_->idle(); --left) {
      clock_.advance_us(10);
      for (const EngineEvent& event : engine_->step().events) {
        events[event.request].push_back(event);
      }
    }
    EXPECT_TRUE(engine_->idle());
    return events;
  }
  // What is generated for it until nothing is left.
  std::vector<TokenId> tokens_of(RequestId id) {
    std::vector<TokenId> tokens;
    for (const EngineEvent& event : std::vector(run().at(id))) tokens.push_back(event.token);
    return tokens;
  }

  std::string refusal(RequestSpec wrong) {
    const auto id = engine_->submit(std::move(wrong));
    return id.ok() ? "accepted" : id.error().detail;
  }

  EngineOptions options_;
  FakeClock clock_;
  NextToken model_;
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<KvPool> windowed_pool_;
  std::unique_ptr<Engine> engine_;
};

// The last token is computed in any case: a page that ends with it is not gone on from.
TEST_F(EngineTest, ToExplainATextTellsWhatARequestWouldFind) {
  open();
  const std::vector<TokenId> text = {1, 2, 3, 4, 5, 6, 7, 8};
  ASSERT_TRUE(engine_->submit(spec(text, 2)).ok());
  run();
  const auto told = engine_->explain(spec(text, 1).namespace_digest, text, 4);
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->nearest.common_tokens, 8);
  EXPECT_EQ(told->device_tokens, 4);
  const RequestId again = *engine_->submit(spec(text, 1));
  EXPECT_EQ(run()[again].back().stats.cached_tokens, told->device_tokens);
}

// All names but one are tenants', of which each has pages.
TEST_F(EngineTest, ToExplainATextOpensNoNamespace) {
  options_.kv.namespaces_max = 3;
  open();
  for (const int tenant : {1, 2, 3}) {
    RequestSpec asked = spec({1, 2, 3, 4, 5, 6, 7, 8, 9}, 1);
    asked.namespace_digest.bytes[0] = static_cast<std::uint8_t>(tenant);
    ASSERT_TRUE(engine_->submit(std::move(asked)).ok());
    run();
  }
  const std::vector<TokenId> text = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const SharedPrefix shared = {.digest = {{8}}, .tokens = 4};
  for (const SharedPrefix* shared_or_null : {static_cast<const SharedPrefix*>(nullptr), &shared}) {
    const auto told = engine_->explain({{9}}, text, 4, shared_or_null);
    ASSERT_TRUE(told.has_value());
    EXPECT_EQ(told->device_tokens, 0);
    EXPECT_EQ(told->stop, PrefixStop::kCold);
    EXPECT_EQ(engine_->explain({{9}}, std::span(text).first(3), 4, shared_or_null)->stop,
              PrefixStop::kTail);
  }
  EXPECT_EQ(engine_->kv().evicted_pages(), 0);
  for (const int tenant : {1, 2, 3}) {
    const NamespaceDigest digest = {{static_cast<std::uint8_t>(tenant)}};
    EXPECT_EQ(engine_->explain(digest, text, 4)->device_tokens, 8);
  }
}

TEST_F(EngineTest, RefusesAtTheDoorWithTheNumbers) {
  open();
  EXPECT_EQ(refusal(spec({}, 1)), "prompt must have at least one token");
  EXPECT_EQ(refusal(spec({1, 32}, 1)), "prompt token 1 is 32, outside the vocabulary of 32 tokens");
  EXPECT_EQ(refusal(spec({-1}, 1)), "prompt token 0 is -1, outside the vocabulary of 32 tokens");
  EXPECT_EQ(refusal(spec({1}, 0)), "max_tokens must be at least 1 (got 0)");
  EXPECT_EQ(refusal(spec({1}, -1)), "max_tokens must be at least 1 (got -1)");
  EXPECT_EQ(refusal(spec(std::vector<TokenId>(300, 1), 1)),
            "prompt of 300 tokens and max_tokens 1 exceed the context of 300 tokens");
  EXPECT_EQ(refusal(spec({1}, std::numeric_limits<std::int64_t>::max())),
            "prompt of 1 tokens and max_tokens 9223372036854775807 exceed the context of 300 "
            "tokens");
  EXPECT_EQ(refusal(spec(std::vector<TokenId>(256, 1), 2)),
            "prompt of 256 tokens and max_tokens 2 exceed the KV pool of 256 tokens (64 pages of "
            "4)");
  RequestSpec bad_stop = spec({1}, 1);
  bad_stop.stop_tokens = {99};
  EXPECT_EQ(refusal(bad_stop), "stop token 99 is outside the vocabulary of 32 tokens");
  RequestSpec bad_sampling = spec({1}, 1);
  bad_sampling.sampling.temperature = -1;
  EXPECT_NE(refusal(bad_sampling), "accepted");
  EXPECT_TRUE(engine_->idle());
}

TEST_F(EngineTest, WrongOptionsAreNamed) {
  options_.scheduler.step_tokens_max = 3;
  EXPECT_EQ(validate(options_).error().detail, "step_tokens_max must be at least 4 (got 3)");
}

TEST_F(EngineTest, ALargestRequestThatFitsIsAnswered) {
  open();
  const auto id = engine_->submit(spec(std::vector<TokenId>(250, 1), 7));
  ASSERT_TRUE(id.ok());
  EXPECT_EQ(run()[*id].size(), 7u);
}

TEST_F(EngineTest, EventsCarryTokensAndThenTheEndWithWhatItCost) {
  open();
  const RequestId id = *engine_->submit(spec({5, 6, 7, 8, 9}, 3));
  const auto events = run()[id];
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].token, 10);
  EXPECT_EQ(events[0].finish, FinishReason::kNone);
  EXPECT_EQ(events[2].token, 12);
  EXPECT_EQ(events[2].finish, FinishReason::kLength);
  const RequestStats& stats = events[2].stats;
  EXPECT_EQ(stats.prompt_tokens, 5);
  EXPECT_EQ(stats.cached_tokens, 0);
  EXPECT_EQ(stats.computed_tokens, 5);
  EXPECT_EQ(stats.output_tokens, 3);
  EXPECT_EQ(stats.ttft_us, 10);
  EXPECT_EQ(stats.total_us, 30);
  const RequestId again = *engine_->submit(spec({5, 6, 7, 8, 9}, 1));
  const EngineEvent second = run()[again].back();
  EXPECT_EQ(second.stats.cached_tokens, 4);
  EXPECT_EQ(second.stats.computed_tokens, 1);
}

TEST_F(EngineTest, AStopTokenEndsTheOutput) {
  open();
  RequestSpec wanted = spec({1}, 20);
  wanted.stop_tokens = {30, 4};
  const RequestId id = *engine_->submit(wanted);
  const auto events = run()[id];
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events.back().token, 4);
  EXPECT_EQ(events.back().finish, FinishReason::kStop);
}

// The model gives 2, 3, 4, …: where 3 may not come yet, the first of the tokens that are all
// equally likely does, which is 1 as 0 may not come either.
TEST_F(EngineTest, NoStopTokenIsChosenBeforeMinTokens) {
  open();
  RequestSpec wanted = spec({1}, 9);
  wanted.stop_tokens = {3, 0};
  wanted.min_tokens = 4;
  EXPECT_EQ(tokens_of(*engine_->submit(wanted)), (std::vector<TokenId>{2, 1, 2, 1, 2, 3}));
  wanted.min_tokens = 10;
  EXPECT_EQ(refusal(wanted), "min_tokens must be from 0 to max_tokens 9 (got 10)");
  wanted.min_tokens = 1;
  wanted.sampling.allowed_tokens = {0, 3};
  EXPECT_EQ(refusal(wanted),
            "allowed_tokens: each is a stop token, which none may be before min_tokens");
  wanted.sampling.allowed_tokens = {};
  for (TokenId token = 0; token < kVocab; ++token) wanted.stop_tokens.push_back(token);
  EXPECT_EQ(refusal(wanted), "stop_tokens: each token is one, and none may be before min_tokens");
  wanted.min_tokens = 0;
  EXPECT_EQ(refusal(wanted), "accepted") << "it ends at once";
}

// In whatever order they come, and as often as they do.
TEST_F(EngineTest, AllowedTokensAreASet) {
  open();
  RequestSpec wanted = spec({1}, 3);
  wanted.stop_tokens = {9, 3, 3, 0};
  wanted.min_tokens = 1;
  wanted.sampling.allowed_tokens = {3, 9, 3, 9, 3};
  EXPECT_EQ(refusal(wanted),
            "allowed_tokens: each is a stop token, which none may be before min_tokens");
  wanted.sampling.allowed_tokens = {9, 3, 2, 9, 2};
  EXPECT_EQ(tokens_of(*engine_->submit(wanted)), (std::vector<TokenId>{2, 3}));
  wanted.sampling.allowed_tokens = {2, 99, 2};
  EXPECT_NE(refusal(wanted), "accepted") << "outside the vocabulary";
}

TEST_F(EngineTest, CopiesOfOneSeedAreNoCopiesOfTheNext) {
  open();
  RequestSpec wanted = spec({1}, 12);
  wanted.sampling.temperature = 100;  // nearly even
  wanted.copies = 2;
  wanted.sampling.seed = 5;
  const auto five = engine_->submit(wanted);
  wanted.sampling.seed = 6;
  const auto six = engine_->submit(wanted);
  ASSERT_TRUE(five.ok() && six.ok());
  auto events = run();
  const auto tokens = [&](const RequestId& id) {
    std::vector<TokenId> out;
    for (const EngineEvent& event : events[id]) out.push_back(event.token);
    return out;
  };
  const RequestId copy(five->value() + 1);
  EXPECT_NE(tokens(copy), tokens(*six));
  EXPECT_NE(tokens(copy), tokens(*five));
}

TEST_F(EngineTest, CancelIsIdempotentInEveryState) {
  for (int steps_before = 0; steps_before < 6; ++steps_before) {
    open();
    const RequestId id = *engine_->submit(spec(std::vector<TokenId>(70, 3), 3));
    std::int64_t ends = 0;
    const auto step = [&] {
      for (const EngineEvent& event : engine_->step().events) {
        ends += event.finish != FinishReason::kNone ? 1 : 0;
      }
    };
    for (int i = 0; i < steps_before; ++i) {
      step();
    }
    EXPECT_TRUE(engine_->cancel(id).ok());
    EXPECT_TRUE(engine_->cancel(id).ok());
    EXPECT_TRUE(engine_->cancel(RequestId(12'345)).ok());
    step();
    EXPECT_EQ(ends, 1) << "exactly one end, cancelled after " << steps_before << " steps";
    EXPECT_TRUE(engine_->idle());
    EXPECT_EQ(engine_->audit().value_or(""), "");
    EXPECT_EQ(engine_->kv().usage().locked_tokens, 0);
  }
}

TEST_F(EngineTest, AFailingModelFailsItsBatchAndTheEngineGoesOn) {
  open();
  const RequestId first = *engine_->submit(spec({1, 2, 3}, 5));
  engine_->step();
  model_.fail_next = true;
  const auto failed = run()[first].back();
  EXPECT_EQ(failed.finish, FinishReason::kFailed);
  EXPECT_EQ(failed.error.detail, "out of order");
  const RequestId second = *engine_->submit(spec({1, 2, 3}, 5));
  EXPECT_EQ(run()[second].back().finish, FinishReason::kLength);
  model_.nan_next = true;
  const RequestId third = *engine_->submit(spec({1, 2, 3}, 5));
  EXPECT_EQ(run()[third].back().finish, FinishReason::kFailed);
  EXPECT_EQ(engine_->totals().failed_requests, 2);
}

// Salts that come and go, many more than the cache has names for: each is served, and none finds
// what another left.
TEST_F(EngineTest, NamespacesComeAndGo) {
  for (const char* cache : {"radix", "none"}) {
    options_.kv.cache = cache;
    open();
    for (int salt = 0; salt < 3'000; ++salt) {
      RequestSpec request = spec({5, 6, 7, 8, 9}, 1);
      request.namespace_digest.bytes[0] = static_cast<std::uint8_t>(salt);
      request.namespace_digest.bytes[1] = static_cast<std::uint8_t>(salt >> 8);
      const RequestId id = *engine_->submit(std::move(request));
      const EngineEvent end = run()[id].back();
      ASSERT_EQ(end.finish, FinishReason::kLength) << cache << ", salt " << salt;
      ASSERT_EQ(end.stats.cached_tokens, 0);
    }
    EXPECT_EQ(engine_->audit(), std::nullopt);
  }
}

TEST_F(EngineTest, QueuesAreBoundedAndSayWhoIsFull) {
  options_.inbox_max = 12;
  open();
  std::vector<RequestId> ids;
  for (int i = 0; i < 12; ++i) {
    ids.push_back(*engine_->submit(spec({1, 2}, 2)));
  }
  EXPECT_EQ(refusal(spec({1}, 1)), "inbox_max: 12 messages wait already");
  EXPECT_TRUE(engine_->prepare(spec({1}, 1)).ok()) << "which needs no place there";
  EXPECT_FALSE(engine_->cancel(ids[0]).ok());
  auto events = run();
  EXPECT_EQ(engine_->totals().finished_requests, 8);
  EXPECT_EQ(engine_->totals().failed_requests, 4);
  EXPECT_EQ(events[ids[11]].back().error.detail, "waiting_max: 8 requests wait already");
}

TEST_F(EngineTest, WhatIsPreparedHasItsTurnAsItIsPosted) {
  open();
  Result<PreparedRequest> late = engine_->prepare(spec({1, 2}, 2));
  Result<PreparedRequest> early = engine_->prepare(spec({5, 6, 7}, 2));
  ASSERT_TRUE(late.ok() && early.ok());
  EXPECT_TRUE(engine_->idle()) << "nothing waits before it is posted";
  clock_.advance_us(1'000);
  const std::int64_t before = heap_allocations;
  const Result<RequestId> first = engine_->post(std::move(early).value());
  EXPECT_LE(heap_allocations - before, 1) << "a place in the queue";
  const Result<RequestId> second = engine_->post(std::move(late).value());
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_LT(*first, *second);
  auto events = run();
  EXPECT_EQ(events[*first].front().token, 8);
  EXPECT_EQ(events[*second].front().token, 3);
  EXPECT_GE(events[*first].back().stats.queue_us, 1'000) << "since it was begun";
}

TEST_F(EngineTest, StopEndsARequestNowAndKeepsWhatItComputed) {
  open();
  const RequestId id = *engine_->submit(spec({1, 2, 3, 4, 5}, 50));
  engine_->step();
  engine_->step();
  const auto stats = engine_->stop(id);
  ASSERT_TRUE(stats.has_value());
  EXPECT_EQ(stats->output_tokens, 2);
  EXPECT_FALSE(engine_->stop(id).has_value());
  EXPECT_TRUE(engine_->idle());
  EXPECT_EQ(engine_->kv().usage().evictable_tokens, 4);
}

// Who waited in a burst may be in places that nobody takes again for long.
TEST_F(EngineTest, WhatHasEndedKeepsNoTokens) {
  options_.kv.pages = 4096;
  options_.kv.context_tokens_max = 16'000;
  open();
  const auto heap_bytes = [] {
    const struct mallinfo2 info = mallinfo2();
    return static_cast<std::int64_t>(info.uordblks + info.hblkhd);
  };
  RequestSpec small = spec({1, 2, 3}, 2);
  ASSERT_TRUE(engine_->submit(small).ok());
  run();
  const std::int64_t before = heap_bytes();
  std::vector<RequestId> ids;
  for (int i = 0; i < 8; ++i) {
    RequestSpec long_one = spec(std::vector<TokenId>(12'000, i), 3'000);
    long_one.sampling.logit_bias.assign(1'000, {TokenId(3), 1.0f});
    long_one.stop_tokens.assign(1'000, 31);
    ids.push_back(*engine_->submit(long_one));
  }
  engine_->step();
  for (const RequestId id : ids) ASSERT_TRUE(engine_->cancel(id).ok());
  run();
  EXPECT_LT(heap_bytes() - before, 8 * 15'000) << "eight lists of 15,000 tokens are 480,000";
}

TEST_F(EngineTest, RequestsMayComeFromManyThreads) {
  options_.scheduler.waiting_max = 1000;
  options_.inbox_max = 1000;
  open();
  {
    std::vector<std::jthread> users;
    for (int user = 0; user < 3; ++user) {
      users.emplace_back([&, user] {
        for (int i = 0; i < 50; ++i) {
          const auto id = engine_->submit(spec({user, i % 32, 3}, 3));
          ASSERT_TRUE(id.ok());
          if (i % 5 == 0) {
            EXPECT_TRUE(engine_->cancel(*id).ok());
          }
        }
      });
    }
    for (int i = 0; i < 20; ++i) {
      engine_->step();
    }
  }
  run();
  const EngineTotals totals = engine_->totals();
  EXPECT_EQ(totals.finished_requests + totals.cancelled_requests, 150);
}

TEST_F(EngineTest, DecodeStepsAllocateNothing) {
  open();
  for (TokenId i = 0; i < 4; ++i) {
    ASSERT_TRUE(engine_->submit(spec({i, 2, 3}, 55)).ok());
  }
  for (int i = 0; i < 5; ++i) {
    engine_->step();
  }
  const std::int64_t before = heap_allocations;
  for (int i = 0; i < 45; ++i) {
    engine_->step();
  }
  EXPECT_EQ(heap_allocations - before, 0);
  EXPECT_EQ(engine_->totals().steps, 50);
  run();
}

TEST_F(EngineTest, ASteadyFlowOfRequestsAllocatesNothingInSteps) {
  for (const char* policy : {"fcfs", "lpm", "dfs-weight", "hrrn", "shortest-uncached-first"}) {
    options_.scheduler.policy = *parse_schedule_policy(policy);
    open();
    std::int64_t allocations = 0;
    for (int round = 0; round < 300; ++round) {
      // Prompts of one family, longer and shorter, more than the pool keeps; no more of them than
      // are answered meanwhile.
      std::vector<TokenId> prompt(static_cast<std::size_t>(20 + round % 40), 7);
      prompt[static_cast<std::size_t>(5 + round % 13)] = static_cast<TokenId>(round % 31);
      if (round % 3 == 0) {
        ASSERT_TRUE(engine_->submit(spec(std::move(prompt), 3 + round % 5)).ok());
      }
      const std::int64_t before = heap_allocations;
      engine_->step();
      allocations += round < 100 ? 0 : heap_allocations - before;
    }
    EXPECT_EQ(allocations, 0) << policy;
    EXPECT_GT(engine_->totals().evicted_pages, 0);
    run();
  }
}

// Pages are empty all the time, so that those computed again are equal.
TEST_F(EngineTest, AuditsAllocateNothingInSteps) {
  options_.shadow_audit_percent = 100;
  open();
  std::int64_t allocations = 0;
  for (int round = 0; round < 400; ++round) {
    if (round % 4 == 0) {
      std::vector<TokenId> prompt(static_cast<std::size_t>(20 + round % 40), 7);
      ASSERT_TRUE(engine_->submit(spec(std::move(prompt), 3)).ok());
    }
    const std::int64_t before = heap_allocations;
    engine_->step();
    allocations += round < 100 ? 0 : heap_allocations - before;
  }
  EXPECT_EQ(allocations, 0);
  EXPECT_GT(engine_->totals().shadow_audits, 20);
  EXPECT_EQ(engine_->totals().shadow_audit_mismatches, 0);
  run();
}

struct Numbers final : MetricVisitor {
  void counter(std::string_view name, std::int64_t value) override { by_name[name] = value; }
  void gauge(std::string_view name, std::int64_t value) override { by_name[name] = value; }
  std::map<std::string_view, std::int64_t> by_name;
};

// 20 prompts of 4 pages by turns, in a cache of 64 pages: lru finds none of them again, and would
// find all with twice the room.
TEST_F(EngineTest, SaysWhatMoreRoomWouldBeWorth) {
  options_.ghost_pages_per_sample = 1;
  open();
  EXPECT_TRUE(engine_->cache_advice().empty());
  for (int round = 0; round < 10; ++round) {
    for (TokenId text = 0; text < 20; ++text) {
      std::vector<TokenId> prompt(17, text);
      ASSERT_TRUE(engine_->submit(spec(prompt, 1)).ok());
      run();
    }
  }
  // A page has 4 tokens of K and V, 4 floats each.
  EXPECT_THAT(engine_->cache_advice(),
              testing::ElementsAre("device -4 KiB: +0.0 points", "device +8 KiB: +90.0 points",
                                   "device +24 KiB: +90.0 points", "policy slru: +0.0 points"));
  Numbers numbers;
  engine_->visit_metrics(numbers);
  EXPECT_EQ(numbers.by_name["stemma_finished_requests_total"], 200);
  EXPECT_EQ(numbers.by_name["stemma_cached_tokens_total"], 0);
  EXPECT_EQ(numbers.by_name["stemma_ghost_lookup_pages"], 800);
  EXPECT_EQ(numbers.by_name["stemma_ghost_hit_pages_same"], 0);
  EXPECT_EQ(numbers.by_name["stemma_ghost_hit_pages_double"], 720);
}

// Three windowed pages for 450 others: texts have more pages than all their windows have bytes.
TEST_F(EngineTest, SaysWhatMoreRoomWouldBeWorthWhereEveryLayerHasAWindow) {
  options_.ghost_pages_per_sample = 1;
  options_.kv.page_size = 2;
  options_.kv.pages = 450;
  options_.kv.window_tokens = 2;
  options_.kv.windowed_pages = 3;
  open();
  ASSERT_TRUE(engine_->submit(spec({1, 2, 3, 4, 5}, 2)).ok());
  run();
  EXPECT_FALSE(engine_->cache_advice().empty());
}

TEST_F(EngineTest, SaysWhoHoldsPages) {
  open();
  EXPECT_TRUE(engine_->leases().empty());
  const RequestId first = engine_->submit(spec(std::vector<TokenId>(17, 1), 4)).value();
  engine_->step();
  clock_.advance_us(70);
  const std::vector<RequestLease> leases = engine_->leases();
  ASSERT_EQ(leases.size(), 1u);
  EXPECT_EQ(leases[0].id, first);
  EXPECT_EQ(leases[0].state, "running");
  EXPECT_EQ(leases[0].age_us, 70);
  EXPECT_EQ(leases[0].prompt_tokens, 17);
  EXPECT_EQ(leases[0].output_tokens, 1);
  EXPECT_EQ(leases[0].pages, 5);
  EXPECT_EQ(leases[0].shared_pages, 4);
  EXPECT_EQ(engine_->kv().holds().sequences, 1);
  EXPECT_EQ(engine_->kv().holds().locks, 1);
  EXPECT_EQ(engine_->kv().list_nodes(Tier::kDevice, 10).total_nodes, 1);
  EXPECT_TRUE(engine_->kv().list_nodes(Tier::kHost, 10).nodes.empty()) << "there is no such tier";
  run();
  EXPECT_TRUE(engine_->leases().empty());
  EXPECT_EQ(engine_->kv().holds().sequences, 0);
}

TEST_F(EngineTest, WatchesNothingWhereItIsToldNotTo) {
  options_.ghost_pages_per_sample = 0;
  open();
  ASSERT_TRUE(engine_->submit(spec(std::vector<TokenId>(17, 1), 1)).ok());
  run();
  EXPECT_TRUE(engine_->cache_advice().empty());
  Numbers numbers;
  engine_->visit_metrics(numbers);
  EXPECT_EQ(numbers.by_name["stemma_finished_requests_total"], 1);
  EXPECT_FALSE(numbers.by_name.contains("stemma_ghost_lookup_pages"));
}

}  // namespace
}  // namespace stemma
