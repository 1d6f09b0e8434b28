// Matrices in packed whole numbers: words as the formats define them, values of every layout, group
// and type of scale; codes that rounded weights can keep; files that lack what lies beside codes,
// or have another, are one line that names the tensor.
#include "model/packed_int_matrix.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "model/coded_fixture.h"

namespace stemma {
namespace {

using Layout = PackedIntConfig::Layout;

constexpr char kMatrix[] = "model.layers.0.mlp.up_proj.weight";
constexpr char kModule[] = "model.layers.0.mlp.up_proj";
constexpr std::int64_t kOutputs = 72;
constexpr std::int64_t kInputs = 200;

template <typename T>
TensorValues raw(const std::string& ending, const char* dtype, std::vector<std::int64_t> shape,
                 const std::vector<T>& values) {
  TensorValues tensor = {{kModule + ending, std::move(shape)}, {}};
  tensor.dtype = dtype;
  tensor.bytes.resize(values.size() * sizeof(T));
  std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}
TensorValues words(const std::string& ending, std::vector<std::int64_t> shape,
                   const std::vector<std::uint32_t>& values) {
  return raw(ending, "I32", std::move(shape), values);
}
TensorValues numbers(const std::string& ending, std::vector<std::int64_t> shape,
                     std::vector<float> values) {
  return {{kModule + ending, std::move(shape)}, std::move(values), WeightType::kF32};
}

class PackedIntFiles : public CodedFiles {
 protected:
  static TensorValues matrix() {
    const std::vector<std::int64_t> shape = {kOutputs, kInputs};
    return {{kMatrix, shape}, random_tensor(kMatrix, shape, 7)};
  }

  // The matrix's numbers, whose type is `type`.
  std::vector<float> numbers_of(const PackedIntConfig& config, WeightType type) {
    return read_numbers(config, kMatrix, type);
  }
};

// Inputs 0 to 7 of output o have the codes 0 to 7, less o of the zero points.
TEST_F(PackedIntFiles, AWordOfGptqHasEightInputs) {
  write({words(".qweight", {1, 8}, std::vector<std::uint32_t>(8, 0x76543210)),
         words(".qzeros", {1, 1}, {0x76543210}),
         numbers(".scales", {1, 8}, {1, 1, 1, 1, 1, 1, 1, 1})});
  std::vector<float> expected;
  for (int output = 0; output < 8; ++output) {
    for (int input = 0; input < 8; ++input) {
      expected.push_back(static_cast<float>(input - output));
    }
  }
  EXPECT_EQ(numbers_of({Layout::kGptq, 8, false}, WeightType::kF32), expected);
}

// Zero points 0, 0 and 2 to 7: as one number less 0x11111111, in which a 0 borrows from the next.
TEST_F(PackedIntFiles, TheFirstFormOfGptqHasAWordOfZeroPointsLessEightOnes) {
  write({words(".qweight", {1, 8}, std::vector<std::uint32_t>(8, 0x76543210)),
         words(".qzeros", {1, 1}, {0x76543200u - 0x11111111u}),
         numbers(".scales", {1, 8}, {1, 1, 1, 1, 1, 1, 1, 1})});
  const std::vector<float> first_inputs = {0, 0, -2, -3, -4, -5, -6, -7};
  const std::vector<float> numbers = numbers_of({Layout::kGptq, 8, true}, WeightType::kF32);
  for (std::size_t output = 0; output < 8; ++output) {
    EXPECT_EQ(numbers[output * 8], first_inputs[output]) << output;
  }
}

TEST_F(PackedIntFiles, TheSecondFormOfGptqHasZeroPointsAsTheyAre) {
  write({words(".qweight", {1, 8}, std::vector<std::uint32_t>(8, 0x76543210)),
         words(".qzeros", {1, 1}, {0x77777777}),
         numbers(".scales", {1, 8}, {1, 1, 1, 1, 1, 1, 1, 1})});
  EXPECT_EQ(numbers_of({Layout::kGptq, 8, false}, WeightType::kF32)[3], -4.0f);
  EXPECT_EQ(numbers_of({Layout::kGptq, 8, true}, WeightType::kF32)[3], -5.0f);
}

// Inputs 0 to 3 of every output have the codes 0, 1, 128 and 255, less a zero point of 128.
TEST_F(PackedIntFiles, AWordOfEightBitsHasFourInputs) {
  const std::vector<float> row = {-128, -127, 0, 127};
  std::vector<float> expected;
  for (int output = 0; output < 4; ++output) {
    for (const float value : row) expected.push_back(value * static_cast<float>(output + 1));
  }
  write({words(".qweight", {1, 4}, std::vector<std::uint32_t>(4, 0xFF800100)),
         words(".qzeros", {1, 1}, {0x7F7F7F7F}), numbers(".scales", {1, 4}, {1, 2, 3, 4})});
  const PackedIntConfig gptq = {.group_inputs = 4, .zeros_less_one = true, .bits = 8};
  EXPECT_EQ(numbers_of(gptq, WeightType::kF32), expected);
  write({words(".weight_packed", {4, 1}, std::vector<std::uint32_t>(4, 0xFF800100)),
         raw<std::int64_t>(".weight_shape", "I64", {2}, {4, 4}),
         numbers(".weight_scale", {4, 1}, {1, 2, 3, 4})});
  const PackedIntConfig packed = {
      .layout = Layout::kCompressedTensors, .is_symmetric = true, .bits = 8};
  EXPECT_EQ(numbers_of(packed, WeightType::kF32), expected);
}

// Outputs 0 to 7 of input 0 have the codes 0 to 7, and of input 1 the codes 8 to 15.
TEST_F(PackedIntFiles, AWordOfAwqHasEightOutputsInAnOrderOfItsOwn) {
  write({words(".qweight", {2, 1}, {0x75316420, 0xFDB9ECA8}),
         words(".qzeros", {1, 1}, {0x75316420}),
         numbers(".scales", {1, 8}, {1, 2, 3, 4, 5, 6, 7, 8})});
  std::vector<float> expected;
  for (int output = 0; output < 8; ++output) {
    expected.push_back(0);
    expected.push_back(static_cast<float>(8 * (output + 1)));
  }
  EXPECT_EQ(numbers_of({Layout::kAwq, 2, false}, WeightType::kF32), expected);
}

// Of a row of ten inputs two words are there, and six codes of them mean nothing.
TEST_F(PackedIntFiles, AWordOfCompressedTensorsHasEightInputs) {
  write({words(".weight_packed", {1, 2}, {0x76543210, 0x000000FE}),
         raw<std::int64_t>(".weight_shape", "I64", {2}, {1, 10}),
         numbers(".weight_scale", {1, 2}, {1, 10})});
  const std::vector<float> symmetric = {-8, -7, -6, -5, -4, -3, -2, -1, 60, 70};
  EXPECT_EQ(numbers_of({Layout::kCompressedTensors, 8, false, true}, WeightType::kF32), symmetric);
  write({words(".weight_packed", {1, 2}, {0x76543210, 0x000000FE}),
         raw<std::int64_t>(".weight_shape", "I64", {2}, {1, 10}),
         numbers(".weight_scale", {1, 2}, {1, 10}),
         words(".weight_zero_point", {1, 2}, {0x00000001, 0x0000000F})});
  const std::vector<float> moved = {-1, 0, 1, 2, 3, 4, 5, 6, -10, 0};
  EXPECT_EQ(numbers_of({Layout::kCompressedTensors, 8, false}, WeightType::kF32), moved);
}

TEST_F(PackedIntFiles, ValuesAreCodesLessZeroPointsTimesScales) {
  const std::vector<PackedIntConfig> configs = {{Layout::kGptq, 64, true},
                                                {Layout::kGptq, 0, false},
                                                {Layout::kAwq, 64, false},
                                                {Layout::kCompressedTensors, 32, false},
                                                {Layout::kCompressedTensors, 0, false},
                                                {Layout::kGptq, 64, true, false, 8},
                                                {Layout::kGptq, 0, false, false, 8},
                                                {Layout::kCompressedTensors, 64, false, false, 8}};
  for (const PackedIntConfig& config : configs) {
    for (const WeightType type : {WeightType::kF16, WeightType::kBf16, WeightType::kF32}) {
      for (const bool is_symmetric : {true, false}) {
        PackedIntConfig own = config;
        own.is_symmetric = is_symmetric;
        const PackedIntTensors coded = to_packed_int(matrix(), own, {type});
        write(coded.tensors);
        std::vector<float> expected;
        for (const float value : coded.values) expected.push_back(stored_value(value, type));
        ASSERT_EQ(numbers_of(own, type), expected);
      }
    }
  }
}

TEST_F(PackedIntFiles, InputsMayBeOfGroupsInAnotherOrder) {
  for (const Layout layout : {Layout::kGptq, Layout::kCompressedTensors}) {
    const PackedIntConfig config = {layout, 64, layout == Layout::kGptq};
    const PackedIntTensors coded =
        to_packed_int(matrix(), config, {.scale_type = WeightType::kF32, .is_reordered = true});
    write(coded.tensors);
    EXPECT_EQ(numbers_of(config, WeightType::kF32), coded.values);
    EXPECT_EQ(open(config).kept_format(kMatrix), std::nullopt);
  }
}

// Groups of 64 inputs, of which rounded weights share a scale, or of a multiple.
TEST_F(PackedIntFiles, CodesOfWholeGroupsAreKept) {
  constexpr auto kInt4 = WeightFormat::kInt4;
  constexpr auto kShifted = WeightFormat::kInt4Shifted;
  struct Case {
    PackedIntConfig config;
    std::optional<WeightFormat> kept;
  };
  const std::vector<Case> cases = {
      {{Layout::kGptq, 64, true, true}, kInt4},
      {{Layout::kGptq, 128, false, true}, kInt4},
      {{Layout::kGptq, 0, true, true}, kInt4},
      {{Layout::kAwq, 128, false, true}, kInt4},
      {{Layout::kCompressedTensors, 128, false, true}, kInt4},
      {{Layout::kGptq, 64, true, false}, kShifted},
      {{Layout::kAwq, 128, false, false}, kShifted},
      {{Layout::kCompressedTensors, 0, false, false}, kShifted},
      {{Layout::kCompressedTensors, 32, false, true}, std::nullopt},
      {{Layout::kGptq, 96, true, true}, std::nullopt},
  };
  for (const Case& one : cases) {
    write(to_packed_int(matrix(), one.config, {}).tensors);
    const WeightFiles opened = open(one.config);
    EXPECT_EQ(opened.kept_format(kMatrix), one.kept) << one.config.group_inputs;
    const KeptGroups kept = opened.kept_groups(kMatrix);
    EXPECT_EQ(kept.scales.size(), one.kept.has_value() ? kOutputs * 4 : 0);
    EXPECT_EQ(kept.shifts.size(), one.kept == kShifted ? kOutputs * 4 : 0);
  }
  EXPECT_EQ(open(cases.back().config).kept_format("model.embed_tokens.weight"), std::nullopt);
}

TEST_F(PackedIntFiles, CodesOfEightBitsAreKeptWhereAnOutputIsOneSymmetricGroup) {
  const auto kept = [&](const PackedIntConfig& config) {
    write(to_packed_int(matrix(), config, {}).tensors);
    return open(config).kept_format(kMatrix);
  };
  const PackedIntConfig gptq = {Layout::kGptq, 0, true, true, 8};
  EXPECT_EQ(kept(gptq), WeightFormat::kInt8);
  EXPECT_EQ(open(gptq).kept_groups(kMatrix).output_scales.size(), kOutputs);
  EXPECT_EQ(kept({Layout::kGptq, 256, true, true, 8}), WeightFormat::kInt8) << "more than it has";
  EXPECT_EQ(kept({Layout::kCompressedTensors, 0, false, true, 8}), WeightFormat::kInt8);
  EXPECT_EQ(kept({Layout::kGptq, 128, true, true, 8}), std::nullopt);
  EXPECT_EQ(kept({Layout::kGptq, 0, true, false, 8}), std::nullopt);
  EXPECT_EQ(kept({Layout::kCompressedTensors, 0, false, false, 8}), std::nullopt);
}

TEST_F(PackedIntFiles, ScalesAndShiftsOfCodesThatAreKeptStandForWholeGroups) {
  const PackedIntConfig config = {Layout::kGptq, 128, false};
  const PackedIntTensors coded = to_packed_int(matrix(), config, {.scale_type = WeightType::kBf16});
  write(coded.tensors);
  const KeptGroups kept = open(config).kept_groups(kMatrix);  // [outputs, 4]
  const TensorValues& zeros = coded.tensors[2];               // [2, outputs / 8] words
  const TensorValues& scales = coded.tensors[3];              // [2, outputs]
  ASSERT_EQ(scales.spec.name, std::string(kModule) + ".scales");
  for (std::size_t output = 0; output < kOutputs; ++output) {
    for (std::size_t group = 0; group < 4; ++group) {
      const std::size_t at = group / 2 * kOutputs + output;
      EXPECT_EQ(to_float(kept.scales[output * 4 + group]), scales.values[at]);
      const int zero = static_cast<int>(zeros.bytes[at / 2]) >> (4 * (at % 2)) & 0xF;
      EXPECT_EQ(kept.shifts[output * 4 + group], 8 - zero);
    }
  }
}

TEST_F(PackedIntFiles, WhatIsMissingBesideCodesIsNamed) {
  const std::vector<std::pair<Layout, std::string>> cases = {
      {Layout::kGptq, ".qzeros"},
      {Layout::kGptq, ".scales"},
      {Layout::kAwq, ".qzeros"},
      {Layout::kAwq, ".scales"},
      {Layout::kCompressedTensors, ".weight_scale"},
      {Layout::kCompressedTensors, ".weight_shape"},
  };
  for (const auto& [layout, missing] : cases) {
    const PackedIntConfig config = {layout, 64, false};
    std::vector<TensorValues> tensors = to_packed_int(matrix(), config, {}).tensors;
    std::erase_if(tensors, [&](const auto& tensor) { return tensor.spec.name.ends_with(missing); });
    write(tensors);
    const std::string said = error(config);
    EXPECT_NE(said.find("model.safetensors: tensor 'model.layers.0.mlp.up_proj."),
              std::string::npos)
        << said;
    EXPECT_NE(said.find("has codes in words, and no "), std::string::npos) << missing << said;
  }
}

TEST_F(PackedIntFiles, WhatLiesBesideCodesInAnotherFormIsNamed) {
  const PackedIntConfig gptq = {Layout::kGptq, 64, true};
  const auto said_of = [&](const PackedIntConfig& config, const std::string& ending, auto change) {
    std::vector<TensorValues> tensors = to_packed_int(matrix(), config, {}).tensors;
    for (TensorValues& tensor : tensors) {
      if (tensor.spec.name.ends_with(ending)) change(tensor);
    }
    write(tensors);
    return error(config);
  };
  const auto turn = [](TensorValues& tensor) {
    std::swap(tensor.spec.shape[0], tensor.spec.shape[1]);
  };
  EXPECT_NE(said_of(gptq, ".scales", turn).find("expected 4 x 72 scales, found 72 x 4"),
            std::string::npos);
  EXPECT_NE(said_of(gptq, ".qzeros", turn).find("expected 4 x 9 zero points, found 9 x 4"),
            std::string::npos);
  const auto of_floats = [](TensorValues& tensor) { tensor.dtype = "F32"; };
  EXPECT_NE(said_of(gptq, ".qzeros", of_floats).find("zero points of dtype F32, not I32"),
            std::string::npos);
  const auto beyond = [](TensorValues& tensor) { tensor.bytes[4] = std::byte{4}; };
  EXPECT_NE(said_of(gptq, ".g_idx", beyond).find("an input of a group that is none of 4"),
            std::string::npos);
  const auto negative = [](TensorValues& tensor) { tensor.bytes[7] = std::byte{0x80}; };
  EXPECT_NE(said_of(gptq, ".g_idx", negative).find("an input of a group that is none of 4"),
            std::string::npos);
  const PackedIntConfig packed = {Layout::kCompressedTensors, 64, false};
  const auto wider = [](TensorValues& tensor) { tensor.bytes[8] = std::byte{201}; };
  EXPECT_NE(said_of(packed, ".weight_shape", wider)
                .find("a shape of 72 x 201 that its words do not have"),
            std::string::npos);
  EXPECT_NE(said_of(packed, ".weight_zero_point", turn).find("expected 9 x 4 zero points"),
            std::string::npos);
}

TEST_F(PackedIntFiles, AMatrixThatIsThereTwiceIsNamed) {
  const PackedIntConfig config = {Layout::kGptq, 64, true};
  std::vector<TensorValues> tensors = to_packed_int(matrix(), config, {}).tensors;
  tensors.push_back(matrix());
  write(tensors);
  EXPECT_NE(error(config).find("up_proj.weight' is also there as codes"), std::string::npos);
}

TEST_F(PackedIntFiles, WhatLiesBesideCodesAndChangesBeforeItIsDigestedIsFound) {
  const PackedIntConfig config = {Layout::kGptq, 64, true};
  write(to_packed_int(matrix(), config, {}).tensors);
  WeightFiles opened = open(config);
  std::fstream file(directory_.file("model.safetensors"),
                    std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-2, std::ios::end);  // in the last scale
  file.write("\x01", 1);
  file.close();
  const auto digest = opened.read_all(
      threads_, [](const TensorEntry&, std::span<const std::byte>) -> Status { return {}; });
  ASSERT_FALSE(digest.ok());
  EXPECT_EQ(digest.error().code, ErrorCode::kCorrupt);
  EXPECT_NE(to_string(digest.error()).find("up_proj.scales' changed while it was read"),
            std::string::npos);
}

}  // namespace
}  // namespace stemma
