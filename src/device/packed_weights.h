// PackedWeights: a weight matrix [n, k] (outputs by inputs) rearranged for streaming, in the type
// of its file or rounded to whole numbers of 8 or 4 bits.
//
// The n outputs are cut into panels of kPanelColumns. Weights as stored: a panel is [k,
// kPanelColumns], so that one step along k reads the weights of neighbouring outputs from
// consecutive addresses. The last panel is padded with zeros.
//
// Rounded: weight = code x scale, nearest even. Inputs are cut into groups of kGroupInputs, the
// last padded with zeros, and a group's codes lie in the order in which dot products of pairs of 16
// bits eat them:
//   int8  codes -127..127 (-128 where a file has chosen it), one scale (f32) for each output: its
//         largest magnitude / 127. A panel is its scales [kPanelColumns], then for each group
//         [kGroupInputs / 2, kPanelColumns, 2].
//   int4  codes -8..7, one scale (bf16) for each output and group. A panel is for each group its
//         scales [kPanelColumns], then words of 16 bits [kGroupInputs / 8, kPanelColumns, 2]: in
//         word [q, n, b], bits 4j..4j+3 are the code of input 8q + 2j + b.
//   int4_shifted
//         the same with codes that a file has chosen: weight = (code + shift) x scale, with a shift
//         from -7 to 8 (8 bits) for each output and group; a group's lie behind its scales.
//
// Thread:     immutable after pack; read from any thread.
// Memory:     n rounded up to kPanelColumns, times k: in the weights' own type, or k rounded up to
//             kGroupInputs in 8, 4.25 or 4.375 bits.
// Cost:       pack reads and writes every weight once, in parallel; quantise reads it three times,
//             from a cache but for the first.
// Not here:   the product (gemm.h), reading files (model/).
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "base/float16.h"
#include "base/thread_pool.h"
#include "device/buffer.h"
#include "device/weight_type.h"
#include "stemma/result.h"

namespace stemma {

// A matrix as a file holds it: row-major, unaligned if need be. Borrows its memory.
struct StoredMatrix {
  const void* weights = nullptr;  // [n, k]
  WeightType type = WeightType::kF32;
  std::int64_t n = 0;
  std::int64_t k = 0;
  // [n, groups of kGroupInputs] each: scales of which the weights are multiples, from -8 to 7 or,
  // with shifts, so many more; nullptr: there are none.
  const BFloat16* scales_or_null = nullptr;
  const std::int8_t* shifts_or_null = nullptr;
  // [n]: the same of int8, from -128 to 127.
  const float* output_scales_or_null = nullptr;
};

// How far rounded weights are from what was rounded: sums over weights.
struct RoundingError {
  double error_squares = 0;
  double weight_squares = 0;

  // |W' - W| / |W|, of the vectors of all weights; 0 where all are zero.
  double relative() const noexcept {
    return weight_squares == 0 ? 0 : std::sqrt(error_squares / weight_squares);
  }
  void add(const RoundingError& other) noexcept {
    error_squares += other.error_squares;
    weight_squares += other.weight_squares;
  }
};

class PackedWeights {
 public:
  // Outputs a panel holds. A multiple of every target's vector.
  static constexpr std::int64_t kPanelColumns = 64;
  // Inputs that share a scale, of int4 weights and of the activations that meet rounded weights.
  static constexpr std::int64_t kGroupInputs = 64;

  // Empty: n = k = 0.
  PackedWeights() = default;

  // Packs `weights` [n, k], row-major, unaligned if need be, which is not kept. kOutOfMemory if
  // there is no room. REQUIRES: n >= 1, k >= 1.
  static Result<PackedWeights> pack(const void* weights, WeightType type, std::int64_t n,
                                    std::int64_t k, ThreadPool& pool);

  // Rounds to `format` and packs; adds to `error` what that costs. Codes that belong to
  // scales of `stored`, if it has some of the format, are kept. As pack, and kUnsupported if a
  // weight or a scale is infinite or no number. REQUIRES: is_quantised(format); kInt4Shifted has
  // scales and shifts, kInt4 no shifts.
  static Result<PackedWeights> quantise(const StoredMatrix& stored, WeightFormat format,
                                        ThreadPool& pool, RoundingError& error);

  // Row `row` of the matrix in f32: a token's embedding where the embeddings are also the output
  // weights. REQUIRES: 0 <= row < n; out.size() == k.
  void unpack_row(std::int64_t row, std::span<float> out) const;

  std::int64_t n() const noexcept { return n_; }
  std::int64_t k() const noexcept { return k_; }
  // Of the file.
  WeightType type() const noexcept { return type_; }
  WeightFormat format() const noexcept { return format_; }
  std::int64_t panels() const noexcept { return (n_ + kPanelColumns - 1) / kPanelColumns; }
  std::int64_t groups() const noexcept { return (k_ + kGroupInputs - 1) / kGroupInputs; }
  std::size_t panel_bytes() const noexcept;
  std::size_t size_bytes() const noexcept {
    return static_cast<std::size_t>(panels()) * panel_bytes();
  }
  // [panels], each of panel_bytes()
  const std::byte* panel(std::int64_t index) const noexcept {
    return panels_.bytes() + static_cast<std::size_t>(index) * panel_bytes();
  }

 private:
  static Result<PackedWeights> allocate(const StoredMatrix& stored, WeightFormat format);
  void unpack_quantised(std::int64_t row, std::span<float> out) const;

  Buffer panels_;
  WeightType type_ = WeightType::kF32;
  WeightFormat format_ = WeightFormat::kF32;
  std::int64_t n_ = 0;
  std::int64_t k_ = 0;
};

// Where the parts of a panel of rounded weights lie.
struct QuantisedPanel {
  static constexpr std::size_t kColumns = std::size_t{PackedWeights::kPanelColumns};
  static constexpr std::size_t kInt8ScaleBytes = kColumns * 4;
  static constexpr std::size_t kInt8GroupBytes = kColumns * PackedWeights::kGroupInputs;
  static constexpr std::size_t kInt4ScaleBytes = kColumns * 2;

  // Of a group, with what belongs to it alone.
  static constexpr std::size_t group_bytes(WeightFormat format) noexcept {
    if (format == WeightFormat::kInt8) return kInt8GroupBytes;
    return kInt4ScaleBytes + shift_bytes(format) + kInt8GroupBytes / 2;
  }
  static constexpr std::size_t size_bytes(WeightFormat format, std::int64_t groups) noexcept {
    return begin_bytes(format) + static_cast<std::size_t>(groups) * group_bytes(format);
  }
  static constexpr std::size_t codes_at(WeightFormat format, std::int64_t group) noexcept {
    const std::size_t first = size_bytes(format, group);
    return format == WeightFormat::kInt8 ? first : first + kInt4ScaleBytes + shift_bytes(format);
  }
  // Of f32 for int8, the same for every group; of bf16 for 4 bits.
  static constexpr std::size_t scales_at(WeightFormat format, std::int64_t group) noexcept {
    return format == WeightFormat::kInt8 ? 0 : size_bytes(format, group);
  }
  // REQUIRES: format is kInt4Shifted.
  static constexpr std::size_t shifts_at(WeightFormat format, std::int64_t group) noexcept {
    return scales_at(format, group) + kInt4ScaleBytes;
  }

 private:
  static constexpr std::size_t begin_bytes(WeightFormat format) noexcept {
    return format == WeightFormat::kInt8 ? kInt8ScaleBytes : 0;
  }
  static constexpr std::size_t shift_bytes(WeightFormat format) noexcept {
    return format == WeightFormat::kInt4Shifted ? kColumns : 0;
  }
};

}  // namespace stemma
