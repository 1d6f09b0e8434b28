#include "server/receipt.h"

#include <fmt/format.h>

#include <algorithm>

namespace stemma {
namespace {

std::int64_t device_tokens(const RequestStats& stats) {
  return stats.cached_tokens - stats.brought.total();
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
          .brought = {.host = a.brought.host + b.brought.host,
                      .disk = a.brought.disk + b.brought.disk,
                      .remote = a.brought.remote + b.brought.remote}};
}

TemplateJson receipt_json(const RequestStats& stats) {
  TemplateJson json;
  json["prompt_tokens"] = stats.prompt_tokens;
  json["tokens"]["device"] = device_tokens(stats);
  json["tokens"]["host"] = stats.brought.host;
  json["tokens"]["disk"] = stats.brought.disk;
  json["tokens"]["remote"] = stats.brought.remote;
  json["tokens"]["computed"] = stats.computed_tokens;
  json["queue_ms"] = static_cast<double>(stats.queue_us) / 1000;
  json["ttft_ms"] = static_cast<double>(stats.ttft_us) / 1000;
  return json;
}

std::string receipt_header(const RequestStats& stats) {
  return fmt::format("device={}; host={}; disk={}; remote={}; computed={}", device_tokens(stats),
                     stats.brought.host, stats.brought.disk, stats.brought.remote,
                     stats.computed_tokens);
}

}  // namespace stemma
