// TokenizerJson: reads tokenizer.json strictly and within bounds, and names the field in every
// complaint.
//
// Thread:     values and views; a JsonField is valid while the JsonText it came from lives.
// Memory:     proportional to the file, which may hold kJsonBytesMax bytes and kJsonDepthMax
//             levels.
// Cost:       one pass over the text; a field's path is built only for the few fields that are
//             visited one by one.
// Not here:   what the fields mean (tokenizer, tokenizer_bpe, tokenizer_normalizer, pre_tokenizer,
//             tokenizer_decoder).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "stemma/result.h"

namespace stemma {

inline constexpr std::size_t kJsonBytesMax = std::size_t{256} << 20;
inline constexpr int kJsonDepthMax = 32;

// `text` as one short line for an error message: quoted, control characters escaped, cut after 60
// bytes.
std::string in_quotes(std::string_view text);

// One value of the file and where it stands: "model.merges[17]".
class JsonField {
 public:
  JsonField(const nlohmann::json& value, std::string_view file_name, std::string path)
      : value_(&value), file_name_(file_name), path_(std::move(path)) {}

  const nlohmann::json& value() const { return *value_; }

  // An error whose detail is "<file>: <path>: <what>".
  Error error(ErrorCode code, std::string_view what) const;
  // The same for something below this field: `below` is ".name" or "[17]".
  Error error_below(std::string_view below, ErrorCode code, std::string_view what) const;
  // The refusal of a well-formed construct that Stemma does not have.
  Error unsupported(std::string_view what) const { return error(ErrorCode::kUnsupported, what); }
  Error corrupt(std::string_view what) const { return error(ErrorCode::kCorrupt, what); }

  // The member `name`; an error if this is not an object or has no such member.
  Result<JsonField> member(std::string_view name) const;
  // The member `name`, or nothing where it is absent or null. REQUIRES: this is an object.
  std::optional<JsonField> try_member(std::string_view name) const;

  // Errors unless this is an object, or an array.
  Status expect_object() const;
  Status expect_array() const;
  // Elements of an array. REQUIRES: expect_array() was ok.
  std::size_t element_count() const;
  JsonField element(std::size_t position) const;

  Result<std::string_view> as_string() const;
  Result<bool> as_bool() const;
  // An integer in [least, most].
  Result<std::int64_t> as_integer(std::int64_t least, std::int64_t most) const;
  // A string of exactly one character.
  Result<char32_t> as_character() const;

  // The member `name`, or `otherwise` where it is absent or null. REQUIRES: this is an object.
  Result<bool> bool_or(std::string_view name, bool otherwise) const;
  Result<std::string_view> string_or(std::string_view name, std::string_view otherwise) const;
  // The member "type" of a construct: its name.
  Result<std::string_view> type_name() const;

 private:
  const nlohmann::json* value_;
  std::string_view file_name_;
  std::string path_;
};

inline constexpr std::size_t kChainStepsMax = 64;

// What a normalizer, pre_tokenizer or decoder does in order: `field` itself or, if its type is
// Sequence, the elements of its member `list`, each again one or the other. Calls `add_step` for
// each with its type. kTooLarge beyond kChainStepsMax.
Status for_each_step(const JsonField& field, std::string_view list,
                     FunctionRef<Status(std::string_view type, const JsonField& step)> add_step);

// A parsed file.
class JsonText {
 public:
  // An object in strict JSON (json_text).
  static Result<JsonText> parse(std::string_view json, std::string_view file_name);

  JsonText(JsonText&&) noexcept;
  JsonText& operator=(JsonText&&) noexcept;
  ~JsonText();

  JsonField root() const;

 private:
  JsonText(std::unique_ptr<nlohmann::json> root, std::string file_name);

  std::unique_ptr<nlohmann::json> root_;
  std::unique_ptr<const std::string> file_name_;
};

}  // namespace stemma
