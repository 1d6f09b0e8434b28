#include "pool/page_codec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/float16.h"

namespace stemma {

namespace {

constexpr std::array<std::string_view, 3> kNames = {"plain", "int8", "int4"};

std::int64_t rows_of(const KvShape& shape) {
  return shape.page_size * shape.token_elements() / shape.head_dim;
}

std::int64_t plain_layer_bytes(const KvShape& shape) {
  return shape.page_size * shape.token_bytes();
}

std::int64_t code_bytes(PageCodec codec, const KvShape& shape) {
  return codec == PageCodec::kInt8 ? shape.head_dim : (shape.head_dim + 1) / 2;
}

float to_float(float value) {
  return value;
}

template <typename Element>
Element from_float(float value) {
  if constexpr (std::is_same_v<Element, float>) return value;
  if constexpr (std::is_same_v<Element, BFloat16>) return to_bfloat16(value);
  if constexpr (std::is_same_v<Element, Float16>) return to_float16(value);
}

template <typename Element>
float load(const std::byte* row, std::int64_t i) {
  Element element;
  std::memcpy(&element, row + i * static_cast<std::int64_t>(sizeof(Element)), sizeof(Element));
  return to_float(element);
}

template <typename Element>
void store(float value, std::byte* row, std::int64_t i) {
  const auto element = from_float<Element>(value);
  std::memcpy(row + i * static_cast<std::int64_t>(sizeof(Element)), &element, sizeof(Element));
}

// Magnitudes of codes. A row of zeros, or of values too small to have a scale, has scale 0.
int code_max(PageCodec codec) {
  return codec == PageCodec::kInt8 ? 127 : 7;
}

int code_of(float value, float scale, int max) {
  if (scale == 0) return 0;
  return std::clamp(static_cast<int>(std::lrint(value / scale)), -max, max);
}

void put_code(PageCodec codec, int code, std::byte* codes, std::int64_t i) {
  const auto bits = static_cast<std::byte>(code);
  if (codec == PageCodec::kInt8) {
    codes[i] = bits;
  } else if (i % 2 == 0) {
    codes[i / 2] = bits & std::byte{15};
  } else {
    codes[i / 2] |= bits << 4;
  }
}

int get_code(PageCodec codec, const std::byte* codes, std::int64_t i) {
  if (codec == PageCodec::kInt8) return std::to_integer<std::int8_t>(codes[i]);
  const int half = (std::to_integer<int>(codes[i / 2]) >> (i % 2 == 0 ? 0 : 4)) & 15;
  return half >= 8 ? half - 16 : half;
}

// One row of a head: its elements in the pool's dtype, its scale, its codes.
template <typename Element>
bool try_encode_row(PageCodec codec, std::int64_t head_dim, const std::byte* row, std::byte* scale,
                    std::byte* codes) {
  float largest = 0;
  for (std::int64_t i = 0; i < head_dim; ++i) {
    const float value = load<Element>(row, i);
    if (!std::isfinite(value)) return false;
    largest = std::max(largest, std::fabs(value));
  }
  const int max = code_max(codec);
  const float row_scale = largest / static_cast<float>(max);
  std::memcpy(scale, &row_scale, sizeof(row_scale));
  for (std::int64_t i = 0; i < head_dim; ++i) {
    put_code(codec, code_of(load<Element>(row, i), row_scale, max), codes, i);
  }
  return true;
}

template <typename Element>
void decode_row(PageCodec codec, std::int64_t head_dim, const std::byte* scale,
                const std::byte* codes, std::byte* row) {
  constexpr float kMax = std::numeric_limits<float>::max();
  float row_scale = 0;
  std::memcpy(&row_scale, scale, sizeof(row_scale));
  for (std::int64_t i = 0; i < head_dim; ++i) {
    const float value = static_cast<float>(get_code(codec, codes, i)) * row_scale;
    store<Element>(std::clamp(value, -kMax, kMax), row,
                   i);  // the largest f32 may round past itself
  }
}

// Calls visit(Element{}) with the type of the dtype's elements.
template <typename Visit>
auto with_element(DType dtype, Visit visit) {
  switch (dtype) {
    case DType::kF16:
      return visit(Float16{});
    case DType::kBF16:
      return visit(BFloat16{});
    case DType::kF32:
    case DType::kFp8E4M3:  // scaled ones have no codec, which encoded_layer_bytes has checked
    case DType::kFp8E5M2:
    case DType::kInt8:
      break;
  }
  return visit(float{});
}

void check_sizes(PageCodec codec, const KvShape& shape, std::size_t layer_bytes,
                 std::size_t encoded_bytes) {
  STEMMA_CHECK_EQ(static_cast<std::int64_t>(layer_bytes), plain_layer_bytes(shape));
  STEMMA_CHECK_EQ(static_cast<std::int64_t>(encoded_bytes), encoded_layer_bytes(codec, shape));
}

}  // namespace

std::string_view page_codec_name(PageCodec codec) {
  return kNames[static_cast<std::size_t>(codec)];
}

std::optional<PageCodec> try_parse_page_codec(std::string_view name) {
  const auto* const found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<PageCodec>(found - kNames.begin());
}

std::int64_t encoded_layer_bytes(PageCodec codec, const KvShape& shape) {
  if (codec == PageCodec::kPlain) return plain_layer_bytes(shape);
  STEMMA_CHECK(shape.kind != KvKind::kDoubleSparse, "labels are kept as they are");
  STEMMA_CHECK(!is_scaled(shape.dtype), "codes are kept as they are");
  return rows_of(shape) * (kScaleBytes + code_bytes(codec, shape));
}

bool try_encode_layer(PageCodec codec, const KvShape& shape, std::span<const std::byte> layer,
                      std::span<std::byte> encoded) {
  check_sizes(codec, shape, layer.size(), encoded.size());
  if (codec == PageCodec::kPlain) {
    std::memcpy(encoded.data(), layer.data(), layer.size());
    return true;
  }
  const std::int64_t rows = rows_of(shape);
  const std::int64_t row_bytes = shape.head_dim * dtype_bytes(shape.dtype);
  std::byte* const codes = encoded.data() + rows * kScaleBytes;
  return with_element(shape.dtype, [&](auto element) {
    for (std::int64_t row = 0; row < rows; ++row) {
      const bool encodes = try_encode_row<decltype(element)>(
          codec, shape.head_dim, layer.data() + row * row_bytes, encoded.data() + row * kScaleBytes,
          codes + row * code_bytes(codec, shape));
      if (!encodes) return false;
    }
    return true;
  });
}

void decode_layer(PageCodec codec, const KvShape& shape, std::span<const std::byte> encoded,
                  std::span<std::byte> layer) {
  check_sizes(codec, shape, layer.size(), encoded.size());
  if (codec == PageCodec::kPlain) {
    std::memcpy(layer.data(), encoded.data(), layer.size());
    return;
  }
  const std::int64_t rows = rows_of(shape);
  const std::int64_t row_bytes = shape.head_dim * dtype_bytes(shape.dtype);
  const std::byte* const codes = encoded.data() + rows * kScaleBytes;
  with_element(shape.dtype, [&](auto element) {
    for (std::int64_t row = 0; row < rows; ++row) {
      decode_row<decltype(element)>(codec, shape.head_dim, encoded.data() + row * kScaleBytes,
                                    codes + row * code_bytes(codec, shape),
                                    layer.data() + row * row_bytes);
    }
  });
}

}  // namespace stemma
