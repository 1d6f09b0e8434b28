#include "model/detokenizer.h"

#include <optional>
#include <string_view>

namespace stemma {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens)
    : tokenizer_(&tokenizer),
      stream_(tokenizer.decoder()),
      skip_special_tokens_(skip_special_tokens) {}

void Detokenizer::begin_behind_others() {
  stream_.begin_behind_others();
}

std::string Detokenizer::push(TokenId token) {
  std::string text;
  if (skip_special_tokens_ && tokenizer_->is_special(token)) {
    return text;
  }
  if (const std::optional<std::string_view> spelled = tokenizer_->token_text(token)) {
    stream_.push(*spelled, text);
  }
  return text;
}

std::string Detokenizer::flush() {
  std::string text;
  stream_.flush(text);
  return text;
}

std::string text_behind_others(const Tokenizer& tokenizer, TokenId token) {
  std::string text;
  const std::optional<std::string_view> spelled = tokenizer.token_text(token);
  if (!spelled.has_value()) return text;
  DecodeStream stream(tokenizer.decoder());
  stream.begin_behind_others();
  stream.push(*spelled, text);
  stream.flush(text);
  return text;
}

}  // namespace stemma
