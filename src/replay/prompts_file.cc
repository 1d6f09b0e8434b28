#include "replay/prompts_file.h"

#include <limits>
#include <utility>

#include "base/file.h"
#include "base/json_text.h"

namespace stemma {

namespace {

constexpr JsonLimits kLineLimits = {.text_bytes_max = std::size_t{64} << 20, .depth_max = 16};

Error wrong(std::string_view where, const std::string& field, std::string_view why) {
  return {ErrorCode::kInvalidArgument, std::string(where) + ": " + field + ": " + std::string(why)};
}

Result<std::vector<TokenId>> read_token_ids(const nlohmann::json& field, std::string_view where) {
  if (!field.is_array()) return wrong(where, "token_ids", "an array of integers is wanted");
  std::vector<TokenId> tokens;
  tokens.reserve(field.size());
  for (const nlohmann::json& id : field) {
    const std::string name = "token_ids[" + std::to_string(tokens.size()) + "]";
    if (!id.is_number_integer()) return wrong(where, name, "not an integer");
    const auto value = id.get<std::int64_t>();
    if (value < 0 || value > std::numeric_limits<TokenId>::max() ||
        (id.is_number_unsigned() && id.get<std::uint64_t>() > 0x7FFFFFFF)) {
      return wrong(where, name, "not a token id");
    }
    tokens.push_back(static_cast<TokenId>(value));
  }
  return tokens;
}

Status check_messages(const nlohmann::json& field, std::string_view where) {
  if (!field.is_array() || field.empty()) {
    return wrong(where, "messages", "a non-empty array of objects is wanted");
  }
  for (std::size_t i = 0; i < field.size(); ++i) {
    const std::string name = "messages[" + std::to_string(i) + "]";
    if (!field[i].is_object()) return wrong(where, name, "not an object");
    for (const char* part : {"role", "content"}) {
      const auto found = field[i].find(part);
      if (found == field[i].end() || !found->is_string()) {
        return wrong(where, name + "." + part, "a text is wanted");
      }
    }
  }
  return {};
}

}  // namespace

Result<PromptLine> parse_prompt_line(std::string_view line, std::string_view where) {
  STEMMA_ASSIGN_OR_RETURN(const nlohmann::json object, parse_json_object(line, where, kLineLimits));
  PromptLine parsed;
  int forms = 0;
  for (const auto& [key, value] : object.items()) {
    if (key == "prompt") {
      if (!value.is_string()) return wrong(where, "prompt", "a text is wanted");
      parsed.prompt = value.get<std::string>();
    } else if (key == "token_ids") {
      STEMMA_ASSIGN_OR_RETURN(parsed.token_ids, read_token_ids(value, where));
    } else if (key == "messages") {
      STEMMA_RETURN_IF_ERROR(check_messages(value, where));
      parsed.messages = value;
    } else if (key == "max_tokens") {
      if (!value.is_number_integer() || value.get<double>() < 1 || value.get<double>() > 1e9) {
        return wrong(where, "max_tokens", "an integer from 1 to 1000000000 is wanted");
      }
      parsed.max_tokens = value.get<std::int64_t>();
    } else if (key == "adapter") {
      if (!value.is_string()) return wrong(where, "adapter", "a name is wanted");
      parsed.adapter = value.get<std::string>();
    } else {
      return wrong(where, printable(key),
                   "unknown field (known: prompt, token_ids, messages, max_tokens, adapter)");
    }
    forms += key == "max_tokens" || key == "adapter" ? 0 : 1;
  }
  if (forms != 1)
    return wrong(where, "prompt", "exactly one of prompt, token_ids and messages is wanted");
  return parsed;
}

Result<std::vector<PromptLine>> read_prompts_file(const std::string& path) {
  PosixFiles files;
  STEMMA_ASSIGN_OR_RETURN(const std::string text, read_file(files, path, kPromptsBytesMax));
  std::vector<PromptLine> lines;
  std::size_t begin = 0;
  for (std::int64_t number = 1; begin < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    STEMMA_ASSIGN_OR_RETURN(PromptLine parsed,
                            parse_prompt_line(line, path + ":" + std::to_string(number)));
    lines.push_back(std::move(parsed));
  }
  if (lines.empty()) return Error{ErrorCode::kInvalidArgument, path + ": holds no prompts"};
  return lines;
}

}  // namespace stemma
