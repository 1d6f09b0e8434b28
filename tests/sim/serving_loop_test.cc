// The whole serving loop over the stamp model: every page size, both layouts, each policy, each
// eviction order, tiny pools, preemption, cancel at every step, failing steps. After each step the
// audit; at the end every output against its closed form.
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "sim/stamp_harness.h"

namespace stemma {
namespace {

EngineOptions small_options(std::int64_t page_size, std::int64_t pool_tokens) {
  EngineOptions options;
  options.kv.page_size = page_size;
  options.kv.pages = pool_tokens / page_size;
  options.kv.requests_max = 4;
  options.kv.context_tokens_max = 160;
  options.scheduler.step_tokens_max = 48;
  options.scheduler.chunk_tokens_max = 20;
  options.inbox_max = 64;
  return options;
}

// Twelve requests with shared beginnings of many lengths.
void submit_family(StampHarness& harness) {
  const auto system = some_tokens(1, 40);
  for (std::uint64_t i = 0; i < 12; ++i) {
    const auto group = joined(system, some_tokens(100 + i % 3, 9));
    const auto prompt = joined(group, some_tokens(1000 + i, 3 + static_cast<std::int64_t>(i)));
    harness.submit(i % 4 == 3 ? group : prompt, 5 + static_cast<std::int64_t>(i));
  }
}

void expect_family(StampHarness& harness) {
  harness.run();
  harness.expect_closed_form();
  const EngineTotals totals = harness.engine().totals();
  EXPECT_EQ(totals.finished_requests, 12);
  EXPECT_EQ(totals.output_tokens, 12 * 5 + 66);
}

using Case = std::tuple<std::int64_t, KvLayout, std::string>;
class EveryShape : public ::testing::TestWithParam<Case> {};

TEST_P(EveryShape, AnswersAreTheClosedForm) {
  const auto& [page_size, layout, cache] = GetParam();
  EngineOptions options = small_options(page_size, 640);
  options.kv.cache = cache;
  StampHarness harness(options, layout);
  submit_family(harness);
  expect_family(harness);
  EXPECT_GT(harness.model().checked_slots(), 0);
  if (cache == "none") {
    EXPECT_EQ(harness.engine().totals().cached_tokens, 0);
  } else if (page_size <= 16) {
    EXPECT_GT(harness.engine().totals().cached_tokens, 0) << "the cached path must have run";
  }
}

INSTANTIATE_TEST_SUITE_P(PageSizesAndLayouts, EveryShape,
                         ::testing::Combine(::testing::Values(1, 3, 16, 64),
                                            ::testing::Values(KvLayout::kLayerFirst,
                                                              KvLayout::kPageFirst),
                                            ::testing::Values("radix", "none")));

class EveryPolicy : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryPolicy, EverythingIsAnswered) {
  EngineOptions options = small_options(4, 200);
  options.scheduler.policy = *parse_schedule_policy(GetParam());
  StampHarness harness(options);
  submit_family(harness);
  expect_family(harness);
}

INSTANTIATE_TEST_SUITE_P(Policies, EveryPolicy,
                         ::testing::Values("fcfs", "lpm", "dfs-weight", "lof", "random", "priority",
                                           "shortest-uncached-first", "hrrn"));

class EveryEviction : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryEviction, EvictedPagesAreNeverRead) {
  EngineOptions options = small_options(3, 168);
  options.kv.eviction = GetParam();
  StampHarness harness(options);
  submit_family(harness);
  expect_family(harness);
  EXPECT_GT(harness.engine().totals().evicted_pages, 0);
}

INSTANTIATE_TEST_SUITE_P(Orders, EveryEviction,
                         ::testing::Values("lru", "lfu", "fifo", "mru", "filo", "slru", "priority",
                                           "gdsf", "tlru", "s3fifo", "hazard"));

TEST(ServingLoop, EqualPromptsComputedTogetherShareOneCopy) {
  for (const std::int64_t page_size : {1, 4, 16}) {
    EngineOptions options = small_options(page_size, 320);
    StampHarness harness(options);
    for (int i = 0; i < 4; ++i) {
      harness.submit(some_tokens(7, 33), 40);
    }
    harness.run();
    harness.expect_closed_form();
    const std::int64_t matched = 32 / page_size * page_size;
    EXPECT_EQ(harness.engine().totals().computed_prompt_tokens, 33 + 3 * (33 - matched));
  }
}

// 32 prompts: 1,500 tokens shared by all, 500 more by each of 8 groups, 50 of their own.
TEST(ServingLoop, NoTokenTwice) {
  for (const std::int64_t page_size : {1, 16}) {
    for (const std::int64_t concurrency : {1, 4, 16}) {
      EngineOptions options = small_options(page_size, 16'000);
      options.kv.requests_max = concurrency;
      options.kv.context_tokens_max = 2100;
      options.scheduler.step_tokens_max = 700;
      options.scheduler.chunk_tokens_max = 300;
      StampHarness harness(options);
      harness.set_audits(concurrency == 4);
      for (std::uint64_t i = 0; i < 32; ++i) {
        const std::uint64_t n = (i * 13 + static_cast<std::uint64_t>(concurrency)) % 32;
        const auto group = joined(some_tokens(1, 1500), some_tokens(200 + n % 8, 500));
        // Texts drawn at random may begin alike by chance; a first token each keeps them apart.
        auto own = some_tokens(300 + n, 50);
        own[0] = static_cast<TokenId>(n);
        harness.submit(joined(group, own), 3);
      }
      harness.run();
      harness.expect_closed_form();
      EXPECT_EQ(harness.engine().totals().computed_prompt_tokens, page_size == 1 ? 7100 : 7184);
    }
  }
}

TEST(ServingLoop, PreemptionChangesNoToken) {
  for (const std::int64_t page_size : {1, 3, 16}) {
    EngineOptions options = small_options(page_size, 144);
    options.kv.context_tokens_max = 128;
    options.scheduler.watermark_pages = 0;
    StampHarness harness(options);
    for (std::uint64_t i = 0; i < 5; ++i) {
      harness.submit(some_tokens(50 + i, 10 + static_cast<std::int64_t>(i)), 100);
    }
    harness.run();
    harness.expect_closed_form();
    EXPECT_GT(harness.engine().totals().preemptions, 0);
    EXPECT_EQ(harness.engine().totals().output_tokens, 500);
  }
}

TEST(ServingLoop, ASampledRequestDrawsTheSameTokensWhateverHappensToIt) {
  const auto run = [](std::int64_t pool_tokens, std::int64_t others, std::int64_t chunk) {
    EngineOptions options = small_options(4, pool_tokens);
    options.kv.context_tokens_max = 128;
    options.scheduler.chunk_tokens_max = chunk;
    StampHarness harness(options);
    RequestSpec spec;
    spec.prompt = some_tokens(3, 20);
    spec.max_tokens = 60;
    spec.sampling.temperature = 100'000'000.0f;
    spec.sampling.seed = 42;
    std::vector<RequestId> crowd;
    for (std::int64_t i = 0; i < others; ++i) {
      harness.submit(some_tokens(static_cast<std::uint64_t>(70 + i), 12), 80);
    }
    const RequestId id = harness.submit(spec);
    harness.run();
    EXPECT_EQ(harness.outcome(id).tokens.size(), 60u);
    return harness.outcome(id);
  };
  const auto alone = run(640, 0, 20);
  const auto crowded = run(132, 3, 7);
  EXPECT_EQ(alone.tokens, crowded.tokens);
}

TEST(ServingLoop, TinyPoolsStillMakeProgress) {
  for (const std::int64_t page_size : {1, 3, 16}) {
    EngineOptions options = small_options(page_size, 48);
    options.scheduler.chunk_tokens_max = 5;
    StampHarness harness(options);
    for (std::uint64_t i = 0; i < 9; ++i) {
      const auto prompt_tokens = static_cast<std::int64_t>(1 + i * 4);
      harness.submit(some_tokens(i % 4, prompt_tokens), 49 - prompt_tokens);
    }
    harness.run();
    harness.expect_closed_form();
    EXPECT_EQ(harness.engine().totals().finished_requests, 9);
  }
}

// A script whose every step count is tried as the moment of a cancel, of each of its requests.
TEST(ServingLoop, CancelAtEveryStepOfEveryRequest) {
  const auto script = [](std::int64_t cancel_step, std::int64_t victim, bool stop) {
    EngineOptions options = small_options(3, 90);
    options.kv.requests_max = 3;
    options.scheduler.chunk_tokens_max = 6;
    options.scheduler.step_tokens_max = 12;
    StampHarness harness(options);
    std::vector<RequestId> ids;
    for (std::uint64_t i = 0; i < 4; ++i) {
      const auto prompt = joined(some_tokens(1, 14), some_tokens(10 + i, 2));
      ids.push_back(harness.submit(prompt, 10 + static_cast<std::int64_t>(i) * 4));
    }
    while (harness.step()) {
      if (harness.steps() == cancel_step) {
        const RequestId id = ids[static_cast<std::size_t>(victim)];
        if (stop) {
          harness.engine().stop(id);
        } else {
          EXPECT_TRUE(harness.engine().cancel(id).ok());
        }
        EXPECT_EQ(harness.engine().audit().value_or(""), "");
      }
    }
    harness.expect_closed_form();
    EXPECT_EQ(harness.engine().kv().usage().locked_tokens, 0);
    return harness.steps();
  };
  const std::int64_t steps = script(-1, 0, false);
  ASSERT_GT(steps, 10);
  for (std::int64_t step = 0; step <= steps; ++step) {
    for (std::int64_t victim = 0; victim < 4; ++victim) {
      script(step, victim, step % 2 == 1);
      ASSERT_FALSE(HasFailure()) << "cancel of request " << victim << " after step " << step;
    }
  }
}

TEST(ServingLoop, AFailedStepFailsItsRequestsAndPublishesNothing) {
  for (int fail_after = 0; fail_after < 12; ++fail_after) {
    for (const bool torn : {false, true}) {
      StampHarness harness(small_options(4, 320));
      submit_family(harness);
      for (int i = 0; i < fail_after; ++i) {
        harness.step();
      }
      if (torn) {
        harness.model().tear_next_step();
      } else {
        harness.model().fail_next_step();
      }
      harness.run();
      harness.expect_closed_form();
      const EngineTotals totals = harness.engine().totals();
      EXPECT_GT(totals.failed_requests, 0);
      EXPECT_EQ(totals.failed_requests + totals.finished_requests, 12);
    }
  }
}

}  // namespace
}  // namespace stemma
