// TokenizerConfig: what a model's tokenizer_config.json says, together with what Hugging Face's
// transformers take beside it: special_tokens_map.json, where files from before the end of 2023
// name their special tokens, and the tokens that classes of tokenizers have where no file names
// any. Whoever reads such fields reads them here, so that all know the same tokens.
//
// Thread:     pure functions.
// Memory:     about ten times the files.
// Cost:       reads two small files.
// Not here:   what the fields mean to chat templates (chat_template) and to the tokenizer (model/).
#pragma once

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "stemma/result.h"

namespace stemma {

inline constexpr std::array kSpecialTokenNames = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

struct TokenizerConfig {
  nlohmann::json fields;  // an object; empty where the model has neither file
  std::string path;       // of tokenizer_config.json, for errors
};

// Errors name the file and the field.
Result<TokenizerConfig> read_tokenizer_config(const std::filesystem::path& model_dir);

// The text of a special token, which is written as it is or as an object with the text in its field
// content; nullptr: neither. Valid as long as `token`.
const std::string* special_token_text_or_null(const nlohmann::json& token);

// Whether tokenizers of this class put a text between their tokens as add_bos_token and
// add_eos_token say, whatever the post-processor of tokenizer.json does: Llama's and Gemma's.
bool obeys_token_flags(std::string_view tokenizer_class);

}  // namespace stemma
