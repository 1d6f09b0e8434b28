#include "model/packed_int_config.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "base/ascii.h"
#include "base/json_text.h"
#include "model/coded_fields.h"

namespace stemma {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kGroupInputsMax = 1 << 20;

int read_bits(JsonFields& fields, std::string_view name) {
  const std::int64_t bits = fields.integer(name, {1, 64}, std::nullopt);
  if (bits == 8) return 8;
  if (bits != 4) fields.fail(ErrorCode::kUnsupported, name, "only 4 and 8 are supported");
  return 4;
}

// -1, of which all inputs of an output are one group, or a number of inputs.
std::int64_t read_group_inputs(JsonFields& fields, std::string_view name) {
  const std::int64_t inputs = fields.integer(name, {-1, kGroupInputsMax}, std::nullopt);
  if (inputs == 0) fields.fail(ErrorCode::kInvalidArgument, name, "must be -1 or above 0");
  return std::max<std::int64_t>(inputs, 0);
}

struct NamedText {
  std::string_view name;
  std::string text;
};

// What tools and their versions write under one or more of `names`, which must agree; in small
// letters, as the tools compare it.
NamedText read_agreed(JsonFields& section, std::initializer_list<std::string_view> names,
                      std::string_view usual) {
  std::optional<NamedText> found;
  for (const std::string_view name : names) {
    if (section.find_or_null(name) == nullptr) continue;
    const std::string text = lower_ascii(section.text(name, std::nullopt));
    if (!found.has_value()) found = NamedText{name, text};
    if (found->text != text) {
      section.fail(ErrorCode::kInvalidArgument, name,
                   "is another than " + std::string(found->name));
    }
  }
  return found.value_or(NamedText{*names.begin(), std::string(usual)});
}

// GPTQModel's modules that are stored otherwise; those that it leaves out are found as they are.
void refuse_other_modules(JsonFields& section) {
  const Json* const dynamic = section.find_or_null("dynamic");
  if (dynamic == nullptr) return;
  const bool leaves_out_alone =
      dynamic->is_object() && std::ranges::all_of(dynamic->items(), [](const auto& item) {
        return item.key().starts_with("-:");
      });
  if (!leaves_out_alone) {
    section.fail(ErrorCode::kUnsupported, "dynamic", "modules with settings of their own");
  }
}

}  // namespace

PackedIntConfig read_gptq(JsonFields& section) {
  PackedIntConfig packed;
  packed.layout = PackedIntConfig::Layout::kGptq;
  packed.bits = read_bits(section, "bits");
  packed.group_inputs = read_group_inputs(section, "group_size");
  const auto [name, format] = read_agreed(section, {"checkpoint_format", "format"}, "gptq");
  if (format != "gptq" && format != "gptq_v2") {
    refuse_value(section, name, format, "are gptq gptq_v2");
  }
  packed.zeros_less_one = format == "gptq";
  packed.is_symmetric = section.boolean("sym", false);
  if (section.boolean("is_marlin_format", false)) {
    section.fail(ErrorCode::kUnsupported, "is_marlin_format", "is not supported");
  }
  refuse_other_modules(section);
  return packed;
}

PackedIntConfig read_awq(JsonFields& section) {
  PackedIntConfig packed;
  packed.layout = PackedIntConfig::Layout::kAwq;
  expect_bits(section, section.has("w_bit") ? "w_bit" : "bits", 4);
  packed.group_inputs =
      read_group_inputs(section, section.has("q_group_size") ? "q_group_size" : "group_size");
  const auto [name, format] =
      read_agreed(section, {"version", "format", "checkpoint_format"}, "gemm");
  if (format != "gemm") refuse_value(section, name, format, "are gemm");
  if (!section.boolean("zero_point", true)) {
    section.fail(ErrorCode::kUnsupported, "zero_point", "only true is supported");
  }
  return packed;
}

PackedIntConfig read_packed_group(JsonFields& weights) {
  PackedIntConfig packed;
  packed.layout = PackedIntConfig::Layout::kCompressedTensors;
  const std::string type = weights.text("type", "int");
  if (type != "int") refuse_value(weights, "type", type, "are int");
  packed.bits = read_bits(weights, "num_bits");
  const std::string strategy = weights.text("strategy", std::nullopt);
  if (strategy == "group") {
    packed.group_inputs = read_group_inputs(weights, "group_size");
  } else if (strategy != "channel") {
    refuse_value(weights, "strategy", strategy, "are group channel");
  }
  packed.is_symmetric = weights.boolean("symmetric", true);
  return packed;
}

}  // namespace stemma
