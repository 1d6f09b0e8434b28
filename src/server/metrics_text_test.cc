// What Prometheus and dashboards read: the text format, histograms, names of other engines.
#include "server/metrics_text.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "server/answer_tally.h"
#include "server/growth_rate.h"
#include "server/metric_help.h"
#include "server/metrics_compat.h"
#include "stemma/engine.h"

namespace stemma {
namespace {

using testing::HasSubstr;
using testing::Not;

RequestStats stats_of(std::int64_t prompt, std::int64_t cached, std::int64_t from_host) {
  RequestStats stats;
  stats.prompt_tokens = prompt;
  stats.cached_tokens = cached;
  stats.computed_tokens = prompt - cached;
  stats.queue_us = 1'000;
  stats.ttft_us = 40'000;
  stats.brought.host = from_host;
  stats.stop = PrefixStop::kEvicted;
  return stats;
}

TEST(MetricsText, EveryMetricHasItsTypeAndWhatItSays) {
  MetricsText text;
  text.counter("stemma_steps_total", 7);
  text.gauge("never_heard_of", -3);
  EXPECT_EQ(text.text(), R"(# HELP stemma_steps_total Batches that the engine computed
# TYPE stemma_steps_total counter
stemma_steps_total 7
# TYPE never_heard_of gauge
never_heard_of -3
)");
}

TEST(MetricsText, LabelsAreEscaped) {
  EXPECT_EQ(label("model_name", "a\"b\\c\nd"), R"(model_name="a\"b\\c\nd")");
  MetricsText text;
  text.sample("x", label("k", "v"), 0.25);
  EXPECT_EQ(text.text(), "x{k=\"v\"} 0.25\n");
}

TEST(StepHistogram, CountsEachSampleInTheFirstStepThatHoldsIt) {
  StepHistogram times(kLatencySteps);
  times.add(0);
  times.add(1'000);        // an end belongs to its step
  times.add(1'001);        // and what is longer to the next one
  times.add(400'000'000);  // longer than all
  EXPECT_EQ(times.samples_in()[0], 2);
  EXPECT_EQ(times.samples_in()[1], 1);
  EXPECT_EQ(times.samples_in().back(), 1);
  EXPECT_EQ(times.samples(), 4);
  EXPECT_EQ(times.sum(), 400'002'001);
}

TEST(StepHistogram, IsWrittenAsSumsFromTheStart) {
  StepHistogram times(kLatencySteps);
  times.add(500);
  times.add(2'000'000);
  times.add(400'000'000);
  MetricsText text;
  text.histogram("t_seconds", R"(a="b")", times);
  EXPECT_THAT(text.text(),
              HasSubstr("# TYPE t_seconds histogram\nt_seconds_bucket{a=\"b\",le=\"0.001\"} 1\n"));
  EXPECT_THAT(text.text(), HasSubstr("t_seconds_bucket{a=\"b\",le=\"1\"} 1\n"));
  EXPECT_THAT(text.text(), HasSubstr("t_seconds_bucket{a=\"b\",le=\"2.5\"} 2\n"));
  EXPECT_THAT(text.text(), HasSubstr("t_seconds_bucket{a=\"b\",le=\"300\"} 2\n"));
  EXPECT_THAT(text.text(), HasSubstr("t_seconds_bucket{a=\"b\",le=\"+Inf\"} 3\n"));
  EXPECT_THAT(text.text(), HasSubstr("t_seconds_sum{a=\"b\"} 402.0005\n"));
  EXPECT_THAT(text.text(), HasSubstr("t_seconds_count{a=\"b\"} 3\n"));
}

TEST(StepHistogram, TellsLengthsAsTheyAre) {
  StepHistogram lengths(kLengthSteps);
  lengths.add(150, 3);
  MetricsText text;
  text.histogram("t_tokens", "", lengths);
  EXPECT_THAT(text.text(), HasSubstr("t_tokens_bucket{le=\"100\"} 0\n"));
  EXPECT_THAT(text.text(), HasSubstr("t_tokens_bucket{le=\"200\"} 3\n"));
  EXPECT_THAT(text.text(), HasSubstr("t_tokens_bucket{le=\"1000000\"} 3\n"));
  EXPECT_THAT(text.text(), HasSubstr("t_tokens_sum 450\n"));
}

// However many ask, and however often.
TEST(GrowthRate, IsOfASecondOrMore) {
  GrowthRate rate;
  EXPECT_EQ(rate.per_second(100, 5'000'000), 0);
  EXPECT_EQ(rate.per_second(150, 5'900'000), 0) << "not yet a second";
  EXPECT_EQ(rate.per_second(200, 7'000'000), 50);
  EXPECT_EQ(rate.per_second(300, 7'500'000), 50) << "as it was";
  EXPECT_EQ(rate.per_second(300, 9'000'000), 50);
  EXPECT_EQ(rate.per_second(300, 11'000'000), 0) << "nothing came";
}

TEST(AnswerTally, AddsUpWhereTokensCameFrom) {
  AnswerTally tally;
  tally.note(stats_of(100, 64, 16), "stop", 90'000);
  tally.note(stats_of(10, 0, 0), "length", 50'000);
  tally.note({}, "cancelled", 1'000);  // before it ran: nothing was found or computed
  MetricsText text;
  tally.write(text);
  EXPECT_THAT(text.text(), HasSubstr("stemma_hit_tokens_total{source=\"device\"} 48\n"));
  EXPECT_THAT(text.text(), HasSubstr("stemma_hit_tokens_total{source=\"host\"} 16\n"));
  EXPECT_THAT(text.text(), HasSubstr("stemma_hit_tokens_total{source=\"remote\"} 0\n"));
  EXPECT_THAT(text.text(), HasSubstr("stemma_answered_prompt_tokens_total 110\n"));
  EXPECT_THAT(text.text(), HasSubstr("stemma_answered_computed_tokens_total 46\n"));
  EXPECT_THAT(text.text(), HasSubstr("stemma_prefix_stops_total{reason=\"evicted\"} 2\n"));
  EXPECT_THAT(text.text(), HasSubstr("stemma_prefix_stops_total{reason=\"cold\"} 0\n"));
  EXPECT_THAT(text.text(), HasSubstr("stemma_answers_total{outcome=\"cancelled\"} 1\n"));
  EXPECT_THAT(text.text(), HasSubstr("stemma_ttft_seconds_count 2\n"));
  EXPECT_THAT(text.text(), HasSubstr("stemma_request_seconds_count 3\n"));
  EXPECT_THAT(text.text(), HasSubstr("# HELP stemma_ttft_seconds "));
  EXPECT_THAT(text.text(), HasSubstr("# HELP stemma_answers_total Requests for answers by "))
      << "of several to one, too";
}

TEST(AnswerTally, CountsEveryReasonForWhichAPrefixStopped) {
  AnswerTally tally;
  for (std::size_t i = 0; i < kPrefixStops; ++i) {
    RequestStats stats = stats_of(10, 0, 0);
    stats.stop = static_cast<PrefixStop>(i);
    tally.note(stats, "stop", 1'000);
  }
  MetricsText text;
  tally.write(text);
  for (std::size_t i = 0; i < kPrefixStops; ++i) {
    const auto name = prefix_stop_name(static_cast<PrefixStop>(i));
    EXPECT_NE(name, "unknown");
    EXPECT_THAT(text.text(),
                HasSubstr("stemma_prefix_stops_total{" + label("reason", name) + "} 1\n"));
  }
  EXPECT_EQ(prefix_stop_name(static_cast<PrefixStop>(kPrefixStops)), "unknown");
}

// 5 tokens in 80 ms, 3 in 60 ms, and one that was given up.
constexpr GeneratedText kGenerated[] = {{.ended = true, .tokens = 5, .decode_us = 80'000},
                                        {.ended = true, .tokens = 3, .decode_us = 60'000},
                                        {}};

TEST(AnswerTally, CountsAPromptOnceAndEachOfItsAnswers) {
  AnswerTally tally;
  tally.note_prompt(stats_of(100, 64, 16), kGenerated);
  MetricsText text;
  tally.write(text);
  for (const char* const line :
       {"stemma_prompt_length_tokens_sum 100\n", "stemma_prompt_length_tokens_count 1\n",
        "stemma_prefill_seconds_sum 0.039\n", "stemma_answer_length_tokens_sum 8\n",
        "stemma_answer_length_tokens_count 2\n", "stemma_decode_seconds_sum 0.14\n",
        "# HELP stemma_output_token_seconds "}) {
    EXPECT_THAT(text.text(), HasSubstr(line));
  }
}

// Prometheus shows no growth of a sample that was not there before.
TEST(AnswerTally, EveryWayToEndIsThereBeforeAnAnswerTakesIt) {
  MetricsText text;
  AnswerTally().write(text);
  for (const auto reason : {FinishReason::kStop, FinishReason::kLength, FinishReason::kCancelled,
                            FinishReason::kFailed}) {
    EXPECT_THAT(text.text(), HasSubstr("stemma_answers_total{" +
                                       label("outcome", finish_reason_name(reason)) + "} 0\n"));
  }
  EXPECT_THAT(text.text(), HasSubstr("stemma_answers_total{outcome=\"cut_off\"} 0\n"));
}

TEST(AnswerTally, ATokenTakesAsLongAsThoseOfItsAnswerOnAverage) {
  AnswerTally tally;
  tally.note_prompt(stats_of(100, 64, 16), kGenerated);
  MetricsText text;
  tally.write(text);
  EXPECT_THAT(text.text(), HasSubstr("stemma_output_token_seconds_bucket{le=\"0.015\"} 0\n"));
  EXPECT_THAT(text.text(), HasSubstr("stemma_output_token_seconds_bucket{le=\"0.025\"} 4\n"));
  EXPECT_THAT(text.text(), HasSubstr("stemma_output_token_seconds_bucket{le=\"0.035\"} 6\n"));
  EXPECT_THAT(text.text(), HasSubstr("stemma_output_token_seconds_sum 0.14\n"));
}

TEST(AnswerTally, APromptWithoutAnAnswerIsNotCounted) {
  AnswerTally tally;
  tally.note_prompt(stats_of(100, 64, 16), std::span(kGenerated).last(1));
  tally.note_prompt({}, kGenerated);  // its first answer failed before it had a token
  EXPECT_EQ(tally.prompt_lengths.samples(), 0);
  EXPECT_EQ(tally.answer_lengths.samples(), 0);
}

class Compat : public testing::Test {
 protected:
  Compat() {
    values_.gauge("stemma_page_size_tokens", 16);
    values_.gauge("stemma_device_pages", 100);
    values_.gauge("stemma_device_free_pages", 50);
    values_.gauge("stemma_device_evictable_pages", 25);
    values_.gauge("stemma_running_requests", 3);
    tally_.note(stats_of(100, 64, 16), "stop", 90'000);
    tally_.note_prompt(stats_of(100, 64, 16), kGenerated);
    prompts_.note(stats_of(100, 64, 16));
    prompts_.note(stats_of(40, 16, 0));  // of an answer that goes on
  }
  MetricsSource source() const { return {values_, tally_, "a model", 12.5, 77, prompts_}; }

  MetricValues values_;
  AnswerTally tally_;
  PromptTally prompts_;
  MetricsText text_;
};

TEST_F(Compat, VllmCountsTokensAndUsage) {
  write_vllm_metrics(source(), text_);
  const std::string labels = R"({model_name="a model",engine="0"})";
  for (const char* const line :
       {"vllm:num_requests_running@ 3\n", "vllm:num_requests_waiting@ 0\n",
        "vllm:kv_cache_usage_perc@ 0.25\n", "vllm:prefix_cache_queries_total@ 140\n",
        "vllm:prefix_cache_hits_total@ 64\n", "vllm:external_prefix_cache_queries_total@ 76\n",
        "vllm:external_prefix_cache_hits_total@ 16\n", "vllm:prompt_tokens_total@ 140\n",
        "vllm:prompt_tokens_cached_total@ 80\n", "vllm:generation_tokens_total@ 77\n",
        "vllm:time_to_first_token_seconds_count@ 2\n"}) {
    std::string wanted = line;
    wanted.replace(wanted.find('@'), 1, labels);
    EXPECT_THAT(text_.text(), HasSubstr(wanted));
  }
  EXPECT_THAT(text_.text(),
              HasSubstr("vllm:request_success_total{model_name=\"a model\",engine=\"0\","
                        "finished_reason=\"stop\"} 1\n"));
}

TEST_F(Compat, VllmTellsLengthsAndTimesOfEachPhase) {
  write_vllm_metrics(source(), text_);
  const std::string labels = R"({model_name="a model",engine="0"})";
  for (const char* const line :
       {"vllm:time_per_output_token_seconds_count@ 6\n",
        "vllm:inter_token_latency_seconds_count@ 6\n", "vllm:request_prompt_tokens_sum@ 100\n",
        "vllm:request_generation_tokens_sum@ 8\n",
        "vllm:request_max_num_generation_tokens_sum@ 5\n",
        "vllm:request_prefill_time_seconds_sum@ 0.039\n",
        "vllm:request_decode_time_seconds_sum@ 0.14\n"}) {
    std::string wanted = line;
    wanted.replace(wanted.find('@'), 1, labels);
    EXPECT_THAT(text_.text(), HasSubstr(wanted));
  }
}

TEST_F(Compat, AnswersThatWereGivenUpAreAborted) {
  tally_.note(stats_of(100, 64, 16), "cancelled", 90'000);
  tally_.note(stats_of(100, 64, 16), "cut_off", 90'000);
  write_vllm_metrics(source(), text_);
  write_sglang_metrics(source(), text_);
  EXPECT_THAT(text_.text(), HasSubstr(R"(engine="0",finished_reason="abort"} 2)"));
  EXPECT_THAT(text_.text(), HasSubstr(R"(engine="0",finished_reason="stop"} 1)"));
  EXPECT_THAT(text_.text(), HasSubstr(R"(engine="0",finished_reason="length"} 0)"));
  EXPECT_THAT(text_.text(),
              HasSubstr("sglang:num_aborted_requests_total{model_name=\"a model\"} 2\n"));
}

TEST_F(Compat, SglangCountsTokensAndUsage) {
  write_sglang_metrics(source(), text_);
  const std::string labels = R"({model_name="a model"})";
  for (const char* const line :
       {"sglang:num_running_reqs@ 3\n", "sglang:token_usage@ 0.25\n",
        "sglang:kv_used_tokens@ 400\n", "sglang:kv_available_tokens@ 800\n",
        "sglang:kv_evictable_tokens@ 400\n", "sglang:cache_hit_rate@ 0.64\n",
        "sglang:gen_throughput@ 12.5\n", "sglang:e2e_request_latency_seconds_sum@ 0.09\n",
        "sglang:inter_token_latency_seconds_count@ 6\n",
        "sglang:time_per_output_token_seconds_count@ 6\n",
        "sglang:prompt_tokens_histogram_sum@ 100\n",
        "sglang:generation_tokens_histogram_sum@ 8\n"}) {
    std::string wanted = line;
    wanted.replace(wanted.find('@'), 1, labels);
    EXPECT_THAT(text_.text(), HasSubstr(wanted));
  }
  EXPECT_THAT(text_.text(), Not(HasSubstr("hicache"))) << "there is no host memory";
  values_.gauge("stemma_host_pages", 10);
  values_.gauge("stemma_host_free_pages", 4);
  MetricsText with_host;
  write_sglang_metrics(source(), with_host);
  EXPECT_THAT(with_host.text(),
              HasSubstr("sglang:hicache_host_used_tokens{model_name=\"a model\"} 96\n"));
}

TEST_F(Compat, VllmTellsWhichAdaptersAreAtWork) {
  write_vllm_metrics(source(), text_);
  EXPECT_THAT(text_.text(), Not(HasSubstr("lora"))) << "there are none";
  MetricsSource with_adapters = source();
  with_adapters.adapters = {
      .loaded = 3, .running = {"poet", "sage"}, .waiting = {"bard"}, .seconds = 1'700'000'000.25};
  MetricsText text;
  write_vllm_metrics(with_adapters, text);
  EXPECT_THAT(
      text.text(),
      HasSubstr("vllm:lora_requests_info{max_lora=\"3\",running_lora_adapters=\"poet,sage\","
                "waiting_lora_adapters=\"bard\"} 1700000000.25\n"));
}

TEST_F(Compat, AnEmptyServerDividesByNothing) {
  const MetricValues nothing;
  const AnswerTally nobody;
  write_vllm_metrics({nothing, nobody, "m"}, text_);
  write_sglang_metrics({nothing, nobody, "m"}, text_);
  EXPECT_THAT(text_.text(), Not(HasSubstr("nan")));
  EXPECT_THAT(text_.text(),
              HasSubstr("vllm:kv_cache_usage_perc{model_name=\"m\",engine=\"0\"} 0\n"));
}

}  // namespace
}  // namespace stemma
