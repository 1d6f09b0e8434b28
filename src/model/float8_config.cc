#include "model/float8_config.h"

#include <string>

#include "model/json_text.h"

namespace stemma {
namespace {

using Json = nlohmann::json;

constexpr char kSection[] = "quantization_config";
constexpr std::int64_t kTileMax = 1 << 20;

// [outputs, inputs] of a tile; absent or null: none.
void read_tile(JsonFields& fields, std::string_view name, Float8Config& float8) {
  const Json* const tile = fields.find_or_null(name);
  if (tile == nullptr) return;
  const auto is_extent = [](const Json& value) {
    return value.is_number_unsigned() && value.get<std::uint64_t>() > 0 &&
           value.get<std::uint64_t>() <= kTileMax;
  };
  if (!tile->is_array() || tile->size() != 2 || !is_extent((*tile)[0]) || !is_extent((*tile)[1])) {
    fields.fail(ErrorCode::kInvalidArgument, name, "must be two integers from 1 to 1048576");
    return;
  }
  float8 = {(*tile)[0].get<std::int64_t>(), (*tile)[1].get<std::int64_t>()};
}

// A field that must have one value, if it is there.
void expect_text(JsonFields& fields, std::string_view name, const std::string& known) {
  const std::string text = fields.text(name, known);
  if (text == known) return;
  fields.fail(ErrorCode::kUnsupported, name,
              "'" + printable(text) + "' is not supported; known is " + known);
}

Float8Config read_weights_of_group(JsonFields& weights) {
  Float8Config float8;
  expect_text(weights, "type", "float");
  if (weights.integer("num_bits", {1, 64}, std::nullopt) != 8) {
    weights.fail(ErrorCode::kUnsupported, "num_bits", "only 8 is supported");
  }
  const std::string strategy = weights.text("strategy", std::nullopt);
  if (strategy == "block") {
    read_tile(weights, "block_structure", float8);
    if (weights.status().ok() && float8.tile_outputs == 0) {
      weights.fail(ErrorCode::kInvalidArgument, "block_structure", "missing");
    }
  } else if (strategy != "channel" && strategy != "tensor") {
    weights.fail(ErrorCode::kUnsupported, "strategy",
                 "'" + printable(strategy) + "' is not supported; known are tensor channel block");
  }
  return float8;
}

// compressed-tensors names groups of matrices; all of them must be of one kind.
Float8Config read_groups(JsonFields& section, std::string_view file_name) {
  expect_text(section, "format", "float-quantized");
  const Json* const groups = section.find_or_null("config_groups");
  if (groups == nullptr || !groups->is_object() || groups->empty()) {
    section.fail(ErrorCode::kInvalidArgument, "config_groups", "must be an object with groups");
    return {};
  }
  std::optional<Float8Config> all;
  for (const auto& [name, group] : groups->items()) {
    const std::string path = std::string(kSection) + ".config_groups." + printable(name, 40) + ".";
    const auto weights = group.is_object() ? group.find("weights") : group.end();
    if (weights == group.end() || !weights->is_object()) {
      section.fail(ErrorCode::kUnsupported, "config_groups", "a group without weights");
      return {};
    }
    JsonFields fields(*weights, file_name, path + "weights.");
    const Float8Config own = read_weights_of_group(fields);
    section.adopt(fields.status());
    if (all.has_value() && *all != own) {
      section.fail(ErrorCode::kUnsupported, "config_groups", "groups with other tiles");
    }
    all = own;
  }
  return *all;
}

// Weights of which files hold less than all: compressed-tensors' other sections.
void refuse_transformed(JsonFields& section) {
  for (const char* const name : {"sparsity_config", "transform_config"}) {
    const Json* const other = section.find_or_null(name);
    if (other == nullptr || other->empty()) continue;
    const auto format = other->is_object() ? other->find("format") : other->end();
    if (format != other->end() && *format == "dense") continue;
    section.fail(ErrorCode::kUnsupported, name, "is not supported");
  }
}

}  // namespace

std::optional<Float8Config> read_float8(JsonFields& fields, std::string_view file_name) {
  const Json* const nested = fields.find_or_null(kSection);
  if (nested == nullptr) return std::nullopt;
  if (!nested->is_object()) {
    fields.fail(ErrorCode::kInvalidArgument, kSection, "must be an object");
    return std::nullopt;
  }
  JsonFields section(*nested, file_name, std::string(kSection) + ".");
  Float8Config float8;
  const std::string method = section.text("quant_method", std::nullopt);
  if (method == "fp8") {
    expect_text(section, "fmt", "e4m3");
    read_tile(section, "weight_block_size", float8);
  } else if (method == "compressed-tensors") {
    float8 = read_groups(section, file_name);
    refuse_transformed(section);
  } else if (method != "fbgemm_fp8") {
    section.fail(ErrorCode::kUnsupported, "quant_method",
                 "'" + printable(method) +
                     "' is not supported; known are fp8 fbgemm_fp8 compressed-tensors");
  }
  fields.adopt(section.status());
  return float8;
}

}  // namespace stemma
