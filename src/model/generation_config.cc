#include "model/generation_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/file.h"
#include "base/json_text.h"
#include "stemma/log.h"

namespace stemma {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kFileBytesMax = std::int64_t{16} << 20;

// What some files write where there is none. Hugging Face's transformers takes it as a token's id
// that no token has.
constexpr int kNone = -1;

// What Hugging Face's transformers would do with a text and Stemma does not, and the value beside
// null and nothing at all that changes none. What only its search by beams reads is not here.
struct Ignored {
  const char* name;
  double neutral = 0;
};
constexpr std::array kIgnored = {
    Ignored{"suppress_tokens"},
    Ignored{"begin_suppress_tokens"},
    Ignored{"bad_words_ids"},
    Ignored{"sequence_bias"},
    Ignored{"no_repeat_ngram_size"},
    Ignored{"encoder_repetition_penalty", 1},
    Ignored{"forced_bos_token_id", kNone},
    Ignored{"forced_eos_token_id", kNone},
    Ignored{"min_new_tokens"},
    Ignored{"min_length"},
    Ignored{"stop_strings"},
    Ignored{"exponential_decay_length_penalty"},
    Ignored{"guidance_scale", 1},
    Ignored{"typical_p", 1},
    Ignored{"epsilon_cutoff"},
    Ignored{"eta_cutoff"},
    Ignored{"penalty_alpha"},
    Ignored{"num_beams", 1},
};

// Reads the fields of one JSON object and keeps the first error, so that a caller asks once, at the
// end.
class FieldReader {
 public:
  FieldReader(const Json& json, std::string_view file_name) : json_(json), file_name_(file_name) {}

  void read(const char* field, std::optional<bool>& value) {
    const Json* json = find_or_null(field);
    if (json == nullptr) return;
    if (!json->is_boolean()) return refuse(field, "must be true or false");
    value = json->get<bool>();
  }

  void read(const char* field, std::optional<float>& value) {
    const Json* json = find_or_null(field);
    if (json == nullptr) return;
    const double number = json->is_number() ? json->get<double>() : std::nan("");
    if (!(std::fabs(number) <= std::numeric_limits<float>::max())) {
      return refuse(field, "must be a number");
    }
    value = static_cast<float>(number);
  }

  void read(const char* field, std::optional<std::int64_t>& value) {
    const Json* json = find_or_null(field);
    if (json == nullptr) return;
    const auto largest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    const bool whole = json->is_number_unsigned() ? json->get<std::uint64_t>() <= largest
                                                  : json->is_number_integer();
    if (!whole) return refuse(field, "must be a whole number");
    value = json->get<std::int64_t>();
  }

  void read(const char* field, std::optional<TokenId>& value) {
    const Json* json = find_or_null(field);
    if (json == nullptr || *json == kNone) return;
    value = token(*json);
    if (!value) refuse(field, "must be a token id");
  }

  // One token id or a list of them, of which any may be kNone.
  void read(const char* field, std::vector<TokenId>& values) {
    const Json* json = find_or_null(field);
    if (json == nullptr) return;
    if (!json->is_array()) return add(field, *json, values);
    for (const Json& item : *json) add(field, item, values);
  }

  Status status() const { return status_; }

 private:
  const Json* find_or_null(const char* field) const {
    const auto found = json_.find(field);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }

  static std::optional<TokenId> token(const Json& json) {
    if (!json.is_number_unsigned()) return std::nullopt;
    const auto id = json.get<std::uint64_t>();
    if (id > static_cast<std::uint64_t>(std::numeric_limits<TokenId>::max())) return std::nullopt;
    return static_cast<TokenId>(id);
  }

  void add(const char* field, const Json& item, std::vector<TokenId>& values) {
    if (item == kNone) return;
    const auto id = token(item);
    if (!id) return refuse(field, "must be a token id or a list of token ids");
    if (std::find(values.begin(), values.end(), *id) == values.end()) values.push_back(*id);
  }

  void refuse(const char* field, std::string_view why) {
    if (!status_.ok()) return;
    status_ =
        Error{ErrorCode::kCorrupt, std::string(file_name_) + ": " + field + " " + std::string(why)};
  }

  const Json& json_;
  std::string_view file_name_;
  Status status_;
};

// Of a name that comes again the last value counts, as in Python, which such files are written for.
Result<Json> parse_object(std::string_view text, std::string_view file_name) {
  return parse_json_object(
      text, file_name,
      {.text_bytes_max = static_cast<std::size_t>(kFileBytesMax), .names_repeat = true});
}

std::vector<std::string> ignored_fields(const Json& object) {
  std::vector<std::string> names;
  for (const Ignored& field : kIgnored) {
    const auto found = object.find(field.name);
    if (found == object.end() || found->empty() || *found == field.neutral) continue;
    names.emplace_back(field.name);
  }
  return names;
}

// What config.json says where generation_config.json says nothing.
Status fill_from_model_config(const std::filesystem::path& path, GenerationConfig& config) {
  PosixFiles files;
  STEMMA_ASSIGN_OR_RETURN(const auto text,
                          read_file_if_exists(files, path.string(), kFileBytesMax));
  if (!text) return {};
  STEMMA_ASSIGN_OR_RETURN(const Json json, parse_object(*text, path.string()));
  const std::string file_name = path.string();
  FieldReader reader(json, file_name);
  if (config.eos_token_ids.empty()) reader.read("eos_token_id", config.eos_token_ids);
  if (!config.bos_token_id) reader.read("bos_token_id", config.bos_token_id);
  return reader.status();
}

// The values as the file states them, do_sample aside.
SamplingParams sampling_params(const GenerationConfig& config) {
  SamplingParams params;
  params.temperature = config.temperature.value_or(1.0f);
  params.top_k = config.top_k.value_or(0);
  params.top_p = config.top_p.value_or(1.0f);
  params.min_p = config.min_p.value_or(0.0f);
  params.repetition_penalty = config.repetition_penalty.value_or(1.0f);
  return params;
}

}  // namespace

bool GenerationConfig::is_eos(TokenId token) const {
  return std::find(eos_token_ids.begin(), eos_token_ids.end(), token) != eos_token_ids.end();
}

SamplingParams GenerationConfig::sampling_defaults() const {
  SamplingParams params = sampling_params(*this);
  if (!do_sample.value_or(false)) params.temperature = 0;
  return params;
}

Result<GenerationConfig> parse_generation_config(std::string_view json,
                                                 std::string_view file_name) {
  STEMMA_ASSIGN_OR_RETURN(const Json object, parse_object(json, file_name));
  GenerationConfig config;
  FieldReader reader(object, file_name);
  reader.read("eos_token_id", config.eos_token_ids);
  reader.read("bos_token_id", config.bos_token_id);
  reader.read("pad_token_id", config.pad_token_id);
  reader.read("do_sample", config.do_sample);
  reader.read("temperature", config.temperature);
  reader.read("top_k", config.top_k);
  reader.read("top_p", config.top_p);
  reader.read("min_p", config.min_p);
  reader.read("repetition_penalty", config.repetition_penalty);
  reader.read("max_new_tokens", config.max_new_tokens);
  if (config.top_k == -1) config.top_k = 0;  // some files write -1 for "all"
  if (config.top_p == 0) config.top_p = kLeastTopP;
  if (config.max_new_tokens == kNone) config.max_new_tokens.reset();
  STEMMA_RETURN_IF_ERROR(reader.status());
  if (config.max_new_tokens.value_or(1) < 1) {
    return Error{ErrorCode::kCorrupt, std::string(file_name) + ": max_new_tokens must be above 0"};
  }
  config.ignored = ignored_fields(object);
  // The same ranges that a request's values have. Token biases are not part of the file: any
  // vocabulary will do.
  const Status range = sampling_params(config).validate(/*vocab_tokens=*/1);
  if (!range.ok()) {
    return Error{ErrorCode::kCorrupt, std::string(file_name) + ": " + range.error().detail};
  }
  return config;
}

Result<GenerationConfig> load_generation_config(const std::filesystem::path& model_dir) {
  const std::filesystem::path path = model_dir / "generation_config.json";
  PosixFiles files;
  STEMMA_ASSIGN_OR_RETURN(const auto text,
                          read_file_if_exists(files, path.string(), kFileBytesMax));
  GenerationConfig config;
  if (text) {
    STEMMA_ASSIGN_OR_RETURN(config, parse_generation_config(*text, path.string()));
    if (!config.ignored.empty()) {
      STEMMA_LOG(kWarning, "model.generation_config.ignored", kv("file", path.string()),
                 kv("fields", fmt::format("{}", fmt::join(config.ignored, " "))));
    }
  }
  STEMMA_RETURN_IF_ERROR(fill_from_model_config(model_dir / "config.json", config));
  return config;
}

}  // namespace stemma
