#include "replay/capture_parser.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "replay/capture_format.h"
#include "replay/trace_fields.h"
#include "stemma/engine.h"

namespace stemma {

namespace {

constexpr std::int64_t kPageTokensMax = std::int64_t{1} << 20;
constexpr std::size_t kPageNameDigits = 16;
constexpr JsonFields::Range kPriorities = {.min = std::numeric_limits<std::int32_t>::min(),
                                           .max = std::numeric_limits<std::int32_t>::max()};
constexpr std::array kEnds = {FinishReason::kStop, FinishReason::kLength, FinishReason::kCancelled,
                              FinishReason::kFailed};

bool ends_a_request(std::string_view name) {
  return std::any_of(kEnds.begin(), kEnds.end(),
                     [name](FinishReason reason) { return finish_reason_name(reason) == name; });
}

// -1: not a hexadecimal digit as they are written.
int digit_value(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  return -1;
}

Result<std::vector<std::int64_t>> read_names(const nlohmann::json* field_or_null,
                                             std::string_view where, std::string_view field) {
  if (field_or_null == nullptr || !field_or_null->is_array()) {
    return wrong_trace_field(where, field, "an array of hashes is wanted");
  }
  std::vector<std::int64_t> hashes;
  for (const nlohmann::json& name : *field_or_null) {
    const std::string digits = name.is_string() ? name.get<std::string>() : "";
    std::uint64_t hash = 0;
    bool right = digits.size() == kPageNameDigits;
    for (const char digit : digits) {
      right = right && digit_value(digit) >= 0;
      hash = hash << 4 | static_cast<std::uint64_t>(digit_value(digit) & 15);
    }
    if (!right) {
      return wrong_trace_field(where,
                               std::string(field) + "[" + std::to_string(hashes.size()) + "]",
                               "16 hexadecimal digits are wanted");
    }
    hashes.push_back(static_cast<std::int64_t>(hash));
  }
  return hashes;
}

}  // namespace

Status CaptureParser::take(std::string_view line, std::string_view where) {
  STEMMA_ASSIGN_OR_RETURN(const nlohmann::json object,
                          parse_json_object(line, where, kTraceLineLimits));
  return page_size_ == 0 ? take_header(object, where) : take_request(object, where);
}

Status CaptureParser::take_header(const nlohmann::json& object, std::string_view where) {
  JsonFields fields(object, where);
  const nlohmann::json* format = fields.find_or_null("format");
  if (format == nullptr || *format != kCaptureFormat) {
    return wrong_trace_field(where, "format",
                             "a capture's first line says \"" + std::string(kCaptureFormat) + "\"");
  }
  const std::int64_t version =
      fields.integer("version", {1, std::numeric_limits<std::int64_t>::max()}, std::nullopt);
  const std::int64_t page_size = fields.integer("page_size", {1, kPageTokensMax}, std::nullopt);
  STEMMA_RETURN_IF_ERROR(fields.status());
  if (version != kCaptureVersion) {
    return Error{ErrorCode::kUnsupported,
                 std::string(where) + ": version: " + std::to_string(version) +
                     " is not known, only " + std::to_string(kCaptureVersion)};
  }
  page_size_ = page_size;
  return {};
}

Status CaptureParser::take_request(const nlohmann::json& object, std::string_view where) {
  JsonFields fields(object, where);
  TraceRequest request;
  STEMMA_ASSIGN_OR_RETURN(
      request.timestamp_ms,
      read_trace_time_ms(fields.find_or_null("timestamp_ms"), 1, where, "timestamp_ms"));
  request.input_tokens = fields.integer("input_tokens", kTraceTokens, std::nullopt);
  request.output_tokens = fields.integer("output_tokens", kTraceTokens, std::nullopt);
  fields.text("namespace", std::nullopt);
  const std::string finish_reason = fields.text("finish_reason", std::nullopt);
  request.priority =
      static_cast<std::int32_t>(fields.integer("priority", kPriorities, std::nullopt));
  STEMMA_RETURN_IF_ERROR(fields.status());
  if (!ends_a_request(finish_reason)) {
    return wrong_trace_field(where, "finish_reason", "stop, length, cancelled or failed is wanted");
  }
  STEMMA_ASSIGN_OR_RETURN(request.page_hashes,
                          read_names(fields.find_or_null("page_hashes"), where, "page_hashes"));
  STEMMA_ASSIGN_OR_RETURN(
      request.output_page_hashes,
      read_names(fields.find_or_null("output_page_hashes"), where, "output_page_hashes"));
  ready_ = std::move(request);
  return {};
}

}  // namespace stemma
