#include "cli/prompt_tokens.h"

namespace stemma {

Result<std::vector<TokenId>> tokens_of(const ServedModel& model, const PromptLine& line) {
  if (line.token_ids.has_value()) return *line.token_ids;
  if (line.messages.has_value()) return model.encode_messages(*line.messages);
  return model.encode_text(*line.prompt);
}

}  // namespace stemma
