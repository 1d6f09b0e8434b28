// Matrices in 8 bits: whatever their scales are of and wherever they lie, what is read is bf16 of
// code × scale; files that lack scales, or have others, are one line that names the tensor.
#include "model/float8_matrix.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "model/coded_fixture.h"

namespace stemma {
namespace {

constexpr char kMatrix[] = "model.layers.0.mlp.up_proj.weight";

// Matrices of 100 x 70, which no tile divides.
class Float8Files : public CodedFiles {
 protected:
  static TensorValues matrix(const std::string& name) {
    const std::vector<std::int64_t> shape = {100, 70};
    TensorValues values = {{name, shape}, random_tensor(name, shape, 7)};
    for (std::int64_t i = 0; i < 700; ++i) values.values[static_cast<std::size_t>(i)] *= 9.0f;
    return values;
  }

  // By the definition, one by one: codes times the scale that `scale_at` gives.
  template <typename ScaleAt>
  static void expect_values(const Read& got, const TensorValues& codes, ScaleAt scale_at) {
    EXPECT_EQ(got.dtype, "BF16");
    ASSERT_EQ(got.bytes.size(), codes.values.size() * 2);
    for (std::int64_t i = 0; i < std::ssize(codes.values); ++i) {
      BFloat16 value;
      std::memcpy(&value, &got.bytes[static_cast<std::size_t>(2 * i)], 2);
      const float exact = codes.values[static_cast<std::size_t>(i)] * scale_at(i / 70, i % 70);
      ASSERT_EQ(value.bits, to_bfloat16(exact).bits) << i;
    }
  }
};

TEST_F(Float8Files, AScaleServesATile) {
  const Float8Config config = {.tile_outputs = 32, .tile_inputs = 16};
  for (const WeightType type : {WeightType::kF32, WeightType::kBf16}) {
    for (const bool scales_first : {false, true}) {
      const auto both =
          to_float8(matrix(kMatrix), config, {.scale_type = type, .scales_first = scales_first});
      write(both);
      const TensorValues& codes = both[scales_first ? 1 : 0];
      const TensorValues& scales = both[scales_first ? 0 : 1];
      ASSERT_EQ(scales.spec.shape, (std::vector<std::int64_t>{4, 5}));
      expect_values(read(config)[kMatrix], codes, [&](std::int64_t output, std::int64_t input) {
        return scales.values[static_cast<std::size_t>(output / 32 * 5 + input / 16)];
      });
    }
  }
}

TEST_F(Float8Files, ATileMayBeHigherThanTheMatrix) {
  const Float8Config config = {.tile_outputs = 128, .tile_inputs = 128};
  const auto both = to_float8(matrix(kMatrix), config, {});
  write(both);
  expect_values(read(config)[kMatrix], both[0],
                [&](std::int64_t, std::int64_t) { return both[1].values[0]; });
}

TEST_F(Float8Files, AScaleServesAnOutput) {
  const auto both = to_float8(matrix(kMatrix), {}, {.scale_ending = "_scale", .by_output = true});
  write(both);
  expect_values(read(Float8Config{})[kMatrix], both[0], [&](std::int64_t output, std::int64_t) {
    return both[1].values[static_cast<std::size_t>(output)];
  });
}

TEST_F(Float8Files, OneScaleServesTheTensor) {
  auto both = to_float8(matrix(kMatrix), {}, {.scale_ending = "_scale"});
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{}, {1}, {1, 1}}) {
    both[1].spec.shape = shape;
    write(both);
    expect_values(read(Float8Config{})[kMatrix], both[0],
                  [&](std::int64_t, std::int64_t) { return both[1].values[0]; });
  }
}

TEST_F(Float8Files, ScalesMayLieInAnotherFile) {
  const Float8Config config = {.tile_outputs = 32, .tile_inputs = 16};
  const auto both = to_float8(matrix(kMatrix), config, {});
  write({both[0]}, "a.safetensors");
  write({both[1]}, "b.safetensors");
  const std::string index = std::string(R"({"weight_map":{")") + kMatrix +
                            R"(":"a.safetensors",")" + both[1].spec.name + R"(":"b.safetensors"}})";
  ASSERT_TRUE(write_file(directory_.file("model.safetensors.index.json"), index).ok());
  expect_values(read(config)[kMatrix], both[0], [&](std::int64_t output, std::int64_t input) {
    return both[1].values[static_cast<std::size_t>(output / 32 * 5 + input / 16)];
  });
}

TEST_F(Float8Files, WhatFollowsCodesIsReadAsItIs) {
  const Float8Config config = {.tile_outputs = 32, .tile_inputs = 16};
  auto tensors = to_float8(matrix(kMatrix), config, {});
  tensors.push_back(matrix("model.embed_tokens.weight"));
  write(tensors);
  const Read last = read(config)["model.embed_tokens.weight"];
  EXPECT_EQ(last.dtype, "F32");
  EXPECT_EQ(to_floats(WeightType::kF32, last.bytes), tensors[2].values);
}

TEST_F(Float8Files, CodesWithoutScalesAreNamed) {
  write({to_float8(matrix(kMatrix), {}, {})[0]});
  EXPECT_NE(error(Float8Config{})
                .find("model.safetensors: tensor 'model.layers.0.mlp.up_proj.weight': has "
                      "codes of 8 bits, and no scales with its name"),
            std::string::npos);
}

TEST_F(Float8Files, ScalesOfOtherTilesAreNamed) {
  write(to_float8(matrix(kMatrix), {.tile_outputs = 32, .tile_inputs = 16}, {}));
  EXPECT_NE(error(Float8Config{.tile_outputs = 16, .tile_inputs = 32})
                .find("expected 7 x 3 scales, found 20"),
            std::string::npos);
  EXPECT_NE(error(Float8Config{}).find("expected 1 x 1 scales, found 20"), std::string::npos);
}

TEST_F(Float8Files, CodesOfNoMatrixAreNamed) {
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{80}, {8, 5, 2}, {0, 70}, {70, 0}}) {
    auto both = to_float8(matrix(kMatrix), {}, {});
    both[0].spec.shape = shape;
    both[0].values.resize(shape.size() == 2 ? 0 : 80);
    write(both);
    const std::string said = error(Float8Config{});
    EXPECT_NE(said.find("up_proj.weight': codes of 8 bits that are no matrix"), std::string::npos)
        << said;
  }
}

// As many, turned round.
TEST_F(Float8Files, ScalesOfTurnedTilesAreNamed) {
  const Float8Config config = {.tile_outputs = 25, .tile_inputs = 14};  // 4 x 5
  auto both = to_float8(matrix(kMatrix), config, {});
  both[1].spec.shape = {5, 4};
  write(both);
  EXPECT_NE(error(config).find("expected 4 x 5 scales"), std::string::npos);
}

TEST_F(Float8Files, ScalesThatChangeBeforeTheyAreDigestedAreFound) {
  const Float8Config config = {.tile_outputs = 32, .tile_inputs = 16};
  auto both = to_float8(matrix(kMatrix), config, {});
  write(both);
  auto opened = WeightFiles::open(files_, directory_.path(), config);
  ASSERT_TRUE(opened.ok());
  std::fstream file(directory_.file("model.safetensors"),
                    std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-4, std::ios::end);  // in the last scale
  file.write("\x01", 1);
  file.close();
  const auto digest = opened->read_all(
      threads_, [](const TensorEntry&, std::span<const std::byte>) -> Status { return {}; });
  ASSERT_FALSE(digest.ok());
  EXPECT_EQ(digest.error().code, ErrorCode::kCorrupt);
  EXPECT_NE(to_string(digest.error()).find("up_proj.weight_scale_inv' changed while it was read"),
            std::string::npos);
}

}  // namespace
}  // namespace stemma
