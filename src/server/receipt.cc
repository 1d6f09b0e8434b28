#include "server/receipt.h"

#include <fmt/format.h>

#include <algorithm>

namespace stemma {
namespace {

std::int64_t device_tokens(const RequestStats& stats) {
  return stats.cached_tokens - stats.brought.total();
}

std::optional<std::int64_t> sum_where_known(std::optional<std::int64_t> a,
                                            std::optional<std::int64_t> b) {
  if (!a.has_value() || !b.has_value()) return a.has_value() ? a : b;
  return *a + *b;
}

BroughtTokens sum_of(BroughtTokens a, const BroughtTokens& b) {
  a += b;
  return a;
}

double ms(std::int64_t us) {
  return static_cast<double>(us) / 1000;
}

}  // namespace

RequestStats sum_of(const RequestStats& a, const RequestStats& b) {
  return {.prompt_tokens = a.prompt_tokens + b.prompt_tokens,
          .cached_tokens = a.cached_tokens + b.cached_tokens,
          .computed_tokens = a.computed_tokens + b.computed_tokens,
          .output_tokens = a.output_tokens + b.output_tokens,
          .queue_us = std::max(a.queue_us, b.queue_us),
          .ttft_us = std::max(a.ttft_us, b.ttft_us),
          .total_us = std::max(a.total_us, b.total_us),
          .preemptions = a.preemptions + b.preemptions,
          .brought = sum_of(a.brought, b.brought),
          .brought_us = sum_of(a.brought_us, b.brought_us),
          .stop = a.prompt_tokens > 0 && a.stop != PrefixStop::kTail ? a.stop : b.stop,
          .evicted_ago_us = std::max(a.evicted_ago_us, b.evicted_ago_us),
          .differing_field = a.differing_field.empty() ? b.differing_field : a.differing_field,
          .saved_us = sum_where_known(a.saved_us, b.saved_us)};
}

TemplateJson ms_json(std::optional<std::int64_t> us) {
  return us.has_value() ? TemplateJson(ms(*us)) : TemplateJson();
}

TemplateJson stop_json(const StopReport& report, std::string_view policy) {
  TemplateJson json;
  json["reason"] = prefix_stop_name(report.stop);
  if (report.stop == PrefixStop::kEvicted) {
    json["evicted_ms_ago"] = ms(report.evicted_ago_us);
    json["policy"] = policy;
  }
  if (report.stop == PrefixStop::kOtherNamespace) json["differs"] = report.differing_field;
  return json;
}

TemplateJson receipt_json(const RequestStats& stats, std::string_view policy) {
  TemplateJson json;
  json["prompt_tokens"] = stats.prompt_tokens;
  json["tokens"]["device"] = device_tokens(stats);
  json["tokens"]["host"] = stats.brought.host;
  json["tokens"]["disk"] = stats.brought.disk;
  json["tokens"]["remote"] = stats.brought.remote;
  json["tokens"]["computed"] = stats.computed_tokens;
  json["stopped"] = stop_json({stats.stop, stats.evicted_ago_us, stats.differing_field}, policy);
  json["load_ms"]["host"] = ms(stats.brought_us.host);
  json["load_ms"]["disk"] = ms(stats.brought_us.disk);
  json["load_ms"]["remote"] = ms(stats.brought_us.remote);
  json["saved_ms"] = ms_json(stats.saved_us);
  json["queue_ms"] = ms(stats.queue_us);
  json["ttft_ms"] = ms(stats.ttft_us);
  return json;
}

std::string receipt_header(const RequestStats& stats) {
  std::string text =
      fmt::format("device={}; host={}; disk={}; remote={}; computed={}; stopped={}",
                  device_tokens(stats), stats.brought.host, stats.brought.disk,
                  stats.brought.remote, stats.computed_tokens, prefix_stop_name(stats.stop));
  if (stats.stop == PrefixStop::kOtherNamespace) {
    text += fmt::format("; differs={}", stats.differing_field);
  }
  if (stats.saved_us.has_value()) text += fmt::format("; saved_ms={:.1f}", ms(*stats.saved_us));
  return text;
}

}  // namespace stemma
