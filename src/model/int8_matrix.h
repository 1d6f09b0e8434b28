// Int8Matrix: a matrix that a file stores as whole numbers of 8 bits, with scales in a tensor
// beside, and the values that they stand for.
//
// A value is code × scale, an f32 product rounded to the type of the scales, to nearest even. Codes
// are those of rounded weights, which have a scale for each output too.
//
// Thread:     immutable; widen spreads over a pool.
// Memory:     a few integers; borrows the scales as the file has them.
// Cost:       a look-up for each code, and 256 products for each output.
// Not here:   reading files (weight_files), products with codes (device/).
#pragma once

#include "model/coded_matrix.h"

namespace stemma {

// The dtype of codes in a safetensors file.
inline constexpr char kInt8Dtype[] = "I8";

class Int8Matrix final : public CodedMatrix {
 public:
  // `codes` [outputs, inputs] are those of NAME, whose scales are the tensor NAME_scale: one for
  // each output, or a single one.
  static Result<Int8Matrix> open(const Int8Config& config, const TensorEntry& codes,
                                 ReadBeside read_beside);

  std::string name() const override { return name_; }
  std::int64_t outputs() const override { return outputs_; }
  std::int64_t inputs() const override { return inputs_; }
  WeightType type() const override { return scale_type_; }
  void widen(std::span<const std::byte> codes, std::span<std::byte> values,
             ThreadPool& pool) const override;
  std::optional<WeightFormat> kept_format() const override { return WeightFormat::kInt8; }
  KeptGroups kept_groups() const override { return {.output_scales = scales_}; }

 private:
  Int8Matrix() = default;

  std::string name_;
  std::vector<float> scales_;  // [outputs]
  WeightType scale_type_ = WeightType::kBf16;
  std::int64_t outputs_ = 0;
  std::int64_t inputs_ = 0;
};

}  // namespace stemma
