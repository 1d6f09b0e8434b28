// WeightType: how a model's file stores its numbers. All of them convert to f32 exactly.
//
// Thread:     a plain enum.
// Memory:     none.
// Cost:       none.
// Not here:   KV formats (pool/), the file format (model/).
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

}  // namespace stemma
