// PageCodec: sizes; plain is exact; int8 and int4 stay within their stated error for rows of every
// size of numbers and every dtype; each row is encoded by itself; what has no scale is refused.
#include "pool/page_codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/float16.h"
#include "base/prng.h"

namespace stemma {
namespace {

constexpr std::uint64_t kSeed = 20260304;

KvShape shape_of(DType dtype, std::int64_t head_dim) {
  return {
      .layers = 1, .pages = 1, .page_size = 3, .heads = 2, .head_dim = head_dim, .dtype = dtype};
}

// The values of a layer in f32, and its bytes in the shape's dtype.
struct Layer {
  explicit Layer(const KvShape& of)
      : shape(of), bytes(static_cast<std::size_t>(encoded_layer_bytes(PageCodec::kPlain, of))) {}

  std::size_t elements() const { return static_cast<std::size_t>(12 * shape.head_dim); }

  void set(std::size_t i, float value) {
    if (shape.dtype == DType::kF32) std::memcpy(&bytes[4 * i], &value, 4);
    if (shape.dtype == DType::kBF16) put(i, to_bfloat16(value).bits);
    if (shape.dtype == DType::kF16) put(i, to_float16(value).bits);
  }
  float get(std::size_t i) const {
    float value = 0;
    std::uint16_t bits = 0;
    if (shape.dtype == DType::kF32) {
      std::memcpy(&value, &bytes[4 * i], 4);
      return value;
    }
    std::memcpy(&bits, &bytes[2 * i], 2);
    return shape.dtype == DType::kBF16 ? to_float(BFloat16{bits}) : to_float(Float16{bits});
  }

  KvShape shape;
  std::vector<std::byte> bytes;

 private:
  void put(std::size_t i, std::uint16_t bits) { std::memcpy(&bytes[2 * i], &bits, 2); }
};

Layer random_layer(const KvShape& shape, Prng& prng) {
  Layer layer(shape);
  double magnitude = 1;
  for (std::size_t i = 0; i < layer.elements(); ++i) {
    if (i % static_cast<std::size_t>(shape.head_dim) == 0) {
      magnitude = std::ldexp(1.0, static_cast<int>(prng.below(24)) - 12);
    }
    layer.set(i, static_cast<float>((prng.unit() * 2 - 1) * magnitude));
  }
  return layer;
}

Layer decoded(PageCodec codec, const Layer& layer) {
  std::vector<std::byte> encoded(static_cast<std::size_t>(encoded_layer_bytes(codec, layer.shape)));
  EXPECT_TRUE(try_encode_layer(codec, layer.shape, layer.bytes, encoded));
  Layer back(layer.shape);
  decode_layer(codec, layer.shape, encoded, back.bytes);
  return back;
}

// The error bound of the header, with the last place of the dtype and what f32 adds to it.
void expect_near(const Layer& layer, const Layer& back, PageCodec codec) {
  const double share = codec == PageCodec::kInt8 ? 1.0 / 254 : 1.0 / 14;
  const double half_place = layer.shape.dtype == DType::kBF16  ? 0x1p-9
                            : layer.shape.dtype == DType::kF16 ? 0x1p-12
                                                               : 0x1p-22;
  const auto head_dim = static_cast<std::size_t>(layer.shape.head_dim);
  for (std::size_t row = 0; row < layer.elements(); row += head_dim) {
    double largest = 0;
    for (std::size_t i = row; i < row + head_dim; ++i) {
      largest = std::max(largest, std::fabs(static_cast<double>(layer.get(i))));
    }
    const double bound = largest * (share * (1 + 0x1p-20) + half_place) + 0x1p-25;
    for (std::size_t i = row; i < row + head_dim; ++i) {
      const double error = std::fabs(static_cast<double>(back.get(i)) - layer.get(i));
      ASSERT_LE(error, bound) << i;
    }
  }
}

TEST(PageCodec, Sizes) {
  const KvShape shape = shape_of(DType::kBF16, 64);
  EXPECT_EQ(encoded_layer_bytes(PageCodec::kPlain, shape), 12 * 128);
  EXPECT_EQ(encoded_layer_bytes(PageCodec::kInt8, shape), 12 * (4 + 64));
  EXPECT_EQ(encoded_layer_bytes(PageCodec::kInt4, shape), 12 * (4 + 32));
  EXPECT_EQ(encoded_layer_bytes(PageCodec::kInt4, shape_of(DType::kBF16, 5)), 12 * (4 + 3));
}

TEST(PageCodec, Names) {
  for (const PageCodec codec : {PageCodec::kPlain, PageCodec::kInt8, PageCodec::kInt4}) {
    EXPECT_EQ(try_parse_page_codec(page_codec_name(codec)), codec);
  }
  EXPECT_EQ(try_parse_page_codec("int16"), std::nullopt);
}

TEST(PageCodec, StaysWithinItsError) {
  SCOPED_TRACE(kSeed);
  Prng prng(kSeed);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const std::int64_t head_dim : {1, 5, 64, 128}) {
      for (int trial = 0; trial < 20; ++trial) {
        const Layer layer = random_layer(shape_of(dtype, head_dim), prng);
        EXPECT_EQ(decoded(PageCodec::kPlain, layer).bytes, layer.bytes);
        expect_near(layer, decoded(PageCodec::kInt8, layer), PageCodec::kInt8);
        expect_near(layer, decoded(PageCodec::kInt4, layer), PageCodec::kInt4);
      }
    }
  }
}

TEST(PageCodec, TheLargestAndSmallestNumbersStayFinite) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const PageCodec codec : {PageCodec::kInt8, PageCodec::kInt4}) {
      const float most = dtype == DType::kF16    ? 65504.0f
                         : dtype == DType::kBF16 ? 0x1.FEp127f
                                                 : std::numeric_limits<float>::max();
      Layer layer(shape_of(dtype, 4));
      for (std::size_t i = 0; i < layer.elements(); ++i) layer.set(i, i % 2 == 0 ? most : -most);
      layer.set(4, std::numeric_limits<float>::denorm_min());
      for (const std::size_t i : {5u, 6u, 7u}) layer.set(i, 0);
      const Layer back = decoded(codec, layer);
      for (std::size_t i = 0; i < layer.elements(); ++i) {
        ASSERT_TRUE(std::isfinite(back.get(i))) << i;
        ASSERT_NEAR(back.get(i) / most, layer.get(i) / most, 1e-6) << i;
      }
    }
  }
}

// And no negative ones: unwritten slots of a page come back as they were.
TEST(PageCodec, ARowOfZerosIsZeros) {
  for (const PageCodec codec : {PageCodec::kInt8, PageCodec::kInt4}) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      const Layer zeros(shape_of(dtype, 20));
      EXPECT_EQ(decoded(codec, zeros).bytes, zeros.bytes) << page_codec_name(codec);
    }
  }
}

TEST(PageCodec, ARowDoesNotDependOnOthers) {
  SCOPED_TRACE(kSeed);
  Prng prng(kSeed);
  const Layer layer = random_layer(shape_of(DType::kBF16, 64), prng);
  Layer other = layer;
  for (std::size_t i = 0; i < other.elements(); ++i) {
    if (i / 64 != 3) other.set(i, 1000.0f);
  }
  const Layer back = decoded(PageCodec::kInt4, layer);
  const Layer other_back = decoded(PageCodec::kInt4, other);
  for (std::size_t i = 3 * 64; i < 4 * 64; ++i) EXPECT_EQ(back.get(i), other_back.get(i));
}

TEST(PageCodec, WhatHasNoScaleIsRefused) {
  SCOPED_TRACE(kSeed);
  Prng prng(kSeed);
  for (const float wrong :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()}) {
    for (const PageCodec codec : {PageCodec::kInt8, PageCodec::kInt4}) {
      Layer layer = random_layer(shape_of(DType::kBF16, 64), prng);
      layer.set(700, wrong);
      std::vector<std::byte> encoded(
          static_cast<std::size_t>(encoded_layer_bytes(codec, layer.shape)));
      EXPECT_FALSE(try_encode_layer(codec, layer.shape, layer.bytes, encoded));
    }
  }
}

}  // namespace
}  // namespace stemma
