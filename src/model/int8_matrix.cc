#include "model/int8_matrix.h"

#include <cstring>

#include "base/check.h"

namespace stemma {
namespace {

// What each code stands for, by its bits, as a file of that type holds it.
std::vector<std::byte> table_of(float scale, WeightType type) {
  const std::size_t size = weight_type_bytes(type);
  std::vector<std::byte> table(256 * size);
  for (int bits = 0; bits < 256; ++bits) {
    const float value = static_cast<float>(static_cast<std::int8_t>(bits)) * scale;
    std::byte* const to = table.data() + static_cast<std::size_t>(bits) * size;
    if (type == WeightType::kF32) {
      std::memcpy(to, &value, size);
    } else {
      const std::uint16_t half =
          type == WeightType::kBf16 ? to_bfloat16(value).bits : to_float16(value).bits;
      std::memcpy(to, &half, size);
    }
  }
  return table;
}

template <typename Word>
void look_up(std::span<const std::byte> codes, const std::byte* table, std::byte* values) {
  for (const std::byte code : codes) {
    std::memcpy(values, table + static_cast<std::size_t>(code) * sizeof(Word), sizeof(Word));
    values += sizeof(Word);
  }
}

}  // namespace

Result<Int8Matrix> Int8Matrix::open(const Int8Config& /*config*/, const TensorEntry& codes,
                                    ReadBeside read_beside) {
  STEMMA_ASSIGN_OR_RETURN(const BesideTensor scales, read_beside(codes.name + "_scale"));
  if (!scales.exists()) {
    return Error{ErrorCode::kNotFound, "has codes of 8 bits, and no scales with its name"};
  }
  if (codes.shape.size() != 2 || codes.size_bytes == 0) {
    return Error{ErrorCode::kUnsupported, "codes of 8 bits that are no matrix"};
  }
  if (!scales.entry->weight_type().has_value()) {
    return Error{ErrorCode::kUnsupported, "scales of dtype " + scales.entry->dtype};
  }
  Int8Matrix matrix;
  matrix.name_ = codes.name;
  matrix.outputs_ = codes.shape[0];
  matrix.inputs_ = codes.shape[1];
  matrix.scale_type_ = *scales.entry->weight_type();
  matrix.scales_ = to_floats(matrix.scale_type_, scales.bytes);
  if (matrix.scales_.size() == 1) {
    matrix.scales_.assign(static_cast<std::size_t>(matrix.outputs_), matrix.scales_[0]);
  }
  if (std::ssize(matrix.scales_) != matrix.outputs_) {
    return Error{ErrorCode::kInvalidArgument, "expected " + std::to_string(matrix.outputs_) +
                                                  " scales or one, found " +
                                                  std::to_string(matrix.scales_.size())};
  }
  return matrix;
}

void Int8Matrix::widen(std::span<const std::byte> codes, std::span<std::byte> values,
                       ThreadPool& pool) const {
  const std::size_t size = weight_type_bytes(scale_type_);
  STEMMA_CHECK(std::ssize(codes) == outputs_ * inputs_ && values.size() == codes.size() * size,
               "as many codes and values as the matrix has");
  const auto inputs = static_cast<std::size_t>(inputs_);
  pool.run(outputs_, [&](std::int64_t output, int) {
    const auto first = static_cast<std::size_t>(output) * inputs;
    const auto table = table_of(scales_[static_cast<std::size_t>(output)], scale_type_);
    const auto own = codes.subspan(first, inputs);
    std::byte* const to = values.data() + first * size;
    if (size == sizeof(float)) {
      look_up<float>(own, table.data(), to);
    } else {
      look_up<std::uint16_t>(own, table.data(), to);
    }
  });
}

}  // namespace stemma
