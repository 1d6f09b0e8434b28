#include "replay/prompts_parser.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include "model/tokenizer.h"
#include "model/unicode_text.h"
#include "replay/trace_fields.h"

namespace stemma {

namespace {

constexpr std::int64_t kTokenisedPageTokens = 16;
constexpr EncodeOptions kTextOnly = {.add_special_tokens = false, .parse_special_tokens = false};

std::int64_t page_tokens_of(const TraceOptions& options) {
  if (options.page_tokens != 0) return options.page_tokens;
  return options.tokenizer_or_null != nullptr ? kTokenisedPageTokens : options.format.page_tokens;
}

bool begins_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) != 0x80;  // in UTF-8
}

// The hash of the page of these bytes that follows the page of `hash_before`.
std::int64_t hash_page(std::int64_t hash_before, std::span<const std::byte> page, Sha256& hasher) {
  hasher.update(std::as_bytes(std::span(&hash_before, 1)));
  hasher.update(page);
  const Sha256Digest digest = hasher.finish();
  std::int64_t hash = 0;
  std::memcpy(&hash, digest.data(), sizeof(hash));
  return hash & std::numeric_limits<std::int64_t>::max();
}

Error cannot_tokenise(std::string_view where, std::string_view field, const Error& error) {
  return {error.code, std::string(where) + ": " + std::string(field) + ": " + error.detail};
}

}  // namespace

PromptsParser::PromptsParser(const TraceOptions& options)
    : ms_per_time_unit_(options.format.ms_per_time_unit),
      tokenizer_or_null_(options.tokenizer_or_null),
      page_tokens_(page_tokens_of(options)) {}

Status PromptsParser::take(std::string_view line, std::string_view where) {
  STEMMA_ASSIGN_OR_RETURN(const nlohmann::json object,
                          parse_json_object(line, where, kTraceLineLimits));
  JsonFields fields(object, where);
  TraceRequest request;
  STEMMA_ASSIGN_OR_RETURN(
      request.timestamp_ms,
      read_trace_time_ms(fields.find_or_null("timestamp"), ms_per_time_unit_, where, "timestamp"));
  const std::string input = fields.text("input", std::nullopt);
  const std::string output = fields.text("output", "");
  STEMMA_RETURN_IF_ERROR(fields.status());
  if (tokenizer_or_null_ == nullptr) {
    cut_characters(input, request);
    request.output_tokens = characters_in(output);
  } else {
    STEMMA_RETURN_IF_ERROR(cut_tokens(input, where, request));
    STEMMA_ASSIGN_OR_RETURN(request.output_tokens, count_tokens(output, where));
  }
  ready_ = std::move(request);
  return {};
}

void PromptsParser::cut_characters(std::string_view text, TraceRequest& request) {
  request.input_tokens = characters_in(text);
  std::int64_t hash = 0;
  std::int64_t characters = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && !begins_character(text[i])) continue;
    if (characters == page_tokens_) {
      hash = hash_page(hash, std::as_bytes(std::span(text.substr(begin, i - begin))), hasher_);
      request.page_hashes.push_back(hash);
      begin = i;
      characters = 0;
    }
    ++characters;
  }
}

Status PromptsParser::cut_tokens(std::string_view text, std::string_view where,
                                 TraceRequest& request) {
  const Result<std::vector<TokenId>> tokens = tokenizer_or_null_->encode(text, kTextOnly);
  if (!tokens.ok()) return cannot_tokenise(where, "input", tokens.error());
  request.input_tokens = static_cast<std::int64_t>(tokens->size());
  const auto page = static_cast<std::size_t>(page_tokens_);
  std::int64_t hash = 0;
  for (std::size_t i = 0; i + page <= tokens->size(); i += page) {
    hash = hash_page(hash, std::as_bytes(std::span(*tokens).subspan(i, page)), hasher_);
    request.page_hashes.push_back(hash);
  }
  return {};
}

Result<std::int64_t> PromptsParser::count_tokens(std::string_view text,
                                                 std::string_view where) const {
  const Result<std::vector<TokenId>> tokens = tokenizer_or_null_->encode(text, kTextOnly);
  if (!tokens.ok()) return cannot_tokenise(where, "output", tokens.error());
  return static_cast<std::int64_t>(tokens->size());
}

}  // namespace stemma
