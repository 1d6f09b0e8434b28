// PackedIntMatrix: a matrix that a file stores as codes of 4 or 8 bits packed in words, with scales
// and zero points in tensors beside, and the values that they stand for.
//
// A value is (code - zero point) × scale, an f32 product rounded to the type of the scales, to
// nearest even: what the libraries that write such files compute in that type. Of a matrix
// "X.weight" GPTQ and AWQ have the tensors X.qweight, X.qzeros and X.scales, compressed-tensors
// X.weight_packed, X.weight_shape, X.weight_scale and, where groups are not symmetric,
// X.weight_zero_point; a tensor X.g_idx or X.weight_g_idx says which group an input is of, where
// groups are not inputs in their order.
//
// Where groups of 4 bits are whole ones of PackedWeights, codes less 8 are those of rounded
// weights, and 8 less the zero point is their shift; so are codes of 8 bits less 128 where an
// output is one symmetric group.
//
// Thread:     immutable; widen spreads over a pool.
// Memory:     4 bytes an input; borrows scales and zero points as the file has them.
// Cost:       2 ns a value and thread, of AWQ 3; packing what comes of it costs 1.5 more. Of 8 bits
//             256 products a group besides.
// Not here:   reading files (weight_files), how words are packed (packed_int_config), products with
//             codes (device/).
#pragma once

#include "model/coded_matrix.h"

namespace stemma {

// Whether `tensor` is one of codes in that layout.
bool has_packed_codes(const PackedIntConfig& config, const TensorEntry& tensor);

class PackedIntMatrix final : public CodedMatrix {
 public:
  // REQUIRES: has_packed_codes(config, codes).
  static Result<PackedIntMatrix> open(const PackedIntConfig& config, const TensorEntry& codes,
                                      ReadBeside read_beside);

  std::string name() const override { return name_; }
  std::int64_t outputs() const override { return outputs_; }
  std::int64_t inputs() const override { return inputs_; }
  WeightType type() const override { return scale_type_; }
  void widen(std::span<const std::byte> codes, std::span<std::byte> values,
             ThreadPool& pool) const override;
  std::optional<WeightFormat> kept_format() const override { return kept_format_; }
  KeptGroups kept_groups() const override;

 private:
  // How many words lie between neighbours.
  struct Strides {
    std::int64_t output = 0;
    std::int64_t input = 0;  // of as many as a word holds, where it holds inputs
  };

  PackedIntMatrix() = default;

  Status set_extents(const TensorEntry& codes, const BesideTensor& shape);
  Status set_groups(std::int64_t group_inputs, const BesideTensor& order);
  Status set_scales(const BesideTensor& scales);
  Status set_zeros(const BesideTensor& zeros);
  std::optional<WeightFormat> format_that_keeps() const;
  bool is_symmetric() const;

  bool packs_outputs() const { return config_.layout == PackedIntConfig::Layout::kAwq; }
  std::uint32_t mask() const { return (1u << config_.bits) - 1; }
  float scale(std::int64_t output, std::int64_t group) const;
  int zero(std::int64_t output, std::int64_t group) const;
  Strides strides() const;

  void unpack(std::int64_t output, std::int64_t first, std::int64_t count, const std::byte* codes,
              std::uint8_t* unpacked) const;
  template <typename T>
  void widen_all(std::span<const std::byte> codes, T* values, ThreadPool& pool) const;
  template <typename T>
  void widen_strip(std::int64_t first, std::span<const std::byte> codes, T* values) const;
  template <typename T>
  void fill_table(std::int64_t output, T* table) const;

  std::string name_;
  PackedIntConfig config_;
  std::int64_t outputs_ = 0;
  std::int64_t inputs_ = 0;
  std::int64_t groups_ = 0;             // of one output
  std::vector<std::int32_t> group_of_;  // [inputs]
  std::span<const std::byte> scales_;   // of scale_type_
  std::span<const std::byte> zeros_;    // words; empty: all are the middle one
  WeightType scale_type_ = WeightType::kF16;
  std::optional<WeightFormat> kept_format_;
};

}  // namespace stemma
