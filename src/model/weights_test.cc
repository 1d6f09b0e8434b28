// Weights: every family's tensors are found, from one file and from shards, in every type; each
// kind of broken model directory is one line that names the file and the tensor; every failed read
// is reported.
#include "model/weights.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/faulty_files.h"
#include "base/temp_directory.h"
#include "model/random_model.h"
#include "model/safetensors.h"
#include "stemma/log.h"

namespace stemma {
namespace {

class WeightsTest : public ::testing::Test {
 protected:
  void write(const RandomModelOptions& options) {
    config_ = options.config;
    const Status written = write_random_model(directory_.path(), options);
    ASSERT_TRUE(written.ok()) << to_string(written.error());
  }

  Result<ModelWeights> load(Files& files, WeightRounding rounding = WeightRounding::kNone) {
    STEMMA_ASSIGN_OR_RETURN(WeightFiles weight_files, WeightFiles::open(files, directory_.path()));
    return load_weights(config_, weight_files, threads_, {.rounding = rounding});
  }

  std::string load_error() {
    const auto weights = load(files_);
    EXPECT_FALSE(weights.ok());
    return weights.ok() ? "" : to_string(weights.error());
  }

  std::string read(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(directory_.file(name), std::ios::binary).rdbuf();
    return text.str();
  }

  // As weight_files.h defines it, of a model in one file whose text this is.
  static Sha256Digest digest_of_one_file(const std::string& text) {
    const auto bytes = std::as_bytes(std::span(text));
    const auto header_bytes =
        safetensors_header_bytes(bytes.first(8), std::ssize(bytes), "model.safetensors");
    const auto header =
        parse_safetensors_header(bytes.first(static_cast<std::size_t>(*header_bytes)),
                                 std::ssize(bytes), "model.safetensors");
    Sha256 file;
    file.update(bytes.first(static_cast<std::size_t>(*header_bytes)));
    for (const TensorEntry& tensor : header->tensors) {
      for (std::int64_t at = 0; at < tensor.size_bytes; at += WeightFiles::kPieceBytes) {
        const std::int64_t count = std::min(WeightFiles::kPieceBytes, tensor.size_bytes - at);
        const Sha256Digest piece = sha256(bytes.subspan(
            static_cast<std::size_t>(tensor.offset_bytes + at), static_cast<std::size_t>(count)));
        file.update(std::as_bytes(std::span(piece)));
      }
    }
    const Sha256Digest whole = file.finish();
    return sha256(std::as_bytes(std::span(whole)));
  }

  // Replaces the first `from` in a file by `to`, which must be as long.
  void patch(const std::string& name, const std::string& from, const std::string& to) const {
    std::string text = read(name);
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos);
    ASSERT_EQ(from.size(), to.size());
    std::ofstream(directory_.file(name), std::ios::binary) << text.replace(at, from.size(), to);
  }

  TempDirectory directory_;
  PosixFiles files_;
  ThreadPool threads_{1};
  ModelConfig config_;
};

TEST_F(WeightsTest, TensorsThatNoPartOfTheModelReadsAreTold) {
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  write({.config = tiny_model_config("llama_bias")});
  ASSERT_TRUE(load(files_).ok());
  EXPECT_EQ(lines, std::vector<std::string>());
  config_.layers = 1;  // the others are behind the last one
  ASSERT_TRUE(load(files_).ok());
  EXPECT_EQ(lines, std::vector<std::string>());
  config_.qkv_bias = false;
  ASSERT_TRUE(load(files_).ok());
  set_log_sink({});
  EXPECT_THAT(lines, testing::ElementsAre(testing::HasSubstr(
                         "model.weights.unread tensors=3 first=model.layers.0.self_attn.")));
}

TEST_F(WeightsTest, EveryFamilyLoadsWithItsOwnTensors) {
  for (const std::string_view name : tiny_model_names()) {
    SCOPED_TRACE(name);
    write({.config = tiny_model_config(name)});
    const auto weights = load(files_);
    ASSERT_TRUE(weights.ok()) << to_string(weights.error());
    ASSERT_EQ(static_cast<std::int64_t>(weights->layers.size()), config_.layers);
    const LayerWeights& last = weights->layers.back();
    EXPECT_EQ(last.output.k(), config_.value_columns());
    if (config_.latent.rank > 0) {
      const LatentWeights& latent = last.latent;
      EXPECT_EQ(latent.query_up.n(), config_.query_heads * config_.latent.query_head_dim());
      EXPECT_EQ(latent.query_down.n(), config_.latent.query_rank);
      EXPECT_EQ(latent.latent_down.n(), config_.latent.row_dim());
      EXPECT_EQ(std::ssize(latent.key_up), config_.query_heads);
      EXPECT_EQ(std::ssize(latent.value_up), config_.query_heads);
      EXPECT_EQ(latent.latent_down_bias.empty(), !config_.qkv_bias);
    } else {
      EXPECT_EQ(last.query.n(), config_.query_columns());
      EXPECT_EQ(last.key_bias.empty(), !config_.qkv_bias);
    }
    if (config_.mixture.at_layer(config_.layers - 1)) {
      EXPECT_EQ(std::ssize(last.mixture.experts), config_.mixture.experts);
      EXPECT_EQ(last.mixture.experts.back().down.k(), config_.mixture.width);
      EXPECT_EQ(last.mixture.shared.down.k(), config_.mixture.shared_width);
      EXPECT_EQ(last.mlp.down.k(), 0);
    } else {
      EXPECT_EQ(last.mlp.down.k(), config_.intermediate);
      EXPECT_TRUE(last.mixture.experts.empty());
    }
    EXPECT_EQ(last.output_bias.empty(), !config_.output_bias);
    EXPECT_EQ(last.mlp.gate_bias.empty(), !config_.mlp_bias);
    EXPECT_EQ(last.query_norm.empty(), !config_.head_norms);
    EXPECT_EQ(&weights->head() == &weights->embeddings, config_.tied_embeddings);
    EXPECT_EQ(weights->compute_format(), "f32");
  }
}

TEST_F(WeightsTest, ValuesArriveInEveryType) {
  for (const WeightType type : {WeightType::kF32, WeightType::kF16, WeightType::kBf16}) {
    SCOPED_TRACE(weight_type_name(type));
    write({.config = tiny_model_config("qwen2"), .type = type});
    const auto weights = load(files_);
    ASSERT_TRUE(weights.ok()) << to_string(weights.error());
    EXPECT_EQ(weights->compute_format(), weight_type_name(type));
    const float tolerance = type == WeightType::kF32 ? 0.0F : 1.0F / 128;
    const auto bias =
        random_tensor("model.layers.1.self_attn.k_proj.bias", {config_.kv_columns()}, 1);
    const auto matrix = random_tensor("model.layers.1.mlp.up_proj.weight",
                                      {config_.intermediate, config_.hidden}, 1);
    std::vector<float> row(static_cast<std::size_t>(config_.hidden));
    weights->layers[1].mlp.up.unpack_row(3, row);
    for (std::size_t i = 0; i < bias.size(); ++i) {
      EXPECT_NEAR(weights->layers[1].key_bias[i], bias[i], tolerance);
    }
    for (std::size_t i = 0; i < row.size(); ++i) {
      EXPECT_NEAR(row[i], matrix[3 * row.size() + i], tolerance);
    }
  }
}

TEST_F(WeightsTest, TheHeadsOfLatentRowsAreCutOutInEveryType) {
  for (const WeightType type : {WeightType::kF32, WeightType::kF16, WeightType::kBf16}) {
    SCOPED_TRACE(weight_type_name(type));
    write({.config = tiny_model_config("deepseek_v3"), .type = type});
    const auto weights = load(files_);
    ASSERT_TRUE(weights.ok()) << to_string(weights.error());
    EXPECT_EQ(weights->compute_format(), weight_type_name(type));
    const LatentConfig& latent = config_.latent;
    const std::int64_t head_rows = latent.plain_dim + latent.value_dim;
    const auto matrix = random_tensor("model.layers.1.self_attn.kv_b_proj.weight",
                                      {config_.query_heads * head_rows, latent.rank}, 1);
    const auto expected = [&](std::int64_t row, std::int64_t column) {
      return matrix[static_cast<std::size_t>(row * latent.rank + column)];
    };
    const float tolerance = type == WeightType::kF32 ? 0.0F : 1.0F / 512;
    constexpr std::int64_t kHead = 3;
    std::vector<float> transposed(static_cast<std::size_t>(latent.plain_dim));
    weights->layers[1].latent.key_up[kHead].unpack_row(5, transposed);
    for (std::int64_t i = 0; i < latent.plain_dim; ++i) {
      EXPECT_NEAR(transposed[static_cast<std::size_t>(i)], expected(kHead * head_rows + i, 5),
                  tolerance);
    }
    std::vector<float> straight(static_cast<std::size_t>(latent.rank));
    weights->layers[1].latent.value_up[kHead].unpack_row(7, straight);
    for (std::int64_t i = 0; i < latent.rank; ++i) {
      EXPECT_NEAR(straight[static_cast<std::size_t>(i)],
                  expected(kHead * head_rows + latent.plain_dim + 7, i), tolerance);
    }
  }
}

TEST_F(WeightsTest, ShardsGiveTheSameWeightsAndProgressReachesTheEnd) {
  write({.config = tiny_model_config("llama2"), .shards = 3});
  ASSERT_FALSE(std::filesystem::exists(directory_.file("model.safetensors")));
  auto weight_files = WeightFiles::open(files_, directory_.path());
  ASSERT_TRUE(weight_files.ok()) << to_string(weight_files.error());
  std::int64_t last_bytes = 0;
  const auto progress = [&](const LoadProgress& loaded) {
    EXPECT_GE(loaded.done_bytes, last_bytes);
    EXPECT_LE(loaded.done_bytes, loaded.total_bytes);
    last_bytes = loaded.done_bytes;
  };
  const auto weights = load_weights(config_, *weight_files, threads_, {.progress = progress});
  ASSERT_TRUE(weights.ok()) << to_string(weights.error());
  EXPECT_GT(last_bytes, 100'000);
  const auto norm = random_tensor("model.norm.weight", {config_.hidden}, 1);
  EXPECT_EQ(weights->final_norm, norm);
}

TEST_F(WeightsTest, TheDigestNamesTheBytes) {
  write({.config = tiny_model_config("llama2")});
  const Sha256Digest first = load(files_)->digest;
  EXPECT_EQ(load(files_)->digest, first);
  const std::string text = read("model.safetensors");
  EXPECT_EQ(first, digest_of_one_file(text));
  write({.config = tiny_model_config("llama2"), .seed = 2});
  EXPECT_NE(load(files_)->digest, first);
}

// A tensor of several pieces, and a last one that is not full; on any number of threads.
TEST_F(WeightsTest, TheDigestOfManyPiecesDoesNotDependOnThreads) {
  ModelConfig config = tiny_model_config("llama2");
  config.vocab_tokens = 5000;  // x 64 hidden: 1.2 MiB in f32
  write({.config = config});
  const Sha256Digest first = load(files_)->digest;
  EXPECT_EQ(first, digest_of_one_file(read("model.safetensors")));
  ThreadPool many(3);
  auto weight_files = WeightFiles::open(files_, directory_.path());
  ASSERT_TRUE(weight_files.ok());
  EXPECT_EQ(load_weights(config_, *weight_files, many, {})->digest, first);
}

TEST_F(WeightsTest, RoundedMatricesSayWhatTheyCost) {
  for (const std::string_view name : {"llama2", "deepseek_v3"}) {
    SCOPED_TRACE(name);
    write({.config = tiny_model_config(name), .type = WeightType::kBf16});
    const auto int8 = load(files_, WeightRounding::kInt8);
    const auto int4 = load(files_, WeightRounding::kInt4);
    ASSERT_TRUE(int8.ok() && int4.ok());
    const bool mixture = config_.mixture.experts > 0;
    EXPECT_EQ(int8->compute_format(), mixture ? "int8+bf16" : "int8");
    EXPECT_EQ(int4->compute_format(), mixture ? "int8+int4+bf16" : "int8+int4");
    EXPECT_EQ(int4->embeddings.format(), WeightFormat::kInt8);
    EXPECT_EQ(int4->embeddings.type(), WeightType::kBf16);
    EXPECT_EQ(int4->layers.back().output.format(), WeightFormat::kInt4);
    EXPECT_LT(int8->rounding.total().relative(), 0.01);
    EXPECT_LT(int4->rounding.total().relative(), 0.1);
    EXPECT_GT(int4->rounding.total().relative(), int8->rounding.total().relative());
    EXPECT_EQ(int8->rounding.stored_bytes, int4->rounding.stored_bytes);
    EXPECT_LT(int4->rounding.packed_bytes, int8->rounding.packed_bytes);
    EXPECT_TRUE(int4->rounding.kinds.contains("self_attn.o_proj"));
    EXPECT_TRUE(int4->rounding.kinds.contains("model.embed_tokens"));
    EXPECT_EQ(int4->rounding.kinds.contains("experts.up_proj"), mixture);
    EXPECT_TRUE(int4->rounding.worst_tensor.starts_with("model.layers.")) << "4 bits are worst";
    EXPECT_GT(int4->rounding.worst_error, 0.05);
    if (mixture) {
      EXPECT_EQ(int4->layers.back().mixture.router.format(), WeightFormat::kBf16);
      EXPECT_EQ(int4->layers.back().latent.key_up[0].format(), WeightFormat::kInt8);
    }
  }
}

TEST_F(WeightsTest, WeightsThatAreNotNumbersAreNotRounded) {
  write({.config = tiny_model_config("llama2")});
  std::string text = read("model.safetensors");
  const std::uint32_t nan = 0x7FC00000;
  std::memcpy(text.data() + text.size() - 4 * 1000, &nan, sizeof(nan));
  std::ofstream(directory_.file("model.safetensors"), std::ios::binary) << text;
  const auto weights = load(files_, WeightRounding::kInt4);
  ASSERT_FALSE(weights.ok());
  EXPECT_EQ(weights.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(weights.error().detail.find("': holds infinity or NaN, which int"), std::string::npos)
      << weights.error().detail;
}

TEST_F(WeightsTest, AMissingTensorIsNamed) {
  write({.config = tiny_model_config("llama2")});
  config_.head_norms = true;
  EXPECT_EQ(load_error(), "not_found: " + directory_.path() +
                              ": tensor 'model.layers.0.self_attn.q_norm.weight' [32] of this "
                              "llama model is missing");
}

TEST_F(WeightsTest, AMissingExpertIsNamed) {
  write({.config = tiny_model_config("deepseek_v3")});
  config_.mixture.experts = 9;
  config_.mixture.groups = 1;
  EXPECT_NE(load_error().find("tensor 'model.layers.1.mlp.gate.weight': expected shape [9, 64]"),
            std::string::npos);
  write({.config = tiny_model_config("deepseek_v3")});
  patch("model.safetensors", "model.layers.2.mlp.experts.7.up_proj.weight",
        "model.layers.2.mlp.experts.8.up_proj.weight");
  EXPECT_EQ(load_error(), "not_found: " + directory_.path() +
                              ": tensor 'model.layers.2.mlp.experts.7.up_proj.weight' [48, 64] of "
                              "this deepseek_v3 model is missing");
}

TEST_F(WeightsTest, AWrongShapeIsNamedWithBothShapes) {
  write({.config = tiny_model_config("llama2")});
  config_.intermediate = 96;
  EXPECT_EQ(load_error(), "invalid_argument: " + directory_.file("model.safetensors") +
                              ": tensor 'model.layers.0.mlp.gate_proj.weight': expected shape "
                              "[96, 64], found [160, 64]");
}

TEST_F(WeightsTest, AWrongTypeIsNamed) {
  write({.config = tiny_model_config("llama2")});
  patch("model.safetensors", R"({"data_offsets":[0,74496],"dtype":"F32")",
        R"({"data_offsets":[0,74496],"dtype":"I32")");
  EXPECT_NE(load_error().find("tensor 'model.embed_tokens.weight': dtype I32 is not supported"),
            std::string::npos);
}

// As files have them beside what the model is computed from; the other tensors lie anywhere then.
TEST_F(WeightsTest, AnUnknownTypeOfATensorThatNobodyReadsIsPassedOver) {
  write({.config = tiny_model_config("llama2")});
  const auto digest_before = load(files_)->digest;
  std::string text = read("model.safetensors");
  std::int64_t header_bytes = 0;
  std::memcpy(&header_bytes, text.data(), sizeof(header_bytes));
  const auto end = static_cast<std::size_t>(8 + header_bytes);
  nlohmann::json header = nlohmann::json::parse(text.substr(8, end - 8));
  for (auto& [name, tensor] : header.items()) {
    if (!tensor.contains("data_offsets")) continue;
    for (auto& offset : tensor["data_offsets"]) offset = offset.get<std::int64_t>() + 3;
  }
  header["advice"] = {{"dtype", "F8_E8M0"}, {"shape", {3}}, {"data_offsets", {0, 3}}};
  const std::string written = header.dump();
  header_bytes = std::ssize(written);
  std::ofstream file(directory_.file("model.safetensors"), std::ios::binary);
  file.write(reinterpret_cast<const char*>(&header_bytes), sizeof(header_bytes));
  file << written << "odd" << text.substr(end);
  file.close();
  const auto weights = load(files_);
  ASSERT_TRUE(weights.ok()) << to_string(weights.error());
  EXPECT_NE(weights->digest, digest_before);
  patch("model.safetensors", R"("dtype":"F32")", R"("dtype":"F23")");
  EXPECT_NE(load_error().find("dtype F23 is not supported"), std::string::npos);
}

TEST_F(WeightsTest, NoWeightsAtAll) {
  EXPECT_EQ(load_error(), "not_found: " + directory_.path() +
                              ": holds neither model.safetensors nor model.safetensors.index.json");
}

TEST_F(WeightsTest, ATruncatedFileIsCorruptWhereverItEnds) {
  write({.config = tiny_model_config("llama2")});
  const auto whole_bytes = std::filesystem::file_size(directory_.file("model.safetensors"));
  for (const std::uintmax_t kept : {std::uintmax_t{0}, std::uintmax_t{7}, std::uintmax_t{8},
                                    std::uintmax_t{900}, whole_bytes / 2, whole_bytes - 1}) {
    write({.config = tiny_model_config("llama2")});
    std::filesystem::resize_file(directory_.file("model.safetensors"), kept);
    const std::string error = load_error();
    EXPECT_EQ(error.find("corrupt: " + directory_.file("model.safetensors")), 0u) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos);
  }
}

TEST_F(WeightsTest, AMissingShardIsNamed) {
  write({.config = tiny_model_config("qwen3"), .shards = 3});
  std::filesystem::remove(directory_.file("model-00002-of-00003.safetensors"));
  EXPECT_EQ(load_error(), "not_found: " + directory_.file("model-00002-of-00003.safetensors") +
                              ": cannot open (No such file or directory)");
}

TEST_F(WeightsTest, AnIndexThatNamesATensorTheShardLacks) {
  write({.config = tiny_model_config("qwen3"), .shards = 2});
  patch("model.safetensors.index.json", R"("model.norm.weight":)", R"("model.narm.weight":)");
  EXPECT_NE(load_error().find("model.safetensors.index.json: tensor 'model.narm.weight' is not in "
                              "model-0000"),
            std::string::npos);
}

TEST_F(WeightsTest, ATensorInTwoShardsIsRefused) {
  write({.config = tiny_model_config("qwen3"), .shards = 2});
  std::filesystem::copy_file(directory_.file("model-00001-of-00002.safetensors"),
                             directory_.file("model-00002-of-00002.safetensors"),
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_NE(load_error().find("is also in"), std::string::npos);
}

TEST_F(WeightsTest, EveryFailedReadIsReported) {
  for (const int shards : {1, 2}) {
    TempDirectory directory;
    const ModelConfig config = tiny_model_config("llama2");
    ASSERT_TRUE(write_random_model(directory.path(), {.config = config, .shards = shards}).ok());
    std::int64_t fail_at = 0;
    for (;; ++fail_at) {
      FaultyFiles faulty(files_, fail_at);
      const auto loaded = [&]() -> Result<ModelWeights> {
        STEMMA_ASSIGN_OR_RETURN(WeightFiles opened, WeightFiles::open(faulty, directory.path()));
        return load_weights(config, opened, threads_, {});
      }();
      if (!faulty.failed()) {
        EXPECT_TRUE(loaded.ok());
        break;
      }
      ASSERT_FALSE(loaded.ok()) << "operation " << fail_at;
      EXPECT_EQ(loaded.error().sys_errno, EIO);
    }
    EXPECT_GE(fail_at, 24);  // the header, and each of 21 tensors
  }
}

}  // namespace
}  // namespace stemma
