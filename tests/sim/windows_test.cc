// Models whose layers mix full and windowed attention, over the stamp model: each step reads every
// slot of every window through the page tables. Pages out of a window are let go, a window that has
// gone shortens a hit, and a pool of one window and one chunk serves a text of any length.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>

#include "sim/windowed_options.h"

namespace stemma {
namespace {

using Case = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::string>;
class EveryWindow : public ::testing::TestWithParam<Case> {};

// From pools in which one request fits at a time to such in which everything stays.
TEST_P(EveryWindow, AnswersAreTheClosedForm) {
  const auto& [page_size, window_tokens, times, cache] = GetParam();
  EngineOptions options = windowed_options(page_size, window_tokens);
  options.kv.windowed_pages *= times;
  options.kv.cache = cache;
  StampHarness harness(options);
  submit_family(harness);
  harness.run();
  harness.expect_closed_form();
  EXPECT_EQ(harness.engine().totals().finished_requests, 12);
}

INSTANTIATE_TEST_SUITE_P(PagesAndWindows, EveryWindow,
                         ::testing::Combine(::testing::Values(1, 3, 16),
                                            ::testing::Values(1, 7, 32, 1000),
                                            ::testing::Values(1, 2, 9),
                                            ::testing::Values("radix", "none")));

// The memory of a windowed layer is that of one window and one chunk, whatever the context.
TEST(Windows, ATextOfAnyLengthRunsInOneWindowAndOneChunk) {
  for (const std::int64_t page_size : {1, 4, 16}) {
    EngineOptions options = windowed_options(page_size, 32);
    options.kv.pages = 4096 / page_size;
    options.kv.context_tokens_max = 4096;
    for (const std::int64_t chunk : {20, 1}) {
      options.kv.windowed_pages = windowed_pages_max(32, page_size, chunk);
      StampHarness harness(options);
      harness.set_audits(false);
      const RequestId id = harness.submit(some_tokens(1, 2000), 300);
      harness.run();
      harness.expect_closed_form();
      EXPECT_EQ(harness.outcome(id).finish, FinishReason::kLength);
      EXPECT_EQ(harness.outcome(id).stats.preemptions, 0);
      EXPECT_EQ(harness.engine().totals().computed_prompt_tokens, 2000);
    }
  }
}

// Several at once in the smallest pool there may be: they take turns, and none is lost.
TEST(Windows, TheSmallestPoolServesEverybody) {
  for (const std::int64_t page_size : {1, 3, 16}) {
    EngineOptions options = windowed_options(page_size, 32);
    options.kv.windowed_pages = windowed_pages_max(32, page_size, 1);
    StampHarness harness(options);
    submit_family(harness);
    harness.run();
    harness.expect_closed_form();
    EXPECT_EQ(harness.engine().totals().finished_requests, 12);
    EXPECT_GT(harness.metric("stemma_windowed_evicted_pages_total"), 0);
    EXPECT_EQ(harness.metric("stemma_windowed_available_pages"), options.kv.windowed_pages);
  }
}

//   first     ┌──── 64 shared ────┬─ 16 ─┐
//   second    └───────────────────┴─ 16 ─┘      finds the 64 as long as the window before them
//                                               is there, and nothing once that has gone
TEST(Windows, AWindowThatHasGoneShortensTheHit) {
  const auto cached = [](std::int64_t windowed_pages) {
    EngineOptions options = windowed_options(4, 16);
    options.kv.windowed_pages = windowed_pages;
    StampHarness harness(options);
    const auto shared = some_tokens(1, 64);
    harness.submit(joined(shared, some_tokens(2, 40)), 2);
    harness.run();
    const RequestId second = harness.submit(joined(shared, some_tokens(3, 16)), 2);
    harness.run();
    harness.expect_closed_form();
    const RequestStats& stats = harness.outcome(second).stats;
    EXPECT_EQ(prefix_stop_name(stats.stop), stats.cached_tokens == 64 ? "cold" : "window");
    return stats.cached_tokens;
  };
  EXPECT_EQ(cached(100), 64);
  EXPECT_EQ(cached(windowed_pages_max(16, 4, 20)), 0);
}

// Who had to compute again what others had in full leaves the window where the texts part.
TEST(Windows, TheSecondTextThatPartsSomewhereLeavesAWindowThere) {
  EngineOptions options = windowed_options(4, 16);
  options.kv.windowed_pages = windowed_pages_max(16, 4, 20) + 6;
  StampHarness harness(options);
  const auto shared = some_tokens(1, 64);
  const auto cached_of = [&](std::uint64_t own) {
    const RequestId id = harness.submit(joined(shared, some_tokens(own, 80)), 2);
    harness.run();
    return harness.outcome(id).stats.cached_tokens;
  };
  EXPECT_EQ(cached_of(2), 0);
  EXPECT_EQ(cached_of(3), 0) << "the window before the shared end has gone";
  EXPECT_EQ(cached_of(4), 64) << "the second text left it";
  harness.expect_closed_form();
}

// The next turn of a chat goes on from the end of the one before.
TEST(Windows, AChatGoesOnFromItsEnd) {
  EngineOptions options = windowed_options(4, 16);
  StampHarness harness(options);
  auto text = some_tokens(1, 50);
  for (int turn = 0; turn < 3; ++turn) {
    const RequestId id = harness.submit(text, 9);
    harness.run();
    const auto& outcome = harness.outcome(id);
    EXPECT_EQ(outcome.stats.cached_tokens, turn == 0 ? 0 : (std::ssize(text) - 10) / 4 * 4);
    text =
        joined(joined(text, outcome.tokens), some_tokens(10 + static_cast<std::uint64_t>(turn), 9));
  }
  harness.expect_closed_form();
}

// Its last token is computed again, and reads a token further back than what comes behind it does:
// what that needs stays as long as the window itself while others come and go.
TEST(Windows, APromptThatIsAskedAgainIsFoundWhereItEndsWithAPage) {
  for (const std::int64_t page_size : {1, 4}) {
    EngineOptions options = windowed_options(page_size, 9);
    options.kv.windowed_pages *= 2;
    StampHarness harness(options);
    for (const std::uint64_t text : {1u, 2u, 1u}) {
      const RequestId id = harness.submit(some_tokens(text, 64), 2);
      harness.run();
      const bool again = text == 1 && id.value() > 0;
      EXPECT_EQ(harness.outcome(id).stats.cached_tokens, again ? 64 - page_size : 0)
          << "pages of " << page_size;
    }
  }
}

TEST(Windows, CopiesOfARequestShareItsWindow) {
  EngineOptions options = windowed_options(4, 16);
  options.kv.windowed_pages = 40;
  StampHarness harness(options);
  RequestSpec spec;
  spec.prompt = some_tokens(1, 50);
  spec.max_tokens = 30;
  spec.copies = 3;
  const RequestId id = harness.submit(std::move(spec));
  harness.run();
  for (std::int64_t copy = 0; copy < 3; ++copy) {
    EXPECT_EQ(harness.outcome(RequestId(id.value() + copy)).tokens,
              stamp_output(some_tokens(1, 50), 30));
  }
  EXPECT_EQ(harness.engine().totals().computed_prompt_tokens, 50);
}

TEST(Windows, ARequestThatIsCancelledOrFailsLeavesNothing) {
  for (const bool fails : {false, true}) {
    StampHarness harness(windowed_options(3, 16));
    const RequestId id = harness.submit(some_tokens(1, 90), 30);
    for (int i = 0; i < 4; ++i) harness.step();
    if (fails) {
      harness.model().fail_next_step();
    } else {
      ASSERT_TRUE(harness.engine().cancel(id).ok());
    }
    harness.run();
    const RequestId again = harness.submit(some_tokens(1, 90), 30);
    harness.run();
    EXPECT_EQ(harness.outcome(again).tokens, stamp_output(some_tokens(1, 90), 30));
  }
}

// What cannot be done with windows yet is refused when the engine is opened.
TEST(Windows, WhatTheyDoNotGoWithIsRefusedByName) {
  EngineOptions options = windowed_options(4, 16);
  const KvShape shape = stamp_shape(options.kv.pages, 4);
  const auto pool = make_stamp_pool(shape, KvLayout::kLayerFirst);
  const auto windowed =
      make_stamp_pool(stamp_shape(options.kv.windowed_pages, 4), KvLayout::kLayerFirst);
  FakeClock clock;
  StampModel model;
  SimulatedTiers tiers({}, *pool, clock);
  const auto refusal = [&](KvPool* windowed_or_null, LowerTiers* tiers_or_null) {
    const auto engine = Engine::open(options, {.runner = model,
                                               .pools = {*pool, windowed_or_null},
                                               .vocab_tokens = kStampVocab,
                                               .clock = clock,
                                               .lower_tiers = tiers_or_null});
    return engine.ok() ? std::string() : engine.error().detail;
  };
  EXPECT_EQ(refusal(windowed.get(), nullptr), "");
  EXPECT_EQ(refusal(nullptr, nullptr),
            "window_tokens is 16, and there is no pool of windowed layers");
  EXPECT_EQ(refusal(windowed.get(), &tiers),
            "window_tokens is 16, and lower tiers have 0 windowed pages");
}

TEST(Windows, WrongOptionsAreNamed) {
  EngineOptions options = windowed_options(4, 16);
  options.kv.windowed_pages = 4;
  EXPECT_EQ(validate(options).error().detail, "windowed_pages must be at least 5 (got 4)");
  options.kv.window_tokens = 0;
  EXPECT_EQ(validate(options).error().detail, "windowed_pages must be at most 0 (got 4)");
}

}  // namespace
}  // namespace stemma
