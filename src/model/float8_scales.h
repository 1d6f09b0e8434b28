// Float8Scales: the scales of one matrix that a file stores as e4m3 codes, and the bf16 values that
// codes and scales stand for.
//
// A value is code × scale, an f32 product rounded to the nearest bf16, ties to even: what
// DeepSeek's own conversion of its files gives.
//
// Thread:     immutable; widen spreads over a pool.
// Memory:     the scales as the file has them.
// Cost:       a look-up for each code, and 256 products for each tile of 64 outputs.
// Not here:   reading files (weight_files), which scales are meant (float8_config), computing in 8
//             bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/float16.h"
#include "base/thread_pool.h"
#include "device/weight_type.h"
#include "model/float8_config.h"
#include "model/safetensors.h"
#include "stemma/result.h"

namespace stemma {

// The dtype of codes in a safetensors file.
inline constexpr char kFloat8Dtype[] = "F8_E4M3";

class Float8Scales {
 public:
  // Of `matrix` [outputs, inputs], whose scales are the tensor `scales` with these bytes: one for
  // each tile of `config`, one for each output, or a single one. The error is the reason alone.
  static Result<Float8Scales> make(const Float8Config& config, const TensorEntry& matrix,
                                   const TensorEntry& scales, std::vector<std::byte> bytes);

  // Writes what `codes` stand for. REQUIRES: both have as many elements as the matrix.
  void widen(std::span<const std::byte> codes, std::span<BFloat16> values, ThreadPool& pool) const;

  // As the file has them.
  std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  Float8Scales() = default;

  float scale(std::int64_t tile) const;
  void widen_strip(std::int64_t first, std::int64_t end, const std::byte* codes,
                   BFloat16* values) const;

  std::vector<std::byte> bytes_;  // [tile_rows, tile_columns]
  WeightType type_ = WeightType::kF32;
  std::int64_t outputs_ = 0;
  std::int64_t inputs_ = 0;
  std::int64_t tile_outputs_ = 0;
  std::int64_t tile_inputs_ = 0;
};

}  // namespace stemma
