// WeightType: how a model's file stores its numbers; all of them convert to f32 exactly.
// WeightFormat: how packed weights hold them: as the file does, or rounded to fewer bits.
//
// Thread:     plain enums.
// Memory:     none.
// Cost:       none.
// Not here:   KV formats (pool/), the file format (model/), how numbers are rounded
// (packed_weights.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace stemma {

enum class WeightType : std::uint8_t { kF32, kF16, kBf16 };

constexpr std::size_t weight_type_bytes(WeightType type) noexcept {
  return type == WeightType::kF32 ? 4 : 2;
}

constexpr std::string_view weight_type_name(WeightType type) noexcept {
  if (type == WeightType::kF32) return "f32";
  return type == WeightType::kF16 ? "f16" : "bf16";
}

// kInt4Shifted: 4 bits whose groups have zero points of their own.
enum class WeightFormat : std::uint8_t { kF32, kF16, kBf16, kInt8, kInt4, kInt4Shifted };

constexpr WeightFormat weight_format(WeightType type) noexcept {
  if (type == WeightType::kF32) return WeightFormat::kF32;
  return type == WeightType::kF16 ? WeightFormat::kF16 : WeightFormat::kBf16;
}

constexpr bool is_quantised(WeightFormat format) noexcept {
  return format == WeightFormat::kInt8 || format == WeightFormat::kInt4 ||
         format == WeightFormat::kInt4Shifted;
}

constexpr std::string_view weight_format_name(WeightFormat format) noexcept {
  switch (format) {
    case WeightFormat::kF32:
      return "f32";
    case WeightFormat::kF16:
      return "f16";
    case WeightFormat::kBf16:
      return "bf16";
    case WeightFormat::kInt8:
      return "int8";
    case WeightFormat::kInt4:
      return "int4";
    case WeightFormat::kInt4Shifted:
      return "int4_shifted";
  }
  return "";
}

}  // namespace stemma
