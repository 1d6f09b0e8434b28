// CodedConfig: quantization_config as published files of 8 and 4 bits have it; what stores weights
// in another way is one line that names the file and the field.
#include "model/coded_config.h"

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

CodedConfig parse(const std::string& section) {
  const auto config = parse_config(config_text(section), "config.json");
  EXPECT_TRUE(config.ok()) << section << " gave " << to_string(config.error());
  return config.ok() ? config->coded : CodedConfig();
}

// The section of compressed-tensors with one group of such weights.
std::string compressed_as(const std::string& format, const std::string& weights,
                          const std::string& more = "") {
  return R"({"quant_method":"compressed-tensors","format":")" + format +
         R"(","config_groups":{"group_0":{"targets":["Linear"],"weights":)" + weights + "}}" +
         more + "}";
}
std::string compressed(const std::string& weights, const std::string& more = "") {
  return compressed_as("float-quantized", weights, more);
}

TEST(CodedConfigTest, DeepseekAndQwenNameTiles) {
  const CodedConfig tiles = Float8Config{.tile_outputs = 128, .tile_inputs = 64};
  EXPECT_EQ(parse(R"({"activation_scheme":"dynamic","fmt":"e4m3","quant_method":"fp8",
                      "weight_block_size":[128,64]})"),
            tiles);
  EXPECT_EQ(parse(R"({"activation_scheme":"dynamic","modules_to_not_convert":["lm_head"],
                      "quant_method":"fp8","weight_block_size":[128,64]})"),
            tiles);
}

TEST(CodedConfigTest, WithoutTilesScalesAreOfOutputsOrOne) {
  const CodedConfig none = Float8Config{};
  EXPECT_EQ(parse(R"({"quant_method":"fp8","activation_scheme":"static"})"), none);
  EXPECT_EQ(parse(R"({"quant_method":"fp8","weight_block_size":null})"), none);
  EXPECT_EQ(parse(R"({"quant_method":"fbgemm_fp8","activation_scale_ub":1200.0})"), none);
  EXPECT_EQ(parse(compressed(R"({"num_bits":8,"type":"float","strategy":"channel"})")), none);
  EXPECT_EQ(parse(compressed(R"({"num_bits":8,"type":"float","strategy":"tensor"})",
                             R"(,"sparsity_config":{"format":"dense"},"kv_cache_scheme":null)")),
            none);
}

TEST(CodedConfigTest, CompressedTensorsHasWholeNumbersOfEightBits) {
  for (const char* const strategy : {"channel", "tensor"}) {
    EXPECT_EQ(parse(compressed_as("int-quantized", std::string(R"({"num_bits":8,"type":"int",
                                  "symmetric":true,"strategy":")") +
                                                       strategy + R"("})")),
              CodedConfig(Int8Config{}));
  }
}

TEST(CodedConfigTest, TheSectionsFirstNameIsRead) {
  const std::string section = compressed_as(
      "int-quantized", R"({"num_bits":8,"type":"int","symmetric":true,"strategy":"channel"})");
  std::string text = config_text(section);
  text.replace(text.find("quantization_config"), 19, "compression_config");
  const auto config = parse_config(text, "config.json");
  ASSERT_TRUE(config.ok()) << to_string(config.error());
  EXPECT_EQ(config->coded, CodedConfig(Int8Config{}));
  text.replace(text.find("compressed-tensors"), 18, "zip");
  EXPECT_EQ(to_string(parse_config(text, "config.json").error()).substr(0, 77),
            "unsupported: config.json: compression_config.quant_method: 'zip' is not suppo");
}

TEST(CodedConfigTest, TwoSectionsMustAgree) {
  const std::string tiles = R"({"quant_method":"fp8","weight_block_size":[128,64]})";
  const auto both = [&](const std::string& other) {
    return parse_config(config_text(tiles + R"(,"compression_config":)" + other), "config.json");
  };
  EXPECT_TRUE(both(tiles).ok());
  EXPECT_TRUE(both("null").ok());
  EXPECT_EQ(to_string(both(R"({"quant_method":"fp8"})").error()),
            "invalid_argument: config.json: compression_config: contradicts quantization_config");
}

TEST(CodedConfigTest, CompressedTensorsNamesTilesToo) {
  EXPECT_EQ(parse(compressed(R"({"num_bits":8,"type":"float","strategy":"block",
                                 "block_structure":[128,128]})")),
            CodedConfig(Float8Config{.tile_outputs = 128, .tile_inputs = 128}));
}

TEST(CodedConfigTest, GptqHasFourBitsInTwoForms) {
  const PackedIntConfig gptq = {PackedIntConfig::Layout::kGptq, 128, true, true};
  EXPECT_EQ(parse(R"({"quant_method":"gptq","bits":4,"group_size":128,"desc_act":false,"sym":true,
                      "damp_percent":0.01,"static_groups":false,"true_sequential":true,
                      "model_file_base_name":"model","model_name_or_path":null})"),
            CodedConfig(gptq));
  EXPECT_EQ(parse(R"({"quant_method":"gptq","bits":4,"group_size":128,"sym":true,
                      "checkpoint_format":"gptq","dynamic":{"-:.*mlp.gate$":{}},
                      "meta":{"quantizer":["gptqmodel:2.2.0"]}})"),
            CodedConfig(gptq));
  EXPECT_EQ(parse(R"({"quant_method":"gptq","bits":4,"group_size":-1,"desc_act":true,
                      "checkpoint_format":"gptq_v2"})"),
            CodedConfig(PackedIntConfig{PackedIntConfig::Layout::kGptq, 0}));
}

TEST(CodedConfigTest, PackedCodesMayHaveEightBits) {
  EXPECT_EQ(
      parse(R"({"quant_method":"gptq","bits":8,"group_size":128,"desc_act":false,"sym":true})"),
      CodedConfig(PackedIntConfig{PackedIntConfig::Layout::kGptq, 128, true, true, 8}));
  EXPECT_EQ(
      parse(compressed_as("pack-quantized",
                          R"({"num_bits":8,"type":"int","symmetric":true,
                                    "strategy":"channel","group_size":null})")),
      CodedConfig(PackedIntConfig{
          .layout = PackedIntConfig::Layout::kCompressedTensors, .is_symmetric = true, .bits = 8}));
}

TEST(CodedConfigTest, AwqHasFourBitsInOneForm) {
  const CodedConfig awq = PackedIntConfig{PackedIntConfig::Layout::kAwq, 64};
  EXPECT_EQ(parse(R"({"quant_method":"awq","bits":4,"group_size":64,"version":"gemm",
                      "zero_point":true,"modules_to_not_convert":["mlp.gate"]})"),
            awq);
  EXPECT_EQ(parse(R"({"quant_method":"awq","w_bit":4,"q_group_size":64,"version":"GEMM",
                      "zero_point":true,"modules_to_not_convert":null})"),
            awq);
}

TEST(CodedConfigTest, CompressedTensorsPacksFourBitsOfGroupsOrOutputs) {
  constexpr auto kLayout = PackedIntConfig::Layout::kCompressedTensors;
  EXPECT_EQ(
      parse(compressed_as("pack-quantized",
                          R"({"num_bits":4,"type":"int","symmetric":true,"actorder":null,
                                    "strategy":"group","group_size":128})")),
      CodedConfig(PackedIntConfig{.layout = kLayout, .group_inputs = 128, .is_symmetric = true}));
  EXPECT_EQ(parse(compressed_as("pack-quantized",
                                R"({"num_bits":4,"type":"int","symmetric":false,
                                    "strategy":"channel","group_size":null})")),
            CodedConfig(PackedIntConfig{.layout = kLayout}));
}

TEST(CodedConfigTest, FilesOfWiderWeightsHaveNone) {
  EXPECT_EQ(parse("null"), CodedConfig());
}

TEST(CodedConfigTest, WhatIsWrittenIsRead) {
  ModelConfig config = tiny_model_config("deepseek_v3");
  const std::vector<CodedConfig> all = {
      Float8Config{.tile_outputs = 32, .tile_inputs = 16},
      Int8Config{},
      PackedIntConfig{PackedIntConfig::Layout::kGptq, 128, true, true},
      PackedIntConfig{PackedIntConfig::Layout::kGptq, 0},
      PackedIntConfig{PackedIntConfig::Layout::kAwq, 64},
      PackedIntConfig{.layout = PackedIntConfig::Layout::kCompressedTensors, .group_inputs = 32},
      PackedIntConfig{.layout = PackedIntConfig::Layout::kCompressedTensors, .is_symmetric = true},
      PackedIntConfig{PackedIntConfig::Layout::kGptq, 128, true, true, 8},
      PackedIntConfig{.layout = PackedIntConfig::Layout::kCompressedTensors, .bits = 8},
  };
  for (const CodedConfig& coded : all) {
    config.coded = coded;
    const auto read = parse_config(config_json(config), "config.json");
    ASSERT_TRUE(read.ok()) << to_string(read.error());
    EXPECT_EQ(read->coded, coded);
  }
}

using Cases = std::vector<std::pair<std::string, std::string>>;

// Each section with what its error says.
void expect_refused(const Cases& cases) {
  for (const auto& [section, expected] : cases) {
    const auto config = parse_config(config_text(section), "m/config.json");
    ASSERT_FALSE(config.ok()) << section;
    EXPECT_NE(to_string(config.error()).find("m/config.json: "), std::string::npos);
    EXPECT_NE(to_string(config.error()).find(expected), std::string::npos)
        << section << " gave " << to_string(config.error());
  }
}

TEST(CodedConfigTest, WhatStoresWeightsInAnotherWayIsRefusedByName) {
  const Cases cases = {
      {"5", "quantization_config: must be an object"},
      {"{}", "quantization_config.quant_method: missing"},
      {R"({"quant_method":"bitsandbytes","load_in_4bit":true})",
       "quantization_config.quant_method: 'bitsandbytes' is not supported; known are fp8 "
       "fbgemm_fp8 gptq awq compressed-tensors"},
      {R"({"quant_method":"fp8","fmt":"e5m2"})",
       "quantization_config.fmt: 'e5m2' is not supported; known is e4m3"},
      {R"({"quant_method":"fp8","weight_block_size":[128]})",
       "quantization_config.weight_block_size: must be two integers"},
      {R"({"quant_method":"fp8","weight_block_size":[128,0]})",
       "quantization_config.weight_block_size: must be two integers"},
      {R"({"quant_method":"compressed-tensors","format":"marlin-24"})",
       "quantization_config.format: 'marlin-24' is not supported; known are float-quantized "
       "int-quantized pack-quantized"},
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
  expect_refused(cases);
}

TEST(CodedConfigTest, SoIsWhatStoresWholeNumbersInAnotherWay) {
  const Cases cases = {
      {R"({"quant_method":"gptq","group_size":128})", "quantization_config.bits: missing"},
      {R"({"quant_method":"gptq","bits":3,"group_size":128})",
       "quantization_config.bits: only 4 and 8 are supported"},
      {R"({"quant_method":"awq","bits":8,"group_size":128})",
       "quantization_config.bits: only 4 is supported"},
      {R"({"quant_method":"gptq","bits":4})", "quantization_config.group_size: missing"},
      {R"({"quant_method":"gptq","bits":4,"group_size":0})",
       "quantization_config.group_size: must be -1 or above 0"},
      {R"({"quant_method":"gptq","bits":4,"group_size":128,"checkpoint_format":"marlin"})",
       "quantization_config.checkpoint_format: 'marlin' is not supported; known are gptq gptq_v2"},
      {R"({"quant_method":"gptq","bits":4,"group_size":128,"is_marlin_format":true})",
       "quantization_config.is_marlin_format: is not supported"},
      {R"({"quant_method":"gptq","bits":4,"group_size":128,"dynamic":{"+:.*down":{"bits":8}}})",
       "quantization_config.dynamic: modules with settings of their own"},
      {R"({"quant_method":"awq","bits":4,"group_size":128,"version":"gemv"})",
       "quantization_config.version: 'gemv' is not supported; known are gemm"},
      {R"({"quant_method":"awq","bits":4,"group_size":128,"zero_point":false})",
       "quantization_config.zero_point: only true is supported"},
      {compressed_as("pack-quantized", R"({"num_bits":2,"type":"int","strategy":"channel"})"),
       "quantization_config.config_groups.group_0.weights.num_bits: only 4 and 8 are supported"},
      {compressed_as("pack-quantized", R"({"num_bits":4,"type":"float","strategy":"channel"})"),
       "quantization_config.config_groups.group_0.weights.type: 'float' is not supported"},
      {compressed_as("pack-quantized", R"({"num_bits":4,"type":"int","strategy":"tensor"})"),
       "weights.strategy: 'tensor' is not supported; known are group channel"},
      {compressed_as("pack-quantized", R"({"num_bits":4,"type":"int","strategy":"group"})"),
       "weights.group_size: missing"},
      {compressed_as("int-quantized", R"({"num_bits":4,"type":"int","strategy":"channel"})"),
       "weights.num_bits: only 8 is supported"},
      {compressed_as("int-quantized", R"({"num_bits":8,"type":"float","strategy":"channel"})"),
       "weights.type: 'float' is not supported; known is int"},
      {compressed_as("int-quantized", R"({"num_bits":8,"type":"int","strategy":"group"})"),
       "weights.strategy: 'group' is not supported; known are tensor channel"},
      {compressed_as("int-quantized",
                     R"({"num_bits":8,"type":"int","strategy":"channel","symmetric":false})"),
       "weights.symmetric: only true is supported"},
  };
  expect_refused(cases);
}

// GPTQModel writes either name or both, AutoAWQ `version`; in letters of any size.
TEST(CodedConfigTest, TheFormOfFourBitsHasSeveralNamesWhichMustAgree) {
  const auto gptq = [](const std::string& more) {
    return R"({"quant_method":"gptq","bits":4,"group_size":128,)" + more + "}";
  };
  const auto awq = [](const std::string& more) {
    return R"({"quant_method":"awq","bits":4,"group_size":128,)" + more + "}";
  };
  const CodedConfig second = PackedIntConfig{PackedIntConfig::Layout::kGptq, 128};
  EXPECT_EQ(parse(gptq(R"("format":"gptq_v2")")), second);
  EXPECT_EQ(parse(gptq(R"("format":"GPTQ_V2","checkpoint_format":null)")), second);
  EXPECT_EQ(parse(gptq(R"("format":"gptq_v2","checkpoint_format":"gptq_v2")")), second);
  EXPECT_EQ(parse(awq(R"("format":"gemm","checkpoint_format":"gemm")")),
            CodedConfig(PackedIntConfig{PackedIntConfig::Layout::kAwq, 128}));
  expect_refused({
      {gptq(R"("format":"gptq_v2","checkpoint_format":"gptq")"),
       "quantization_config.format: is another than checkpoint_format"},
      {gptq(R"("format":"marlin")"),
       "quantization_config.format: 'marlin' is not supported; known are gptq gptq_v2"},
      {awq(R"("format":"gemv_fast")"),
       "quantization_config.format: 'gemv_fast' is not supported; known are gemm"},
      {awq(R"("version":"gemm","format":"gemv")"),
       "quantization_config.format: is another than version"},
  });
}

TEST(CodedConfigTest, GroupsOfTwoKindsAreRefused) {
  const auto config =
      parse_config(config_text(R"({"quant_method":"compressed-tensors","format":"float-quantized",
          "config_groups":{
            "a":{"weights":{"num_bits":8,"type":"float","strategy":"tensor"}},
            "b":{"weights":{"num_bits":8,"type":"float","strategy":"block",
                            "block_structure":[128,128]}}}})"),
                   "config.json");
  ASSERT_FALSE(config.ok());
  EXPECT_NE(to_string(config.error()).find("config_groups: groups that are stored in two ways"),
            std::string::npos);
}

}  // namespace
}  // namespace stemma
