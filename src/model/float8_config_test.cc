// Float8Config: quantization_config as published files of 8 bits have it; what stores weights in
// another way is one line that names the file and the field.
#include "model/float8_config.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "model/config.h"
#include "model/config_json.h"
#include "model/tiny_config.h"

namespace stemma {
namespace {

std::string config_text(const std::string& section) {
  return R"({"architectures":["Qwen3ForCausalLM"],"vocab_size":1000,"hidden_size":128,)"
         R"("intermediate_size":256,"num_attention_heads":4,"max_position_embeddings":512,)"
         R"("num_hidden_layers":2,"quantization_config":)" +
         section + "}";
}

std::optional<Float8Config> parse(const std::string& section) {
  const auto config = parse_config(config_text(section), "config.json");
  EXPECT_TRUE(config.ok()) << to_string(config.error());
  return config.ok() ? config->float8 : std::nullopt;
}

// The section of compressed-tensors with one group of such weights.
std::string compressed(const std::string& weights, const std::string& more = "") {
  return R"({"quant_method":"compressed-tensors","format":"float-quantized","config_groups":)"
         R"({"group_0":{"targets":["Linear"],"weights":)" +
         weights + "}}" + more + "}";
}

TEST(Float8ConfigTest, DeepseekAndQwenNameTiles) {
  const Float8Config tiles = {.tile_outputs = 128, .tile_inputs = 64};
  EXPECT_EQ(parse(R"({"activation_scheme":"dynamic","fmt":"e4m3","quant_method":"fp8",
                      "weight_block_size":[128,64]})"),
            tiles);
  EXPECT_EQ(parse(R"({"activation_scheme":"dynamic","modules_to_not_convert":["lm_head"],
                      "quant_method":"fp8","weight_block_size":[128,64]})"),
            tiles);
}

TEST(Float8ConfigTest, WithoutTilesScalesAreOfOutputsOrOne) {
  const Float8Config none = {};
  EXPECT_EQ(parse(R"({"quant_method":"fp8","activation_scheme":"static"})"), none);
  EXPECT_EQ(parse(R"({"quant_method":"fp8","weight_block_size":null})"), none);
  EXPECT_EQ(parse(R"({"quant_method":"fbgemm_fp8","activation_scale_ub":1200.0})"), none);
  EXPECT_EQ(parse(compressed(R"({"num_bits":8,"type":"float","strategy":"channel"})")), none);
  EXPECT_EQ(parse(compressed(R"({"num_bits":8,"type":"float","strategy":"tensor"})",
                             R"(,"sparsity_config":{"format":"dense"},"kv_cache_scheme":null)")),
            none);
}

TEST(Float8ConfigTest, CompressedTensorsNamesTilesToo) {
  EXPECT_EQ(parse(compressed(R"({"num_bits":8,"type":"float","strategy":"block",
                                 "block_structure":[128,128]})")),
            (Float8Config{.tile_outputs = 128, .tile_inputs = 128}));
}

TEST(Float8ConfigTest, FilesOfWiderWeightsHaveNone) {
  EXPECT_EQ(parse("null"), std::nullopt);
}

TEST(Float8ConfigTest, WhatIsWrittenIsRead) {
  ModelConfig config = tiny_model_config("deepseek_v3");
  config.float8 = Float8Config{.tile_outputs = 32, .tile_inputs = 16};
  const auto read = parse_config(config_json(config), "config.json");
  ASSERT_TRUE(read.ok()) << to_string(read.error());
  EXPECT_EQ(read->float8, config.float8);
}

TEST(Float8ConfigTest, WhatStoresWeightsInAnotherWayIsRefusedByName) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"5", "quantization_config: must be an object"},
      {"{}", "quantization_config.quant_method: missing"},
      {R"({"quant_method":"gptq","bits":4})",
       "quantization_config.quant_method: 'gptq' is not supported; known are fp8 fbgemm_fp8 "
       "compressed-tensors"},
      {R"({"quant_method":"fp8","fmt":"e5m2"})",
       "quantization_config.fmt: 'e5m2' is not supported; known is e4m3"},
      {R"({"quant_method":"fp8","weight_block_size":[128]})",
       "quantization_config.weight_block_size: must be two integers"},
      {R"({"quant_method":"fp8","weight_block_size":[128,0]})",
       "quantization_config.weight_block_size: must be two integers"},
      {R"({"quant_method":"compressed-tensors","format":"pack-quantized"})",
       "quantization_config.format: 'pack-quantized' is not supported; known is float-quantized"},
      {R"({"quant_method":"compressed-tensors","format":"float-quantized"})",
       "quantization_config.config_groups: must be an object with groups"},
      {compressed("null"), "quantization_config.config_groups: a group without weights"},
      {compressed(R"({"num_bits":4,"type":"float","strategy":"channel"})"),
       "quantization_config.config_groups.group_0.weights.num_bits: only 8"},
      {compressed(R"({"num_bits":8,"type":"int","strategy":"channel"})"),
       "quantization_config.config_groups.group_0.weights.type: 'int' is not supported"},
      {compressed(R"({"num_bits":8,"type":"float","strategy":"group"})"),
       "strategy: 'group' is not supported; known are tensor channel block"},
      {compressed(R"({"num_bits":8,"type":"float","strategy":"block"})"),
       "block_structure: missing"},
      {compressed(R"({"num_bits":8,"type":"float","strategy":"tensor"})",
                  R"(,"sparsity_config":{"format":"sparse-24-bitmask"})"),
       "quantization_config.sparsity_config: is not supported"},
      {compressed(R"({"num_bits":8,"type":"float","strategy":"tensor"})",
                  R"(,"transform_config":{"config_groups":{}})"),
       "quantization_config.transform_config: is not supported"},
  };
  for (const auto& [section, expected] : cases) {
    const auto config = parse_config(config_text(section), "m/config.json");
    ASSERT_FALSE(config.ok()) << section;
    EXPECT_NE(to_string(config.error()).find("m/config.json: "), std::string::npos);
    EXPECT_NE(to_string(config.error()).find(expected), std::string::npos)
        << section << " gave " << to_string(config.error());
  }
}

TEST(Float8ConfigTest, GroupsOfTwoKindsAreRefused) {
  const auto config =
      parse_config(config_text(R"({"quant_method":"compressed-tensors","format":"float-quantized",
          "config_groups":{
            "a":{"weights":{"num_bits":8,"type":"float","strategy":"tensor"}},
            "b":{"weights":{"num_bits":8,"type":"float","strategy":"block",
                            "block_structure":[128,128]}}}})"),
                   "config.json");
  ASSERT_FALSE(config.ok());
  EXPECT_NE(to_string(config.error()).find("config_groups: groups with other tiles"),
            std::string::npos);
}

}  // namespace
}  // namespace stemma
