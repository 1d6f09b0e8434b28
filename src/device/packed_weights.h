// PackedWeights: a weight matrix [n, k] (outputs by inputs) rearranged for streaming, in its own
// type.
//
// The n outputs are cut into panels of kPanelColumns; a panel is [k, kPanelColumns], so that one
// step along k reads the weights of neighbouring outputs from consecutive addresses. The last panel
// is padded with zeros.
//
// Thread:     immutable after pack; read from any thread.
// Memory:     n rounded up to kPanelColumns, times k, in the weights' own type.
// Cost:       pack reads and writes every weight once, in parallel.
// Not here:   the product (gemm.h), reading files (model/).
#pragma once

#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "device/buffer.h"
#include "device/weight_type.h"
#include "stemma/result.h"

namespace stemma {

class PackedWeights {
 public:
  // Outputs a panel holds. A multiple of every target's vector.
  static constexpr std::int64_t kPanelColumns = 64;

  // Empty: n = k = 0.
  PackedWeights() = default;

  // Packs `weights` [n, k], row-major, unaligned if need be, which is not kept. kOutOfMemory if
  // there is no room. REQUIRES: n >= 1, k >= 1.
  static Result<PackedWeights> pack(const void* weights, WeightType type, std::int64_t n,
                                    std::int64_t k, ThreadPool& pool);

  // Row `row` of the matrix in f32: a token's embedding where the embeddings are also the output
  // weights. REQUIRES: 0 <= row < n; out.size() == k.
  void unpack_row(std::int64_t row, std::span<float> out) const;

  std::int64_t n() const noexcept { return n_; }
  std::int64_t k() const noexcept { return k_; }
  WeightType type() const noexcept { return type_; }
  std::int64_t panels() const noexcept { return (n_ + kPanelColumns - 1) / kPanelColumns; }
  std::size_t panel_bytes() const noexcept {
    return static_cast<std::size_t>(k_ * kPanelColumns) * weight_type_bytes(type_);
  }
  // [panels, k, kPanelColumns]
  const std::byte* panel(std::int64_t index) const noexcept {
    return panels_.bytes() + static_cast<std::size_t>(index) * panel_bytes();
  }

 private:
  Buffer panels_;
  WeightType type_ = WeightType::kF32;
  std::int64_t n_ = 0;
  std::int64_t k_ = 0;
};

}  // namespace stemma
