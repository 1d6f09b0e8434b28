// Prompts file: what `stemma generate --prompts` reads, one JSON object a line:
//   {"prompt": TEXT | "token_ids": [INT, …] | "messages": [{"role": …, "content": …}, …],
//   "max_tokens"?: INT, "adapter"?: NAME}
//
// Thread:     pure functions.
// Memory:     the whole file, at most kPromptsBytesMax.
// Cost:       parsing.
// Not here:   tokenising, chat templates, checks that need a model (engine, cli/generate_command).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stemma/ids.h"
#include "stemma/result.h"

namespace stemma {

inline constexpr std::int64_t kPromptsBytesMax = std::int64_t{1} << 30;

// One request of the file. Exactly one of the three forms is set.
struct PromptLine {
  std::optional<std::string> prompt;
  std::optional<std::vector<TokenId>> token_ids;
  std::optional<nlohmann::json> messages;  // an array of objects with text fields role and content
  std::optional<std::int64_t> max_tokens;  // at least 1
  std::optional<std::string> adapter;      // empty: none
};

// Reads one line; `where` ("FILE:LINE") is for errors only. kInvalidArgument names the field.
Result<PromptLine> parse_prompt_line(std::string_view line, std::string_view where);

// Reads a file of such lines; empty lines are skipped. A file without any is an error.
Result<std::vector<PromptLine>> read_prompts_file(const std::string& path);

}  // namespace stemma
