// Rounding goes panel by panel, and so does reading rounded rows back.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/float16.h"
#include "base/math.h"
#include "device/packed_weights.h"
#include "device/packed_weights_kernel.h"

namespace stemma {

namespace {

constexpr std::int64_t kColumns = PackedWeights::kPanelColumns;
constexpr std::int64_t kGroup = PackedWeights::kGroupInputs;

template <typename T>
T read_at(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

// The code of input `input` of a group and output `column` of a panel.
int int8_code(const std::byte* codes, std::int64_t column, std::int64_t input) {
  return read_at<std::int8_t>(codes + (input / 2 * kColumns + column) * 2 + input % 2);
}

int int4_code(const std::byte* codes, std::int64_t column, std::int64_t input) {
  const auto word =
      read_at<std::uint16_t>(codes + (input / 8 * kColumns + column) * 4 + input % 2 * 2);
  const int nibble = word >> (input / 2 % 4 * 4) & 0xF;
  return nibble < 8 ? nibble : nibble - 16;
}

}  // namespace

Result<PackedWeights> PackedWeights::quantise(const StoredMatrix& stored, WeightFormat format,
                                              ThreadPool& pool, RoundingError& error) {
  STEMMA_CHECK(is_quantised(format), "a format of whole numbers");
  STEMMA_CHECK(format == WeightFormat::kInt8 ||
                   (format == WeightFormat::kInt4Shifted) == (stored.shifts_or_null != nullptr),
               "shifts belong to their format");
  STEMMA_ASSIGN_OR_RETURN(PackedWeights packed, allocate(stored, format));
  const auto panels = packed.panels();
  const QuantiseKernel kernel = quantise_kernel();
  std::vector<QuantiseOutcome> outcomes(static_cast<std::size_t>(panels));
  pool.run(panels, [&](std::int64_t index, int) {
    QuantiseTask task;
    task.weights =
        static_cast<const std::byte*>(stored.weights) +
        static_cast<std::size_t>(index * kColumns * stored.k) * weight_type_bytes(stored.type);
    task.type = stored.type;
    task.format = format;
    task.rows = std::min(kColumns, stored.n - index * kColumns);
    task.k = stored.k;
    const std::int64_t first_group = index * kColumns * packed.groups();
    if (stored.scales_or_null != nullptr) task.scales_or_null = stored.scales_or_null + first_group;
    if (stored.shifts_or_null != nullptr) task.shifts_or_null = stored.shifts_or_null + first_group;
    if (stored.output_scales_or_null != nullptr) {
      task.output_scales_or_null = stored.output_scales_or_null + index * kColumns;
    }
    task.panel = packed.panels_.bytes() + static_cast<std::size_t>(index) * packed.panel_bytes();
    outcomes[static_cast<std::size_t>(index)] = kernel(task);
  });
  for (const QuantiseOutcome& outcome : outcomes) {
    if (!outcome.finite) {
      return Error{
          ErrorCode::kUnsupported,
          "holds infinity or NaN, which " + std::string(weight_format_name(format)) + " cannot"};
    }
    error.add(outcome.error);
  }
  return Result<PackedWeights>(std::move(packed));
}

void PackedWeights::unpack_quantised(std::int64_t row, std::span<float> out) const {
  const std::byte* const own = panel(row / kColumns);
  const std::int64_t column = row % kColumns;
  for (std::int64_t i = 0; i < k_; ++i) {
    const std::int64_t group = i / kGroup;
    const std::byte* const codes = own + QuantisedPanel::codes_at(format_, group);
    const std::byte* const scales = own + QuantisedPanel::scales_at(format_, group);
    const bool wide = format_ == WeightFormat::kInt8;
    const float scale = wide ? read_at<float>(scales + column * 4)
                             : to_float(read_at<BFloat16>(scales + column * 2));
    int code = wide ? int8_code(codes, column, i % kGroup) : int4_code(codes, column, i % kGroup);
    if (format_ == WeightFormat::kInt4Shifted) {
      code += read_at<std::int8_t>(own + QuantisedPanel::shifts_at(format_, group) + column);
    }
    out[static_cast<std::size_t>(i)] = static_cast<float>(code) * scale;
  }
}

}  // namespace stemma
