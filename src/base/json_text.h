// JSON from outside, as text or as MessagePack (msgpack.org's specification): strict parsing of
// files and messages, and typed reading of their fields.
//
// Every error is one line that names the file and the field. Duplicate keys are refused unless
// asked for: two readers of one file must not see different values.
//
// Thread:     pure functions; a JsonFields is for one thread.
// Memory:     about ten times the text while it is parsed; limits bound it.
// Cost:       linear in the text.
// Not here:   what the fields mean (config, safetensors).
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "stemma/result.h"

namespace stemma {

struct JsonLimits {
  std::size_t text_bytes_max = std::size_t{1} << 20;
  int depth_max = 16;  // of nested objects and arrays
  // Fields of one object: where objects keep their order, who looks for one looks at all before it.
  std::size_t fields_max = std::size_t{1} << 20;
  // A name that comes again in an object gives it another value, as Python's reader has it, where
  // it is else refused: for texts that are only passed on.
  bool names_repeat = false;
  // Integers beyond 64 bits are their digits, in a binary value, where they are else the nearest
  // double: for texts that templates print again (template/template_json).
  bool keeps_wide_integers = false;
};

// Parses any value. kTooLarge above the limits; kCorrupt, with the byte, if it is not strict JSON
// or repeats a key. `file_name` is for errors only.
Result<nlohmann::json> parse_json_value(std::string_view text, std::string_view file_name,
                                        const JsonLimits& limits);

// The same for JSON whose objects keep their order, as templates print them.
Result<nlohmann::ordered_json> parse_ordered_json(std::string_view text, std::string_view file_name,
                                                  const JsonLimits& limits);

// Integers that were kept as their digits become the nearest doubles. Whether there were any.
bool narrow_wide_integers(nlohmann::ordered_json& json);

// Parses an object; kCorrupt too if the text is another value.
Result<nlohmann::json> parse_json_object(std::string_view text, std::string_view file_name,
                                         const JsonLimits& limits);

// Any value as MessagePack, under the same limits; kCorrupt if the bytes are not one whole value.
Result<nlohmann::json> parse_msgpack(std::span<const std::uint8_t> bytes, std::string_view name,
                                     const JsonLimits& limits);

// Reads the fields of one object. The first field that is missing or wrong is remembered and later
// reads give harmless values, so that a reader checks `status` once.
class JsonFields {
 public:
  struct Range {
    std::int64_t min = 0;
    std::int64_t max = 0;
  };

  // `object` must outlive this. `path` is put before field names in errors: "rope_scaling.".
  // REQUIRES: object is a JSON object.
  JsonFields(const nlohmann::json& object, std::string_view file_name, std::string_view path = "");

  // A field that is absent or null gives the fallback; without one it is an error.
  std::int64_t integer(std::string_view name, Range range, std::optional<std::int64_t> fallback);
  // Finite and greater than zero.
  double positive(std::string_view name, std::optional<double> fallback);
  bool boolean(std::string_view name, bool fallback);
  std::string text(std::string_view name, std::optional<std::string> fallback);

  // A reader of `object`, which stands below these fields at `path`; `adopt` takes over its status.
  JsonFields nested(const nlohmann::json& object, std::string_view path) const;
  const nlohmann::json& object() const { return object_; }

  // Whether the field is there, be it null.
  bool has(std::string_view name) const { return object_.contains(name); }
  // The field, or nullptr if it is absent or null.
  const nlohmann::json* find_or_null(std::string_view name) const;

  // Remembers "FILE: PATH+NAME: WHY" unless something was wrong before.
  void fail(ErrorCode code, std::string_view name, std::string_view why);

  // Fails with kUnsupported where the field is there, not null, and another than `neutral`.
  void refuse_unless(std::string_view name, const nlohmann::json& neutral);

  // Remembers the failure of a nested reader, unless something was wrong before.
  void adopt(const Status& nested);

  // The first failure, if any.
  const Status& status() const noexcept { return status_; }

 private:
  const nlohmann::json& object_;
  std::string file_name_;
  std::string path_;
  Status status_;
};

// `text` with control bytes and bytes beyond ASCII replaced by '?', at most `bytes_max` of them:
// safe in a one-line error.
std::string printable(std::string_view text, std::size_t bytes_max = 80);

}  // namespace stemma
