// What a response says of the cache: the costs of several prompts added up, in full and in short.
#include "server/receipt.h"

#include <gtest/gtest.h>

namespace stemma {
namespace {

RequestStats first() {
  RequestStats stats;
  stats.prompt_tokens = 100;
  stats.cached_tokens = 60;
  stats.computed_tokens = 40;
  stats.output_tokens = 3;
  stats.queue_us = 2'000;
  stats.ttft_us = 9'000;
  stats.brought = {.host = 20, .disk = 10, .remote = 5};
  stats.brought_us = {.host = 200, .disk = 100, .remote = 50};
  stats.stop = PrefixStop::kTail;
  stats.saved_us = 7'000;
  return stats;
}

RequestStats second() {
  RequestStats stats;
  stats.prompt_tokens = 50;
  stats.cached_tokens = 8;
  stats.computed_tokens = 42;
  stats.output_tokens = 2;
  stats.queue_us = 5'000;
  stats.ttft_us = 6'000;
  stats.brought = {.host = 1, .disk = 2, .remote = 3};
  stats.stop = PrefixStop::kOtherNamespace;
  stats.differing_field = "cache_salt";
  return stats;
}

TEST(Receipts, OfSeveralPromptsAddUpTokensAndTellTheLongestTimes) {
  const RequestStats both = sum_of(first(), second());
  EXPECT_EQ(both.prompt_tokens, 150);
  EXPECT_EQ(both.cached_tokens, 68);
  EXPECT_EQ(both.computed_tokens, 82);
  EXPECT_EQ(both.output_tokens, 5);
  EXPECT_EQ(both.queue_us, 5'000);
  EXPECT_EQ(both.ttft_us, 9'000);
  EXPECT_EQ(both.brought.total(), 35 + 6);
  EXPECT_EQ(both.brought_us.host, 200);
  EXPECT_EQ(both.saved_us, 7'000) << "what is known of it";
}

// A prompt that was found to its end has nothing to say of where it stopped.
TEST(Receipts, OfSeveralPromptsTellTheFirstReasonToStop) {
  for (const RequestStats& both : {sum_of(first(), second()), sum_of(second(), first())}) {
    EXPECT_EQ(both.stop, PrefixStop::kOtherNamespace);
    EXPECT_EQ(both.differing_field, "cache_salt");
  }
  RequestStats cold = first();
  cold.stop = PrefixStop::kCold;
  EXPECT_EQ(sum_of(cold, second()).stop, PrefixStop::kCold);
}

TEST(Receipts, OnTheDeviceWasWhatNoTierBrought) {
  const TemplateJson json = receipt_json(first(), "lru");
  EXPECT_EQ(json["tokens"].dump(), R"({"device":25,"host":20,"disk":10,"remote":5,"computed":40})");
  EXPECT_EQ(json["stopped"].dump(), R"({"reason":"tail"})");
  EXPECT_EQ(json["saved_ms"], 7.0);
  EXPECT_EQ(receipt_header(first()),
            "device=25; host=20; disk=10; remote=5; computed=40; stopped=tail; saved_ms=7.0");
  EXPECT_EQ(receipt_header(second()),
            "device=2; host=1; disk=2; remote=3; computed=42; stopped=other_namespace; "
            "differs=cache_salt");
}

TEST(Receipts, SayWhoEvictedAndWhen) {
  EXPECT_EQ(stop_json({PrefixStop::kEvicted, 1'200'000}, "slru").dump(),
            R"({"reason":"evicted","evicted_ms_ago":1200.0,"policy":"slru"})");
  EXPECT_EQ(stop_json({PrefixStop::kOtherNamespace, 0, "extra_key"}, "slru").dump(),
            R"({"reason":"other_namespace","differs":"extra_key"})");
}

}  // namespace
}  // namespace stemma
