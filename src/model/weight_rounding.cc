#include "model/weight_rounding.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "stemma/log.h"

namespace stemma {

namespace {

// "model.layers.3.mlp.experts.7.up_proj.weight" -> "experts.up_proj": the last two parts of the
// name that are no numbers.
std::string kind_of(std::string_view tensor) {
  constexpr std::string_view kSuffix = ".weight";
  if (tensor.ends_with(kSuffix)) tensor.remove_suffix(kSuffix.size());
  std::string kind;
  int parts = 0;
  while (!tensor.empty() && parts < 2) {
    const std::size_t dot = tensor.rfind('.');
    const std::size_t begin = dot == std::string_view::npos ? 0 : dot + 1;
    const std::string_view part = tensor.substr(begin);
    const bool number = std::all_of(part.begin(), part.end(), [](char c) {
      return std::isdigit(static_cast<unsigned char>(c)) != 0;
    });
    if (!number) {
      if (!kind.empty()) kind.insert(0, ".");
      kind.insert(0, part);
      ++parts;
    }
    tensor = tensor.substr(0, dot == std::string_view::npos ? 0 : dot);
  }
  return kind;
}

}  // namespace

void add_format_name(std::string_view name, std::string& formats) {
  if (("+" + formats + "+").find("+" + std::string(name) + "+") != std::string::npos) return;
  formats.append(formats.empty() ? "" : "+").append(name);
}

Result<WeightRounding> parse_weight_rounding(std::string_view name) {
  if (name == "auto") return WeightRounding::kNone;
  if (name == "int8") return WeightRounding::kInt8;
  if (name == "int4") return WeightRounding::kInt4;
  if (name == "wide") return WeightRounding::kWide;
  return Error{ErrorCode::kInvalidArgument,
               "--weights must be auto, int8, int4 or wide (got " + std::string(name) + ")"};
}

std::optional<WeightFormat> rounded_format(WeightRounding rounding, MatrixUse use,
                                           std::optional<WeightFormat> kept) {
  if (rounding == WeightRounding::kWide || use == MatrixUse::kRouter) return std::nullopt;
  const bool is_projection = use == MatrixUse::kProjection;
  if (rounding == WeightRounding::kNone) return is_projection ? kept : std::nullopt;
  const bool is_narrow = rounding == WeightRounding::kInt4 && is_projection;
  if (!is_narrow) return WeightFormat::kInt8;
  return kept == WeightFormat::kInt4Shifted ? kept : WeightFormat::kInt4;
}

Result<PackedWeights> MatrixPacker::pack(const StoredMatrix& matrix) const {
  if (format_.has_value()) {
    return PackedWeights::quantise(matrix, *format_, pool_, *error_or_null_);
  }
  return PackedWeights::pack(matrix.weights, matrix.type, matrix.n, matrix.k, pool_);
}

void RoundingReport::add(const std::string& tensor, const RoundingError& error) {
  kinds[kind_of(tensor)].add(error);
  if (worst_tensor.empty() || error.relative() > worst_error) {
    worst_tensor = tensor;
    worst_error = error.relative();
  }
}

RoundingError RoundingReport::total() const {
  RoundingError sum;
  for (const auto& [kind, error] : kinds) sum.add(error);
  return sum;
}

nlohmann::ordered_json RoundingReport::to_json() const {
  nlohmann::ordered_json json;
  json["relative_error"] = total().relative();
  json["worst_tensor"] = worst_tensor;
  json["worst_error"] = worst_error;
  json["stored_bytes"] = stored_bytes;
  json["packed_bytes"] = packed_bytes;
  for (const auto& [kind, error] : kinds) json["kinds"][kind] = error.relative();
  return json;
}

void log_rounding(const RoundingReport& report, const std::string& formats) {
  if (report.empty()) return;
  STEMMA_LOG(kInfo, "model.weights.rounded", kv("format", formats),
             kv("relative_error", report.total().relative()),
             kv("worst_tensor", report.worst_tensor), kv("worst_error", report.worst_error),
             kv("stored_bytes", report.stored_bytes), kv("packed_bytes", report.packed_bytes));
}

}  // namespace stemma
