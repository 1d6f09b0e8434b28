// GenerationConfig: what a model's files say about ending and choosing its tokens.
//
// Thread:     a value.
// Memory:     a few dozen bytes.
// Cost:       reading two small files.
// Not here:   the model's architecture (config.h), a request's own wishes (sampler.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/sampler.h"
#include "stemma/ids.h"
#include "stemma/result.h"

namespace stemma {

// The fields of generation_config.json; what the file does not say, or says as -1, is absent.
struct GenerationConfig {
  std::vector<TokenId>
      eos_token_ids;  // any of them ends an output; empty: only the token limit does
  std::optional<TokenId> bos_token_id;
  std::optional<TokenId> pad_token_id;
  std::optional<bool> do_sample;
  std::optional<float> temperature;
  std::optional<std::int64_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::optional<std::int64_t> max_new_tokens;  // of a chat that names no limit; at least 1
  // Fields that the file sets and that would make other outputs, but that nothing here obeys.
  std::vector<std::string> ignored;

  bool is_eos(TokenId token) const;

  // What a request gets that says nothing about sampling: greedy unless do_sample is true.
  SamplingParams sampling_defaults() const;
};

// The fields in `json`, the text of a generation_config.json. Errors name `file_name` and the
// field.
Result<GenerationConfig> parse_generation_config(std::string_view json, std::string_view file_name);

// generation_config.json in `model_dir`, where there is one; eos_token_id and bos_token_id that it
// does not have come from config.json. Errors name the file and the field. A model without either
// file has an empty GenerationConfig. What it ignores is logged once, as a warning.
Result<GenerationConfig> load_generation_config(const std::filesystem::path& model_dir);

}  // namespace stemma
