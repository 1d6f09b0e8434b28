#include "template/tokenizer_config.h"

#include <algorithm>
#include <utility>

#include "base/file.h"
#include "base/json_text.h"

namespace stemma {
namespace {

// Fields are found by their names here: where objects keep their order, each would be looked for
// among all before it, and of some models these are many thousand tokens.
using Json = nlohmann::json;

constexpr std::int64_t kFileBytesMax = std::int64_t{64} << 20;
constexpr JsonLimits kLimits = {
    .text_bytes_max = kFileBytesMax, .depth_max = 64, .names_repeat = true};
constexpr const char* kListName = "additional_special_tokens";

// A class without the "Fast" at the end of its name, and its tokens where the files name none; an
// empty one it does not have.
struct TokenizerClass {
  std::string_view name;
  std::string_view begin_token;
  std::string_view end_token;
  std::string_view unknown_token;
  std::string_view padding_token;
};
constexpr std::array kClasses = {
    TokenizerClass{"LlamaTokenizer", "<s>", "</s>", "<unk>", ""},
    TokenizerClass{"CodeLlamaTokenizer", "<s>", "</s>", "<unk>", ""},
    TokenizerClass{"GemmaTokenizer", "<bos>", "<eos>", "<unk>", "<pad>"},
};

const TokenizerClass* find_class_or_null(std::string_view name) {
  constexpr std::string_view kFast = "Fast";
  if (name.ends_with(kFast)) name.remove_suffix(kFast.size());
  const auto found = std::find_if(kClasses.begin(), kClasses.end(),
                                  [&](const TokenizerClass& known) { return known.name == name; });
  return found == kClasses.end() ? nullptr : &*found;
}

// An object; an empty one where there is no file.
Result<Json> read_object(const std::filesystem::path& path) {
  PosixFiles files;
  STEMMA_ASSIGN_OR_RETURN(const auto text,
                          read_file_if_exists(files, path.string(), kFileBytesMax));
  if (!text) return Json(Json::object());
  return parse_json_object(*text, path.string(), kLimits);
}

Status check_token(const Json& token, const std::filesystem::path& path, const char* field) {
  if (token.is_null() || special_token_text_or_null(token) != nullptr) return {};
  return Error{ErrorCode::kCorrupt,
               path.string() + ": " + field + ": neither a text nor an object with content"};
}

Status check_map(const Json& map, const std::filesystem::path& path) {
  for (const char* const name : kSpecialTokenNames) {
    if (map.contains(name)) STEMMA_RETURN_IF_ERROR(check_token(map[name], path, name));
  }
  const auto listed = map.find(kListName);
  if (listed == map.end() || !listed->is_array()) return {};
  for (const Json& token : *listed) STEMMA_RETURN_IF_ERROR(check_token(token, path, kListName));
  return {};
}

// The tokens of `list`, and those of `more` that are not among them.
Json joined(Json list, const Json& more) {
  if (!list.is_array()) return more;
  for (const Json& token : more) {
    const std::string* const text = special_token_text_or_null(token);
    const bool known = std::any_of(list.begin(), list.end(), [&](const Json& other) {
      const std::string* const other_text = special_token_text_or_null(other);
      return text != nullptr && other_text != nullptr && *text == *other_text;
    });
    if (!known) list.push_back(token);
  }
  return list;
}

// As transformers do: what the map says goes before the fields, but for the list, which grows.
void add_map(const Json& map, Json& fields) {
  for (const auto& [name, value] : map.items()) {
    const bool grows = name == kListName && value.is_array();
    fields[name] = grows ? joined(fields.value(name, Json()), value) : value;
  }
}

void add_tokens_of_class(Json& fields) {
  const auto named = fields.find("tokenizer_class");
  if (named == fields.end() || !named->is_string()) return;
  const TokenizerClass* const known = find_class_or_null(named->get_ref<const std::string&>());
  if (known == nullptr) return;
  for (const auto& [name, token] :
       {std::pair("bos_token", known->begin_token), std::pair("eos_token", known->end_token),
        std::pair("unk_token", known->unknown_token),
        std::pair("pad_token", known->padding_token)}) {
    if (!token.empty() && !fields.contains(name)) fields[name] = token;
  }
}

}  // namespace

Result<TokenizerConfig> read_tokenizer_config(const std::filesystem::path& model_dir) {
  const std::filesystem::path path = model_dir / "tokenizer_config.json";
  STEMMA_ASSIGN_OR_RETURN(Json fields, read_object(path));
  if (!fields.contains("added_tokens_decoder")) {
    const std::filesystem::path map_path = model_dir / "special_tokens_map.json";
    STEMMA_ASSIGN_OR_RETURN(const Json map, read_object(map_path));
    STEMMA_RETURN_IF_ERROR(check_map(map, map_path));
    add_map(map, fields);
  }
  add_tokens_of_class(fields);
  return TokenizerConfig{std::move(fields), path.string()};
}

const std::string* special_token_text_or_null(const Json& token) {
  const Json* text = &token;
  if (token.is_object() && token.contains("content")) text = &token["content"];
  return text->is_string() ? &text->get_ref<const std::string&>() : nullptr;
}

bool obeys_token_flags(std::string_view tokenizer_class) {
  return find_class_or_null(tokenizer_class) != nullptr;
}

}  // namespace stemma
