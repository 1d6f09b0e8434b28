#include "replay/trace_format.h"

#include <array>
#include <string>

#include "base/json_text.h"

namespace stemma {

namespace {

constexpr std::array<TraceFormat, 6> kFormats = {{
    {.name = "mooncake", .page_tokens = 512},
    {.name = "qwen-bailian", .page_tokens = 16, .ms_per_time_unit = 1000, .ids_of_prefixes = false},
    {.name = "block-hash", .ms_per_time_unit = 1000, .short_names = true},
    {.name = "prompts",
     .family = TraceFamily::kPrompts,
     .page_tokens = 64,
     .ms_per_time_unit = 1e-3},
    {.name = "kv-events", .family = TraceFamily::kKvEvents, .ms_per_time_unit = 1000},
    {.name = "capture", .family = TraceFamily::kCapture},
}};
constexpr std::int64_t kPageTokensMax = std::int64_t{1} << 20;

Error invalid(std::string why) {
  return {ErrorCode::kInvalidArgument, std::move(why)};
}

}  // namespace

Result<TraceFormat> find_trace_format(std::string_view name) {
  std::string known;
  for (const TraceFormat& format : kFormats) {
    if (format.name == name) return format;
    known += (known.empty() ? "" : ", ") + std::string(format.name);
  }
  return Error{ErrorCode::kNotFound,
               "--format: unknown trace format '" + printable(name) + "' (known: " + known + ")"};
}

Status check_trace_options(const TraceOptions& options) {
  const std::string format(options.format.name);
  if (options.page_tokens < 0 || options.page_tokens > kPageTokensMax) {
    return invalid("--page-tokens must be from 1 to " + std::to_string(kPageTokensMax) + " (got " +
                   std::to_string(options.page_tokens) + ")");
  }
  if (options.reorder_requests < 1) {
    return invalid("--reorder-requests must be at least 1 (got " +
                   std::to_string(options.reorder_requests) + ")");
  }
  const bool said_by_file = options.format.family == TraceFamily::kKvEvents ||
                            options.format.family == TraceFamily::kCapture;
  if (said_by_file && options.page_tokens != 0) {
    return invalid("--page-tokens: a trace of format " + format + " says it itself");
  }
  if (!said_by_file && options.format.page_tokens == 0 && options.page_tokens == 0) {
    return invalid("--page-tokens: wanted for format " + format +
                   ": how many tokens one of its hashes stands for");
  }
  if (options.tokenizer_or_null != nullptr && options.format.family != TraceFamily::kPrompts) {
    return invalid("--tokenizer: a trace of format " + format + " holds no text");
  }
  return {};
}

}  // namespace stemma
