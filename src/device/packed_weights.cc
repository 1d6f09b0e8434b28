// Packing goes panel by panel; the kernels are in packed_weights_cpu.cc.
#include "device/packed_weights.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/float16.h"
#include "base/math.h"
#include "device/packed_weights_kernel.h"

namespace stemma {

namespace {

constexpr std::int64_t kColumns = PackedWeights::kPanelColumns;

float value_at(const std::byte* from, WeightType type) {
  if (type == WeightType::kF32) {
    float value = 0;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof(bits));
  return type == WeightType::kF16 ? to_float(Float16{bits}) : to_float(BFloat16{bits});
}

}  // namespace

Result<PackedWeights> PackedWeights::allocate(const StoredMatrix& stored, WeightFormat format) {
  const std::int64_t n = stored.n;
  const std::int64_t k = stored.k;
  STEMMA_CHECK(n >= 1 && k >= 1, "a weight matrix has outputs and inputs");
  const std::int64_t weights_max =
      std::numeric_limits<std::int64_t>::max() / static_cast<std::int64_t>(sizeof(float));
  if (k > weights_max / round_up(n, kColumns)) {
    return Error{ErrorCode::kTooLarge, "a weight matrix of " + std::to_string(n) + " x " +
                                           std::to_string(k) + " cannot be addressed"};
  }
  PackedWeights packed;
  packed.type_ = stored.type;
  packed.format_ = format;
  packed.n_ = n;
  packed.k_ = k;
  STEMMA_ASSIGN_OR_RETURN(packed.panels_, Buffer::allocate(packed.size_bytes()));
  return Result<PackedWeights>(std::move(packed));
}

std::size_t PackedWeights::panel_bytes() const noexcept {
  if (is_quantised(format_)) return QuantisedPanel::size_bytes(format_, groups());
  return static_cast<std::size_t>(k_ * kPanelColumns) * weight_type_bytes(type_);
}

Result<PackedWeights> PackedWeights::pack(const void* weights, WeightType type, std::int64_t n,
                                          std::int64_t k, ThreadPool& pool) {
  STEMMA_ASSIGN_OR_RETURN(PackedWeights packed,
                          allocate({weights, type, n, k}, weight_format(type)));
  const auto panels = packed.panels();
  const auto* const source = static_cast<const std::byte*>(weights);
  const PackKernel kernel = pack_kernel();
  pool.run(panels, [&](std::int64_t index, int) {
    PackTask task;
    task.word_bytes = weight_type_bytes(type);
    task.weights = source + static_cast<std::size_t>(index * kColumns * k) * task.word_bytes;
    task.rows = std::min(kColumns, n - index * kColumns);
    task.k = k;
    task.panel = packed.panels_.bytes() + static_cast<std::size_t>(index) * packed.panel_bytes();
    kernel(task);
  });
  return Result<PackedWeights>(std::move(packed));
}

void PackedWeights::unpack_row(std::int64_t row, std::span<float> out) const {
  STEMMA_CHECK(row >= 0 && row < n_, "a row of the matrix");
  STEMMA_CHECK_EQ(static_cast<std::int64_t>(out.size()), k_);
  if (is_quantised(format_)) return unpack_quantised(row, out);
  const std::size_t value_bytes = weight_type_bytes(type_);
  const std::byte* from =
      panel(row / kColumns) + static_cast<std::size_t>(row % kColumns) * value_bytes;
  for (float& value : out) {
    value = value_at(from, type_);
    from += static_cast<std::size_t>(kColumns) * value_bytes;
  }
}

}  // namespace stemma
