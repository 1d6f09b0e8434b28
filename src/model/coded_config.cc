#include "model/coded_config.h"

#include <array>
#include <optional>
#include <string>

#include "base/json_text.h"

namespace stemma {
namespace {

using Json = nlohmann::json;

// The second is what the first versions of compressed-tensors wrote.
constexpr std::array kSections = {"quantization_config", "compression_config"};

// compressed-tensors names groups of matrices; all of them must be stored in one way, which
// `read_group` reads from the weights of each.
template <typename Config>
Config read_groups(JsonFields& section, Config (*read_group)(JsonFields& weights)) {
  const Json* const groups = section.find_or_null("config_groups");
  if (groups == nullptr || !groups->is_object() || groups->empty()) {
    section.fail(ErrorCode::kInvalidArgument, "config_groups", "must be an object with groups");
    return {};
  }
  std::optional<Config> all;
  for (const auto& [name, group] : groups->items()) {
    const auto weights = group.is_object() ? group.find("weights") : group.end();
    if (weights == group.end() || !weights->is_object()) {
      section.fail(ErrorCode::kUnsupported, "config_groups", "a group without weights");
      return {};
    }
    JsonFields fields =
        section.nested(*weights, "config_groups." + printable(name, 40) + ".weights.");
    const Config own = read_group(fields);
    section.adopt(fields.status());
    if (all.has_value() && *all != own) {
      section.fail(ErrorCode::kUnsupported, "config_groups", "groups that are stored in two ways");
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

CodedConfig read_compressed(JsonFields& section) {
  refuse_transformed(section);
  const std::string format = section.text("format", "float-quantized");
  if (format == "float-quantized") return read_groups(section, &read_float8_group);
  if (format == "int-quantized") return read_groups(section, &read_int8_group);
  if (format == "pack-quantized") return read_groups(section, &read_packed_group);
  section.fail(ErrorCode::kUnsupported, "format",
               "'" + printable(format) +
                   "' is not supported; known are float-quantized int-quantized pack-quantized");
  return {};
}

CodedConfig read_section(JsonFields& section) {
  const std::string method = section.text("quant_method", std::nullopt);
  if (method == "fp8") return read_float8(section);
  if (method == "fbgemm_fp8") return Float8Config{};
  if (method == "gptq") return read_gptq(section);
  if (method == "awq") return read_awq(section);
  if (method == "compressed-tensors") return read_compressed(section);
  section.fail(ErrorCode::kUnsupported, "quant_method",
               "'" + printable(method) +
                   "' is not supported; known are fp8 fbgemm_fp8 gptq awq compressed-tensors");
  return {};
}

}  // namespace

CodedConfig read_coded(JsonFields& fields) {
  CodedConfig coded;
  const char* read_before = nullptr;
  for (const char* const name : kSections) {
    const Json* const object = fields.find_or_null(name);
    if (object == nullptr) continue;
    if (!object->is_object()) {
      fields.fail(ErrorCode::kInvalidArgument, name, "must be an object");
      return {};
    }
    JsonFields section = fields.nested(*object, std::string(name) + ".");
    const CodedConfig own = read_section(section);
    fields.adopt(section.status());
    if (read_before != nullptr && own != coded) {
      fields.fail(ErrorCode::kInvalidArgument, name, std::string("contradicts ") + read_before);
    }
    coded = own;
    read_before = name;
  }
  return coded;
}

}  // namespace stemma
