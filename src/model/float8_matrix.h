// Float8Matrix: a matrix that a file stores as e4m3 codes, with scales in a tensor beside, and the
// bf16 values that they stand for.
//
// A value is code × scale, an f32 product rounded to the nearest bf16, ties to even: what
// DeepSeek's own conversion of its files gives.
//
// Thread:     immutable; widen spreads over a pool.
// Memory:     a few integers; borrows the scales as the file has them.
// Cost:       a look-up for each code, and 256 products for each tile of 64 outputs.
// Not here:   reading files (weight_files), which scales are meant (float8_config), computing in 8
//             bits.
#pragma once

#include "model/coded_matrix.h"

namespace stemma {

// The dtype of codes in a safetensors file.
inline constexpr char kFloat8Dtype[] = "F8_E4M3";

class Float8Matrix final : public CodedMatrix {
 public:
  // `codes` [outputs, inputs] are those of NAME, whose scales are the tensor NAME_scale_inv or
  // NAME_scale: one for each tile of `config`, one for each output, or a single one.
  static Result<Float8Matrix> open(const Float8Config& config, const TensorEntry& codes,
                                   ReadBeside read_beside);

  std::string name() const override { return name_; }
  std::int64_t outputs() const override { return outputs_; }
  std::int64_t inputs() const override { return inputs_; }
  WeightType type() const override { return WeightType::kBf16; }
  void widen(std::span<const std::byte> codes, std::span<std::byte> values,
             ThreadPool& pool) const override;

 private:
  Float8Matrix() = default;

  Status set_tiles(const Float8Config& config, const TensorEntry& scales);
  float scale(std::int64_t tile) const;
  void widen_strip(std::int64_t first, std::int64_t end, const std::byte* codes,
                   BFloat16* values) const;

  std::string name_;
  std::span<const std::byte> scales_;  // [tile_rows, tile_columns] of scale_type_
  WeightType scale_type_ = WeightType::kF32;
  std::int64_t outputs_ = 0;
  std::int64_t inputs_ = 0;
  std::int64_t tile_outputs_ = 0;
  std::int64_t tile_inputs_ = 0;
};

}  // namespace stemma
