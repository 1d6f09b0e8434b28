#include "model/random_model.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/float16.h"
#include "base/prng.h"
#include "model/weights.h"

namespace stemma {
namespace {

using Json = nlohmann::json;

constexpr TokenId kEndToken = 256;

ModelConfig plain_config() {
  ModelConfig config;
  config.vocab_tokens = 291;  // not a multiple of any panel
  config.hidden = 64;
  config.intermediate = 160;
  config.layers = 2;
  config.query_heads = 2;
  config.kv_heads = 2;
  config.head_dim = 32;
  config.context_tokens_max = 4096;
  config.norm_epsilon = 1e-5;
  config.weights_dtype = DType::kF32;
  config.begin_token = kEndToken;
  config.end_tokens = {kEndToken};
  return config;
}

// Eight experts, two of them a token's; the layer between two mixtures is dense.
ModelConfig qwen3_moe_config(ModelConfig config) {
  config.family = ModelFamily::kQwen3Moe;
  config.layers = 3;
  config.query_heads = 4;
  config.norm_epsilon = 1e-6;
  config.rope.theta = 1e6;
  config.head_norms = true;
  config.mixture.experts = 8;
  config.mixture.experts_per_token = 2;
  config.mixture.width = 96;
  config.mixture.normalised = true;
  config.mixture.layers = {true, false, true};
  return config;
}

std::string_view architecture_name(ModelFamily family) {
  switch (family) {
    case ModelFamily::kLlama:
      return "LlamaForCausalLM";
    case ModelFamily::kQwen2:
      return "Qwen2ForCausalLM";
    case ModelFamily::kQwen3:
      return "Qwen3ForCausalLM";
    case ModelFamily::kQwen3Moe:
      return "Qwen3MoeForCausalLM";
  }
  return "unknown";
}

std::string_view torch_dtype_name(DType dtype) {
  if (dtype == DType::kF32) {
    return "float32";
  }
  return dtype == DType::kF16 ? "float16" : "bfloat16";
}

Json rope_scaling_json(const RopeConfig& rope) {
  if (rope.scaling == RopeConfig::Scaling::kNone) {
    return nullptr;
  }
  Json scaling = {{"rope_type", rope_scaling_name(rope.scaling)}, {"factor", rope.factor}};
  if (rope.scaling == RopeConfig::Scaling::kLlama3) {
    scaling["low_freq_factor"] = rope.low_frequency_factor;
    scaling["high_freq_factor"] = rope.high_frequency_factor;
    scaling["original_max_position_embeddings"] = rope.original_context_tokens;
  }
  return scaling;
}

void add_mixture_json(const ModelConfig& config, Json& object) {
  const MixtureConfig& mixture = config.mixture;
  if (mixture.experts == 0) {
    return;
  }
  Json dense = Json::array();
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    if (!mixture.at_layer(layer)) {
      dense.push_back(layer);
    }
  }
  object["num_experts"] = mixture.experts;
  object["num_experts_per_tok"] = mixture.experts_per_token;
  object["moe_intermediate_size"] = mixture.width;
  object["norm_topk_prob"] = mixture.normalised;
  object["mlp_only_layers"] = dense;
}

std::string_view safetensors_dtype(WeightType type) {
  if (type == WeightType::kF32) {
    return "F32";
  }
  return type == WeightType::kF16 ? "F16" : "BF16";
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

Status write_file(const std::string& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (!file) {
    return Error{ErrorCode::kIo, path + ": cannot write"};
  }
  return {};
}

// One safetensors file of `tensors`.
Status write_shard(const std::string& path, const std::vector<TensorSpec>& tensors,
                   const RandomModelOptions& options) {
  Json header = {{"__metadata__", {{"format", "pt"}}}};
  std::string bytes;
  for (const TensorSpec& tensor : tensors) {
    const std::size_t begin = bytes.size();
    bytes += to_bytes(random_tensor(tensor.name, tensor.shape, options.seed), options.type);
    header[tensor.name] = {{"dtype", safetensors_dtype(options.type)},
                           {"shape", tensor.shape},
                           {"data_offsets", {begin, bytes.size()}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that the tensors begin at a multiple of 8
  const std::uint64_t length = text.size();
  static_assert(std::endian::native == std::endian::little);
  std::string prefix(sizeof(length), '\0');
  std::memcpy(prefix.data(), &length, sizeof(length));
  return write_file(path, prefix + text + bytes);
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

Status write_weights(const std::string& directory, const RandomModelOptions& options) {
  std::vector<std::vector<TensorSpec>> shards(static_cast<std::size_t>(options.shards));
  Json weight_map = Json::object();
  std::size_t next = 0;
  for (TensorSpec& tensor : needed_tensors(options.config)) {
    const std::size_t shard = next++ % shards.size();
    weight_map[tensor.name] = shard_name(static_cast<int>(shard), options.shards);
    shards[shard].push_back(std::move(tensor));
  }
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shard_name(static_cast<int>(i), options.shards);
    STEMMA_RETURN_IF_ERROR(write_shard(join_path(directory, name), shards[i], options));
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
  const Json end = {{"id", kEndToken}, {"content", "<|end|>"}, {"single_word", false},
                    {"lstrip", false}, {"rstrip", false},      {"normalized", false},
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

std::vector<std::string_view> tiny_model_names() {
  return {"llama2", "llama3", "llama_bias", "qwen2", "qwen3", "qwen3_moe"};
}

ModelConfig tiny_model_config(std::string_view name) {
  ModelConfig config = plain_config();
  if (name == "llama3") {
    config.hidden = 128;
    config.query_heads = 4;
    config.tied_embeddings = true;
    config.rope = {.theta = 500000.0,
                   .scaling = RopeConfig::Scaling::kLlama3,
                   .factor = 8.0,
                   .low_frequency_factor = 1.0,
                   .high_frequency_factor = 4.0,
                   .original_context_tokens = 256};  // all three bands occur
  } else if (name == "llama_bias") {
    config.qkv_bias = config.output_bias = config.mlp_bias = true;
    config.rope.scaling = RopeConfig::Scaling::kLinear;
    config.rope.factor = 4.0;
  } else if (name == "qwen2") {
    config.family = ModelFamily::kQwen2;
    config.hidden = 128;
    config.query_heads = 4;
    config.kv_heads = 1;
    config.norm_epsilon = 1e-6;
    config.rope.theta = 1e6;
    config.qkv_bias = true;
    config.tied_embeddings = true;
  } else if (name == "qwen3") {
    config.family = ModelFamily::kQwen3;
    config.layers = 3;
    config.query_heads = 4;
    config.norm_epsilon = 1e-6;
    config.rope.theta = 1e6;
    config.head_norms = true;
  } else if (name == "qwen3_moe") {
    config = qwen3_moe_config(config);
  } else {
    STEMMA_CHECK(name == "llama2", "one of tiny_model_names()");
  }
  return config;
}

std::string config_json(const ModelConfig& config) {
  Json object = {{"architectures", {architecture_name(config.family)}},
                 {"vocab_size", config.vocab_tokens},
                 {"hidden_size", config.hidden},
                 {"intermediate_size", config.intermediate},
                 {"num_hidden_layers", config.layers},
                 {"num_attention_heads", config.query_heads},
                 {"num_key_value_heads", config.kv_heads},
                 {"head_dim", config.head_dim},
                 {"max_position_embeddings", config.context_tokens_max},
                 {"rms_norm_eps", config.norm_epsilon},
                 {"rope_theta", config.rope.theta},
                 {"rope_scaling", rope_scaling_json(config.rope)},
                 {"tie_word_embeddings", config.tied_embeddings},
                 {"attention_bias", config.output_bias},
                 {"mlp_bias", config.mlp_bias},
                 {"hidden_act", "silu"},
                 {"eos_token_id", config.end_tokens}};
  add_mixture_json(config, object);
  if (config.begin_token.has_value()) {
    object["bos_token_id"] = *config.begin_token;
  }
  if (config.weights_dtype.has_value()) {
    object["torch_dtype"] = torch_dtype_name(*config.weights_dtype);
  }
  return object.dump(1);
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
