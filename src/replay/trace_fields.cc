#include "replay/trace_fields.h"

#include <cstring>

#include "base/digest.h"

namespace stemma {

Error wrong_trace_field(std::string_view where, std::string_view field, std::string_view why) {
  return {ErrorCode::kCorrupt,
          std::string(where) + ": " + std::string(field) + ": " + std::string(why)};
}

Result<double> read_trace_time_ms(const nlohmann::json* field_or_null, double ms_per_unit,
                                  std::string_view where, std::string_view field) {
  if (field_or_null == nullptr || !field_or_null->is_number()) {
    return wrong_trace_field(where, field, "a number is wanted");
  }
  const double time = field_or_null->get<double>() * ms_per_unit;
  if (time < 0) return wrong_trace_field(where, field, "must not be negative");
  if (time > kTraceTimeMsMax) return wrong_trace_field(where, field, "lies too far ahead");
  return time;
}

Result<std::int64_t> read_trace_hash(const nlohmann::json& value, HashForms forms,
                                     std::string_view where, std::string_view field) {
  // A number above 63 bits keeps its bits: it is a name and nothing is computed with it.
  if (value.is_number_unsigned()) return static_cast<std::int64_t>(value.get<std::uint64_t>());
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (forms == HashForms::kIntegers) return wrong_trace_field(where, field, "not an integer");
  if (!value.is_string()) {
    return wrong_trace_field(where, field, "neither an integer nor a text");
  }
  const auto& text = value.get_ref<const std::string&>();
  const Sha256Digest digest = sha256(std::as_bytes(std::span(text)));
  std::int64_t hash = 0;
  std::memcpy(&hash, digest.data(), sizeof(hash));
  return hash;
}

Result<std::vector<std::int64_t>> read_trace_hashes(const nlohmann::json* field_or_null,
                                                    HashForms forms, std::string_view where,
                                                    std::string_view field) {
  if (field_or_null == nullptr || !field_or_null->is_array()) {
    return wrong_trace_field(where, field,
                             forms == HashForms::kIntegers ? "an array of integers is wanted"
                                                           : "an array of hashes is wanted");
  }
  std::vector<std::int64_t> hashes;
  hashes.reserve(field_or_null->size());
  for (const nlohmann::json& value : *field_or_null) {
    const Result<std::int64_t> hash = read_trace_hash(value, forms, where, field);
    if (!hash.ok()) {
      const std::string element = std::string(field) + "[" + std::to_string(hashes.size()) + "]";
      return read_trace_hash(value, forms, where, element).error();
    }
    hashes.push_back(*hash);
  }
  return hashes;
}

}  // namespace stemma
