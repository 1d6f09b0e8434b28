#include "template/template_json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "template/builtin.h"
#include "template/operators.h"
#include "template/python_text.h"

namespace stemma::jinja {
namespace {

constexpr int kLevelsMax = 90;

// REQUIRES: `digits` are of an integer that a double can be near to.
Value wide_integer(Arena& arena, std::string digits) {
  double nearest = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), nearest);
  return Value::wide_integer(arena.text(std::move(digits)).text(), nearest);
}

Result<Value> value_of(Arena& arena, const Json& json, int level) {
  if (level > kLevelsMax) return type_error("JSON is nested too deeply");
  switch (json.type()) {
    case Json::value_t::boolean:
      return Value::boolean(json.get<bool>());
    case Json::value_t::number_integer:
      return Value::integer(json.get<std::int64_t>());
    case Json::value_t::number_unsigned: {
      const auto number = json.get<std::uint64_t>();
      if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        return wide_integer(arena, std::to_string(number));
      }
      return Value::integer(static_cast<std::int64_t>(number));
    }
    case Json::value_t::number_float:
      return Value::real(json.get<double>());
    case Json::value_t::binary:
      return wide_integer(arena, {json.get_binary().begin(), json.get_binary().end()});
    case Json::value_t::string:
      return Value::text(json.get_ref<const std::string&>());
    case Json::value_t::array: {
      std::vector<Value> items;
      for (const Json& item : json) {
        STEMMA_ASSIGN_OR_RETURN(const Value value, value_of(arena, item, level + 1));
        items.push_back(value);
      }
      return arena.sequence(Kind::kList, std::move(items));
    }
    case Json::value_t::object: {
      std::vector<MappingEntry> entries;
      for (const auto& [name, item] : json.items()) {
        STEMMA_ASSIGN_OR_RETURN(const Value value, value_of(arena, item, level + 1));
        entries.push_back({Value::text(name), value});
      }
      return arena.mapping(std::move(entries));
    }
    default:
      return Value::none();
  }
}

// Writes one value; nested ones recurse, bounded by the depth of values (arena.cc).
class JsonWriter {
 public:
  JsonWriter(Arena& arena, const JsonFormat& format)
      : arena_(arena), out_(arena), format_(format) {}

  Status write(const Value& value);
  Value finish() { return out_.finish(); }

 private:
  Status write_list(const std::vector<Value>& items);
  Status write_mapping(const Mapping& mapping);
  Status write_key(const Value& key);
  void write_text(std::string_view text);
  void write_float(double value);
  void write_escape(std::uint32_t unit);
  void write_non_ascii(std::string_view character);
  // Before an entry: the separator, and a new line where there is an indent.
  void begin_entry(bool first);
  void new_line();

  Arena& arena_;
  TextBuilder out_;
  const JsonFormat& format_;
  std::int64_t level_ = 0;
};

Status JsonWriter::write(const Value& value) {
  if (!arena_.exceeded().empty()) return {};  // the evaluator reports it
  switch (value.kind()) {
    case Kind::kNone:
      out_.append("null");
      return {};
    case Kind::kBool:
      out_.append(value.boolean() ? "true" : "false");
      return {};
    case Kind::kInteger:
      out_.append(std::to_string(value.integer()));
      return {};
    case Kind::kFloat:
      if (value.is_wide_integer()) {
        out_.append(value.text());
      } else {
        write_float(value.real());
      }
      return {};
    case Kind::kText:
      write_text(value.text());
      return {};
    case Kind::kList:
    case Kind::kTuple:
      return write_list(value.list().items);
    case Kind::kMapping:
      return write_mapping(value.mapping());
    case Kind::kUndefined:
      return type_error("'" + std::string(value.text()) + "' is undefined");
    default:
      return type_error("a " + std::string(kind_name(value.kind())) + " is not JSON");
  }
}

Status JsonWriter::write_list(const std::vector<Value>& items) {
  out_.append("[");
  ++level_;
  for (std::size_t i = 0; i < items.size(); ++i) {
    begin_entry(i == 0);
    STEMMA_RETURN_IF_ERROR(write(items[i]));
  }
  --level_;
  if (!items.empty()) new_line();
  out_.append("]");
  return {};
}

Status JsonWriter::write_mapping(const Mapping& mapping) {
  out_.append("{");
  ++level_;
  std::vector<MappingEntry> sorted;
  if (format_.sort_keys) {
    sorted = mapping.entries;
    const auto key_of = [](const MappingEntry& entry) { return entry.key; };
    STEMMA_RETURN_IF_ERROR(sort_by(arena_, sorted, key_of));
  }
  bool first = true;
  for (const auto& [key, value] : format_.sort_keys ? sorted : mapping.entries) {
    begin_entry(std::exchange(first, false));
    STEMMA_RETURN_IF_ERROR(write_key(key));
    out_.append(format_.key_separator);
    STEMMA_RETURN_IF_ERROR(write(value));
  }
  --level_;
  if (!mapping.entries.empty()) new_line();
  out_.append("}");
  return {};
}

// What is no text is one of what would stand for it.
Status JsonWriter::write_key(const Value& key) {
  if (!key.is(Kind::kText)) out_.append("\"");
  STEMMA_RETURN_IF_ERROR(write(key));
  if (!key.is(Kind::kText)) out_.append("\"");
  return {};
}

void JsonWriter::begin_entry(bool first) {
  if (!first) out_.append(format_.item_separator);
  new_line();
}

void JsonWriter::new_line() {
  if (!format_.indent) return;
  out_.append("\n");
  for (std::int64_t i = 0; i < level_; ++i) {
    out_.append(std::string(static_cast<std::size_t>(*format_.indent), ' '));
  }
}

void JsonWriter::write_float(double value) {
  if (std::isnan(value)) {
    out_.append("NaN");
  } else if (std::isinf(value)) {
    out_.append(value < 0 ? "-Infinity" : "Infinity");
  } else {
    out_.append(float_text(value));
  }
}

void JsonWriter::write_escape(std::uint32_t unit) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string escape = "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) escape.push_back(kHex[(unit >> shift) & 0xFu]);
  out_.append(escape);
}

void JsonWriter::write_non_ascii(std::string_view character) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(character[i]); };
  constexpr std::array<std::uint32_t, 5> kLeadBits = {0, 0x7F, 0x1F, 0x0F, 0x07};
  std::uint32_t code = at(0) & kLeadBits[character.size()];
  for (std::size_t i = 1; i < character.size(); ++i) code = (code << 6) | (at(i) & 0x3Fu);
  if (code < 0x10000) {
    write_escape(code);
  } else {
    write_escape(0xD800 + ((code - 0x10000) >> 10));
    write_escape(0xDC00 + ((code - 0x10000) & 0x3FFu));
  }
}

void JsonWriter::write_text(std::string_view text) {
  out_.append("\"");
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = character_bytes(text, at);
    const std::string_view character = text.substr(at, bytes);
    const char c = character[0];
    at += bytes;
    if (c == '"' || c == '\\') {
      out_.append("\\");
      out_.append(character);
    } else if (c >= 0 && c < 0x20) {
      constexpr std::string_view kShort = "\bb\ff\nn\rr\tt";
      const std::size_t found = kShort.find(c);
      if (found == std::string_view::npos) {
        write_escape(static_cast<unsigned char>(c));
      } else {
        out_.append("\\");
        out_.append(kShort.substr(found + 1, 1));
      }
    } else if (format_.escape_non_ascii && (bytes > 1 || c == '\x7f')) {
      write_non_ascii(character);
    } else {
      out_.append(character);
    }
  }
  out_.append("\"");
}

}  // namespace

Result<Value> from_json(Arena& arena, const Json& json) {
  return value_of(arena, json, 0);
}

Result<Value> to_json(Arena& arena, const Value& value, const JsonFormat& format) {
  JsonWriter writer(arena, format);
  STEMMA_RETURN_IF_ERROR(writer.write(value));
  return writer.finish();
}

}  // namespace stemma::jinja
