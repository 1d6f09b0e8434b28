#include "model/sparse_calibration.h"

#include <fmt/format.h>

#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "base/draft_file.h"
#include "base/json_text.h"

namespace stemma {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kFormat = 1;
constexpr std::int64_t kFileBytesMax = std::int64_t{16} << 20;
constexpr std::int64_t kExtentMax = 1 << 16;

// The channels of one head; false unless they are `shape`'s number of ascending channels.
bool try_read_head(const Json& head, const KvShape& shape, std::vector<std::int32_t>& channels) {
  if (!head.is_array() || std::ssize(head) != shape.label_channels) return false;
  std::int64_t before = -1;
  for (const Json& channel : head) {
    if (!channel.is_number_unsigned()) return false;
    const auto value = channel.get<std::uint64_t>();
    if (value >= static_cast<std::uint64_t>(shape.head_dim)) return false;
    if (static_cast<std::int64_t>(value) <= before) return false;
    before = static_cast<std::int64_t>(value);
    channels.push_back(static_cast<std::int32_t>(value));
  }
  return true;
}

void read_channels(const KvShape& shape, JsonFields& fields, std::vector<std::int32_t>& channels) {
  const Json* const layers = fields.find_or_null("channels");
  if (layers == nullptr || !layers->is_array() || std::ssize(*layers) != shape.layers) {
    fields.fail(ErrorCode::kCorrupt, "channels",
                fmt::format("must be a list of {} layers", shape.layers));
    return;
  }
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    const Json& heads = (*layers)[static_cast<std::size_t>(layer)];
    if (!heads.is_array() || std::ssize(heads) != shape.heads) {
      fields.fail(ErrorCode::kCorrupt, fmt::format("channels[{}]", layer),
                  fmt::format("must be a list of {} KV heads", shape.heads));
      return;
    }
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      if (try_read_head(heads[static_cast<std::size_t>(head)], shape, channels)) continue;
      fields.fail(ErrorCode::kCorrupt, fmt::format("channels[{}][{}]", layer, head),
                  fmt::format("must be {} ascending channels of 0 ... {}", shape.label_channels,
                              shape.head_dim - 1));
      return;
    }
  }
}

}  // namespace

std::string sparse_calibration_text(const SparseCalibration& calibration) {
  const HeavyChannels& channels = calibration.channels;
  nlohmann::ordered_json object;
  object["format"] = kFormat;
  object["weights_sha256"] = calibration.weights_sha256;
  object["layers"] = channels.layers;
  object["kv_heads"] = channels.heads;
  object["head_dim"] = calibration.head_dim;
  object["channels_per_head"] = channels.channels_each;
  object["channels"] = nlohmann::ordered_json::array();
  auto next = channels.channels.begin();
  for (std::int64_t layer = 0; layer < channels.layers; ++layer) {
    nlohmann::ordered_json heads = nlohmann::ordered_json::array();
    for (std::int64_t head = 0; head < channels.heads; ++head, next += channels.channels_each) {
      heads.push_back(std::vector<std::int32_t>(next, next + channels.channels_each));
    }
    object["channels"].push_back(std::move(heads));
  }
  return object.dump() + "\n";
}

Result<SparseCalibration> parse_sparse_calibration(std::string_view text,
                                                   std::string_view file_name) {
  JsonLimits limits;
  limits.text_bytes_max = static_cast<std::size_t>(kFileBytesMax);
  STEMMA_ASSIGN_OR_RETURN(const Json object, parse_json_object(text, file_name, limits));
  JsonFields fields(object, file_name);
  fields.integer("format", {kFormat, kFormat}, std::nullopt);
  SparseCalibration calibration;
  calibration.weights_sha256 = fields.text("weights_sha256", std::nullopt);
  KvShape shape;
  shape.layers = fields.integer("layers", {1, kExtentMax}, std::nullopt);
  shape.heads = fields.integer("kv_heads", {1, kExtentMax}, std::nullopt);
  shape.head_dim = fields.integer("head_dim", {1, kExtentMax}, std::nullopt);
  shape.label_channels = fields.integer("channels_per_head", {1, kExtentMax}, std::nullopt);
  STEMMA_RETURN_IF_ERROR(fields.status());
  if (shape.label_channels % 8 != 0 || shape.label_channels >= shape.head_dim) {
    fields.fail(ErrorCode::kCorrupt, "channels_per_head",
                fmt::format("must be a multiple of 8 below head_dim = {} (got {})", shape.head_dim,
                            shape.label_channels));
  }
  calibration.head_dim = shape.head_dim;
  calibration.channels = {shape.layers, shape.heads, shape.label_channels, {}};
  read_channels(shape, fields, calibration.channels.channels);
  STEMMA_RETURN_IF_ERROR(fields.status());
  return calibration;
}

Result<SparseCalibration> load_sparse_calibration(Files& files, const std::string& path) {
  STEMMA_ASSIGN_OR_RETURN(const auto text, read_file_if_exists(files, path, kFileBytesMax));
  if (!text.has_value()) {
    return Error{ErrorCode::kNotFound,
                 path + ": there is no such file; `stemma calibrate` writes one"};
  }
  return parse_sparse_calibration(*text, path);
}

Status save_sparse_calibration(const SparseCalibration& calibration, const std::string& path) {
  if (!is_replaceable(path)) {
    return Error{ErrorCode::kInvalidArgument, path + ": is no regular file"};
  }
  const DraftFile draft(path);
  std::ofstream file(draft.path(), std::ios::binary | std::ios::trunc);
  file << sparse_calibration_text(calibration);
  file.close();
  const int unwritten = errno;
  const std::error_code unnamed = file ? draft.take_name() : std::error_code();
  if (file && !unnamed) return {};
  return Error{ErrorCode::kIo, path + ": cannot be written", file ? unnamed.value() : unwritten};
}

Status check_sparse_calibration(const SparseCalibration& calibration, std::string_view file_name,
                                const ModelConfig& config, std::string_view weights_sha256) {
  const auto refuse = [&](std::string_view field, const auto& got, const auto& wanted) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: {} is {}, but the model's is {}: another model's calibration",
                             file_name, field, got, wanted)};
  };
  const HeavyChannels& channels = calibration.channels;
  if (channels.layers != config.layers) return refuse("layers", channels.layers, config.layers);
  if (channels.heads != config.kv_heads) return refuse("kv_heads", channels.heads, config.kv_heads);
  if (calibration.head_dim != config.head_dim) {
    return refuse("head_dim", calibration.head_dim, config.head_dim);
  }
  if (calibration.weights_sha256 != weights_sha256) {
    return refuse("weights_sha256", printable(calibration.weights_sha256), weights_sha256);
  }
  return {};
}

Result<HeavyChannels> load_heavy_channels(Files& files, const std::string& directory,
                                          const std::string& path, const ModelConfig& config,
                                          std::string_view weights_sha256) {
  if (config.latent.rank > 0 || config.windows.tokens > 0 || config.score_cap > 0) {
    return Error{ErrorCode::kUnsupported,
                 join_path(directory, "config.json") +
                     ": sparse attention is not for latent rows, windows or capped scores"};
  }
  const std::string file =
      path.empty() ? join_path(directory, std::string(kSparseCalibrationFile)) : path;
  STEMMA_ASSIGN_OR_RETURN(SparseCalibration calibration, load_sparse_calibration(files, file));
  STEMMA_RETURN_IF_ERROR(check_sparse_calibration(calibration, file, config, weights_sha256));
  return std::move(calibration.channels);
}

std::vector<std::pair<std::string, std::string>> sparse_namespace_fields(
    const HeavyChannels& channels, const SparseDial& dial) {
  const auto bytes = std::as_bytes(std::span(channels.channels));
  return {{"sparse_channels", std::to_string(channels.channels_each)},
          {"sparse_channels_sha256", to_hex(sha256(bytes))},
          {"sparse_dense_tokens", std::to_string(dial.dense_tokens)},
          {"sparse_kept", kept_text(dial)}};
}

}  // namespace stemma
