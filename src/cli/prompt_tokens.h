// The tokens of a line of a prompts file, as a model reads it.
//
// Thread:     any.
// Memory:     the tokens.
// Cost:       that of encoding.
// Not here:   the file (replay/prompts_file).
#pragma once

#include <vector>

#include "engine/served_model.h"
#include "replay/prompts_file.h"
#include "stemma/ids.h"
#include "stemma/result.h"

namespace stemma {

// As they stand, or of the messages by the model's template, or of the text with the special tokens
// that the tokenizer puts around it.
Result<std::vector<TokenId>> tokens_of(const ServedModel& model, const PromptLine& line);

}  // namespace stemma
