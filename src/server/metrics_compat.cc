#include "server/metrics_compat.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <utility>

namespace stemma {
namespace {

double share(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

// Writes whole metrics that all have the same labels.
class Labelled {
 public:
  Labelled(MetricsText& text, std::string labels) : text_(text), labels_(std::move(labels)) {}

  template <typename Number>
  void gauge(std::string_view name, Number value) {
    text_.begin("gauge", name);
    text_.sample(name, labels_, value);
  }
  void counter(std::string_view name, std::int64_t value) {
    text_.begin("counter", name);
    text_.sample(name, labels_, value);
  }
  void histogram(std::string_view name, const StepHistogram& samples) {
    text_.histogram(name, labels_, samples);
  }
  const std::string& labels() const noexcept { return labels_; }

 private:
  MetricsText& text_;
  std::string labels_;
};

std::int64_t used_pages(const MetricValues& values) {
  return values["stemma_device_pages"] - values["stemma_device_free_pages"] -
         values["stemma_device_evictable_pages"];
}

std::int64_t hit_tokens(const AnswerTally& answers) {
  return answers.device_tokens + answers.brought.total();
}

// Two names have the same numbers: of older versions and of newer ones.
void write_vllm_requests(const AnswerTally& answers, MetricsText& text, Labelled& out) {
  out.histogram("vllm:time_per_output_token_seconds", answers.output_token);
  out.histogram("vllm:inter_token_latency_seconds", answers.output_token);
  out.histogram("vllm:e2e_request_latency_seconds", answers.request);
  out.histogram("vllm:request_queue_time_seconds", answers.queue);
  out.histogram("vllm:request_prefill_time_seconds", answers.prefill);
  out.histogram("vllm:request_decode_time_seconds", answers.decode);
  out.histogram("vllm:request_prompt_tokens", answers.prompt_lengths);
  out.histogram("vllm:request_generation_tokens", answers.answer_lengths);
  out.histogram("vllm:request_max_num_generation_tokens", answers.longest_lengths);
  text.begin("counter", "vllm:request_success_total");
  const std::pair<std::string_view, std::int64_t> outcomes[] = {
      {"stop", answers.answers("stop")},
      {"length", answers.answers("length")},
      {"abort", answers.given_up()}};
  for (const auto& [reason, count] : outcomes) {
    text.sample("vllm:request_success_total", out.labels() + "," + label("finished_reason", reason),
                count);
  }
}

// Routers send a request to where its adapter is at work: they read names from labels, and which of
// two lines is the newer one from the value.
void write_vllm_adapters(const MetricsSource::Adapters& adapters, MetricsText& text) {
  const auto names = [](const std::set<std::string>& all) {
    return fmt::format("{}", fmt::join(all, ","));
  };
  text.begin("gauge", "vllm:lora_requests_info");
  text.sample("vllm:lora_requests_info",
              label("max_lora", std::to_string(adapters.loaded)) + "," +
                  label("running_lora_adapters", names(adapters.running)) + "," +
                  label("waiting_lora_adapters", names(adapters.waiting)),
              adapters.seconds);
}

}  // namespace

void write_vllm_metrics(const MetricsSource& source, MetricsText& text) {
  const MetricValues& values = source.values;
  const PromptTally& prompts = source.prompts;
  Labelled out(text, label("model_name", source.model_name) + R"(,engine="0")");
  out.gauge("vllm:num_requests_running", values["stemma_running_requests"]);
  out.gauge("vllm:num_requests_waiting", values["stemma_waiting_requests"]);
  const double usage = share(used_pages(values), values["stemma_device_pages"]);
  out.gauge("vllm:kv_cache_usage_perc", usage);
  out.gauge("vllm:gpu_cache_usage_perc", usage);
  out.counter("vllm:prefix_cache_queries_total", prompts.tokens);
  out.counter("vllm:prefix_cache_hits_total", prompts.device_tokens);
  out.counter("vllm:gpu_prefix_cache_queries_total", prompts.tokens);
  out.counter("vllm:gpu_prefix_cache_hits_total", prompts.device_tokens);
  out.counter("vllm:external_prefix_cache_queries_total", prompts.tokens - prompts.device_tokens);
  out.counter("vllm:external_prefix_cache_hits_total", prompts.brought.total());
  out.counter("vllm:num_preemptions_total", values["stemma_preemptions_total"]);
  out.counter("vllm:prompt_tokens_total", prompts.tokens);
  out.counter("vllm:prompt_tokens_cached_total", prompts.cached_tokens());
  out.histogram("vllm:time_to_first_token_seconds", prompts.ttft);
  out.counter("vllm:generation_tokens_total", source.generated_tokens);
  write_vllm_requests(source.answers, text, out);
  if (source.adapters.has_value()) write_vllm_adapters(*source.adapters, text);
}

void write_sglang_metrics(const MetricsSource& source, MetricsText& text) {
  const MetricValues& values = source.values;
  const AnswerTally& answers = source.answers;
  Labelled out(text, label("model_name", source.model_name));
  const std::int64_t page_size = values["stemma_page_size_tokens"];
  const double usage = share(used_pages(values), values["stemma_device_pages"]);
  out.gauge("sglang:num_running_reqs", values["stemma_running_requests"]);
  out.gauge("sglang:num_queue_reqs", values["stemma_waiting_requests"]);
  out.gauge("sglang:token_usage", usage);
  out.gauge("sglang:full_token_usage", usage);
  out.gauge("sglang:num_used_tokens", used_pages(values) * page_size);
  out.gauge("sglang:kv_used_tokens", used_pages(values) * page_size);
  out.gauge("sglang:kv_available_tokens", values["stemma_device_free_pages"] * page_size);
  out.gauge("sglang:kv_evictable_tokens", values["stemma_device_evictable_pages"] * page_size);
  out.gauge("sglang:max_total_num_tokens", values["stemma_device_pages"] * page_size);
  out.gauge("sglang:gen_throughput", source.output_tokens_per_second);
  out.gauge("sglang:cache_hit_rate", share(hit_tokens(answers), answers.prompt_tokens));
  out.counter("sglang:prompt_tokens_total", values["stemma_prompt_tokens_total"]);
  out.counter("sglang:cached_tokens_total", values["stemma_cached_tokens_total"]);
  out.counter("sglang:generation_tokens_total", values["stemma_output_tokens_total"]);
  out.counter("sglang:num_requests_total", answers.request.samples());
  out.counter("sglang:num_aborted_requests_total", answers.given_up());
  if (values.has("stemma_host_pages")) {
    const std::int64_t used = values["stemma_host_pages"] - values["stemma_host_free_pages"];
    out.gauge("sglang:hicache_host_used_tokens", used * page_size);
    out.gauge("sglang:hicache_host_total_tokens", values["stemma_host_pages"] * page_size);
  }
  out.histogram("sglang:time_to_first_token_seconds", source.prompts.ttft);
  out.histogram("sglang:time_per_output_token_seconds", answers.output_token);
  out.histogram("sglang:inter_token_latency_seconds", answers.output_token);
  out.histogram("sglang:queue_time_seconds", answers.queue);
  out.histogram("sglang:e2e_request_latency_seconds", answers.request);
  out.histogram("sglang:prompt_tokens_histogram", answers.prompt_lengths);
  out.histogram("sglang:generation_tokens_histogram", answers.answer_lengths);
}

}  // namespace stemma
