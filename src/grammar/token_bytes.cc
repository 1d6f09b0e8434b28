#include "grammar/token_bytes.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <variant>

#include "model/detokenizer.h"
#include "model/tokenizer_bytes.h"
#include "model/tokenizer_decoder.h"
#include "model/unicode_text.h"

namespace stemma {
namespace {

template <typename Step>
bool has_step(const TokenDecoder& decoder) {
  return std::any_of(decoder.steps().begin(), decoder.steps().end(),
                     [](const auto& step) { return std::holds_alternative<Step>(step.kind); });
}

// A text with a character that stands for no byte stands for itself.
std::string byte_level_bytes(std::string_view spelled) {
  std::string bytes;
  for (std::size_t at = 0; at < spelled.size(); at = utf8_next(spelled, at)) {
    const std::optional<std::uint8_t> byte = byte_level_byte(utf8_code_at(spelled, at));
    if (!byte.has_value()) return std::string(spelled);
    bytes += static_cast<char>(*byte);
  }
  return bytes;
}

}  // namespace

std::string token_bytes(const Tokenizer& tokenizer, TokenId token) {
  const std::optional<std::string_view> spelled = tokenizer.token_text(token);
  if (!spelled.has_value() || tokenizer.is_special(token)) return {};
  if (has_step<TokenDecoder::ByteLevel>(tokenizer.decoder())) return byte_level_bytes(*spelled);
  if (has_step<TokenDecoder::ByteFallback>(tokenizer.decoder())) {
    const std::optional<std::uint8_t> byte = byte_token_byte(*spelled);
    if (byte.has_value()) return {static_cast<char>(*byte)};
  }
  return text_behind_others(tokenizer, token);
}

std::vector<std::string> bytes_of_tokens(const Tokenizer& tokenizer, std::int64_t tokens) {
  std::vector<std::string> bytes;
  bytes.reserve(static_cast<std::size_t>(tokens));
  for (std::int64_t token = 0; token < tokens; ++token) {
    bytes.push_back(token_bytes(tokenizer, static_cast<TokenId>(token)));
  }
  return bytes;
}

}  // namespace stemma
