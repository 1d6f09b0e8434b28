#include "model/random_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/float16.h"
#include "base/float8.h"
#include "base/prng.h"
#include "model/float8_matrix.h"
#include "model/weights.h"

namespace stemma {
namespace {

using Json = nlohmann::json;

std::string_view safetensors_dtype(WeightType type) {
  if (type == WeightType::kF32) {
    return "F32";
  }
  return type == WeightType::kF16 ? "F16" : "BF16";
}

std::string to_codes(const std::vector<float>& values) {
  std::string codes;
  codes.reserve(values.size());
  for (const float value : values) {
    codes.push_back(static_cast<char>(to_float8<Float8E4M3>(value).bits));
  }
  return codes;
}

std::string to_bytes(const std::vector<float>& values, WeightType type) {
  const std::size_t element_bytes = weight_type_bytes(type);
  std::string bytes(values.size() * element_bytes, '\0');
  for (std::size_t i = 0; i < values.size(); ++i) {
    char* element = bytes.data() + i * element_bytes;
    if (type == WeightType::kF32) {
      std::memcpy(element, &values[i], sizeof(float));
      continue;
    }
    const std::uint16_t half =
        type == WeightType::kBf16 ? to_bfloat16(values[i]).bits : to_float16(values[i]).bits;
    std::memcpy(element, &half, sizeof(half));
  }
  return bytes;
}

std::string shard_name(int shard, int shards) {
  const auto five_digits = [](int number) {
    const std::string digits = std::to_string(number);
    return std::string(5 - digits.size(), '0') + digits;
  };
  return shards == 1
             ? "model.safetensors"
             : "model-" + five_digits(shard + 1) + "-of-" + five_digits(shards) + ".safetensors";
}

std::optional<WeightType> other_type(const std::string& name, const RandomModelOptions& options) {
  for (const OtherType& other : options.others) {
    if (name.ends_with(other.ending)) return other.type;
  }
  return std::nullopt;
}

// What a file holds of a tensor. Published files keep embeddings, the output matrix and routers in
// 16 bits.
std::vector<TensorValues> stored_as(TensorValues tensor, const RandomModelOptions& options) {
  const TensorSpec& spec = tensor.spec;
  const bool is_coded = spec.shape.size() == 2 && spec.name.starts_with("model.layers.") &&
                        !spec.name.ends_with("mlp.gate.weight") && !tensor.type.has_value();
  const CodedConfig& coded = options.config.coded;
  if (const auto* const float8 = std::get_if<Float8Config>(&coded); is_coded && float8 != nullptr) {
    return to_float8(tensor, *float8, options.float8);
  }
  if (is_coded && std::holds_alternative<Int8Config>(coded)) {
    return to_int8(tensor, options.int8_scale_type).tensors;
  }
  if (const auto* const packed = std::get_if<PackedIntConfig>(&coded);
      is_coded && packed != nullptr) {
    return to_packed_int(tensor, *packed, options.packed).tensors;
  }
  std::vector<TensorValues> alone;
  alone.push_back(std::move(tensor));
  return alone;
}

Status write_weights(const std::string& directory, const RandomModelOptions& options) {
  std::vector<std::vector<TensorValues>> shards(static_cast<std::size_t>(options.shards));
  Json weight_map = Json::object();
  std::size_t next = 0;
  for (const TensorSpec& tensor : needed_tensors(options.config)) {
    const std::size_t shard = next++ % shards.size();
    const TensorValues values = {tensor, random_weights(options.config, tensor, options.seed),
                                 other_type(tensor.name, options)};
    for (TensorValues& part : stored_as(values, options)) {
      weight_map[part.spec.name] = shard_name(static_cast<int>(shard), options.shards);
      shards[shard].push_back(std::move(part));
    }
  }
  for (std::size_t i = 0; i < shards.size(); ++i) {
    // What is widest goes first, as in published files: all that follows it is aligned.
    std::ranges::stable_partition(shards[i],
                                  [](const auto& tensor) { return tensor.dtype == "I64"; });
    const std::string name = shard_name(static_cast<int>(i), options.shards);
    STEMMA_RETURN_IF_ERROR(write_safetensors(join_path(directory, name), shards[i], options.type));
  }
  if (options.shards == 1) {
    return {};
  }
  const Json index = {{"metadata", Json::object()}, {"weight_map", weight_map}};
  return write_file(join_path(directory, "model.safetensors.index.json"), index.dump());
}

// U+0000 ... U+07FF in UTF-8.
std::string utf8(int code) {
  if (code < 0x80) {
    return std::string(1, static_cast<char>(code));
  }
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

// Byte-level BPE without merges. Bytes that do not print stand for themselves as U+0100 and on, as
// in GPT-2.
std::string tokenizer_json() {
  Json vocab = Json::object();
  int unprintable = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const bool prints = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    vocab[utf8(prints ? byte : 0x100 + unprintable++)] = byte;
  }
  const Json end = {{"id", kTinyEndToken}, {"content", "<|end|>"}, {"single_word", false},
                    {"lstrip", false},     {"rstrip", false},      {"normalized", false},
                    {"special", true}};
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", true}};
  const Json model = {{"type", "BPE"},
                      {"dropout", nullptr},
                      {"unk_token", nullptr},
                      {"continuing_subword_prefix", nullptr},
                      {"end_of_word_suffix", nullptr},
                      {"fuse_unk", false},
                      {"byte_fallback", false},
                      {"vocab", vocab},
                      {"merges", Json::array()}};
  const Json tokenizer = {{"version", "1.0"},
                          {"truncation", nullptr},
                          {"padding", nullptr},
                          {"added_tokens", Json::array({end})},
                          {"normalizer", nullptr},
                          {"pre_tokenizer", byte_level},
                          {"post_processor", nullptr},
                          {"decoder", byte_level},
                          {"model", model}};
  return tokenizer.dump(1);
}

}  // namespace

Status write_file(const std::string& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (!file) {
    return Error{ErrorCode::kIo, path + ": cannot write"};
  }
  return {};
}

Status write_safetensors(const std::string& path, std::span<const TensorValues> tensors,
                         WeightType type) {
  Json header = {{"__metadata__", {{"format", "pt"}}}};
  std::string bytes;
  for (const TensorValues& tensor : tensors) {
    const std::size_t begin = bytes.size();
    const WeightType own_type = tensor.type.value_or(type);
    std::string_view dtype = safetensors_dtype(own_type);
    if (!tensor.dtype.empty()) {
      dtype = tensor.dtype;
      bytes.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
    } else if (tensor.is_float8) {
      dtype = kFloat8Dtype;
      bytes += to_codes(tensor.values);
    } else {
      bytes += to_bytes(tensor.values, own_type);
    }
    header[tensor.spec.name] = {
        {"dtype", dtype}, {"shape", tensor.spec.shape}, {"data_offsets", {begin, bytes.size()}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that the tensors begin at a multiple of 8
  const std::uint64_t length = text.size();
  static_assert(std::endian::native == std::endian::little);
  std::string prefix(sizeof(length), '\0');
  std::memcpy(prefix.data(), &length, sizeof(length));
  return write_file(path, prefix + text + bytes);
}

std::vector<float> random_tensor(std::string_view name, const std::vector<std::int64_t>& shape,
                                 std::uint64_t seed) {
  for (const char c : name) {
    seed = mix64(seed ^ static_cast<unsigned char>(c));
  }
  Prng random(seed);
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape) {
    elements *= extent;
  }
  // Matrices keep the variance of their input; norms lie around 1, biases around 0.
  const bool matrix = shape.size() == 2;
  const bool norm = !matrix && name.ends_with(".weight");
  const double reach = matrix ? std::sqrt(3.0 / static_cast<double>(shape[1])) : 0.2;
  std::vector<float> values(static_cast<std::size_t>(elements));
  for (float& value : values) {
    value = static_cast<float>((norm ? 1.0 : 0.0) + reach * (2.0 * random.unit() - 1.0));
  }
  return values;
}

std::vector<float> random_weights(const ModelConfig& config, const TensorSpec& tensor,
                                  std::uint64_t seed) {
  std::vector<float> values = random_tensor(tensor.name, tensor.shape, seed);
  const bool norm = tensor.shape.size() == 1 && tensor.name.ends_with(".weight");
  if (!norm || !config.norms_add_one) return values;
  for (float& value : values) value -= 1.0f;
  return values;
}

Status write_random_model(const std::string& directory, const RandomModelOptions& options) {
  STEMMA_CHECK(options.shards >= 1 && options.shards < 100000,
               "shards are numbered with five digits");
  RandomModelOptions written = options;
  written.config.weights_dtype = options.type == WeightType::kF32   ? DType::kF32
                                 : options.type == WeightType::kF16 ? DType::kF16
                                                                    : DType::kBF16;
  STEMMA_RETURN_IF_ERROR(
      write_file(join_path(directory, "config.json"), config_json(written.config)));
  STEMMA_RETURN_IF_ERROR(write_file(join_path(directory, "tokenizer.json"), tokenizer_json()));
  return write_weights(directory, written);
}

}  // namespace stemma
