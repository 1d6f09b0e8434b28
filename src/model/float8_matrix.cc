#include "model/float8_matrix.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/float8.h"
#include "base/math.h"

namespace stemma {
namespace {

// Outputs that one task widens.
constexpr std::int64_t kStripOutputs = 64;
// What the scales of a matrix are called behind its name.
constexpr std::array<std::string_view, 2> kScaleEndings = {"_scale_inv", "_scale"};

Result<BesideTensor> read_scales(const std::string& name, ReadBeside read_beside) {
  for (const std::string_view ending : kScaleEndings) {
    STEMMA_ASSIGN_OR_RETURN(const BesideTensor scales, read_beside(name + std::string(ending)));
    if (scales.exists()) return scales;
  }
  return Error{ErrorCode::kNotFound, "has codes of 8 bits, and no scales with its name"};
}

}  // namespace

Result<Float8Matrix> Float8Matrix::open(const Float8Config& config, const TensorEntry& codes,
                                        ReadBeside read_beside) {
  STEMMA_ASSIGN_OR_RETURN(const BesideTensor scales, read_scales(codes.name, read_beside));
  if (codes.shape.size() != 2 || codes.size_bytes == 0) {
    return Error{ErrorCode::kUnsupported, "codes of 8 bits that are no matrix"};
  }
  if (!scales.entry->weight_type().has_value()) {
    return Error{ErrorCode::kUnsupported, "scales of dtype " + scales.entry->dtype};
  }
  Float8Matrix matrix;
  matrix.name_ = codes.name;
  matrix.scales_ = scales.bytes;
  matrix.scale_type_ = *scales.entry->weight_type();
  matrix.outputs_ = codes.shape[0];
  matrix.inputs_ = codes.shape[1];
  STEMMA_RETURN_IF_ERROR(matrix.set_tiles(config, *scales.entry));
  return matrix;
}

Status Float8Matrix::set_tiles(const Float8Config& config, const TensorEntry& scales) {
  const bool in_tiles = config.tile_outputs > 0;
  const std::int64_t given =
      scales.size_bytes / static_cast<std::int64_t>(weight_type_bytes(scale_type_));
  const bool by_output = !in_tiles && given == outputs_;
  tile_outputs_ = in_tiles ? config.tile_outputs : by_output ? 1 : outputs_;
  tile_inputs_ = in_tiles ? config.tile_inputs : inputs_;
  const std::vector<std::int64_t> tiles = {ceil_div(outputs_, tile_outputs_),
                                           ceil_div(inputs_, tile_inputs_)};
  if (given != tiles[0] * tiles[1] || (in_tiles && scales.shape != tiles)) {
    return Error{ErrorCode::kInvalidArgument, "expected " + std::to_string(tiles[0]) + " x " +
                                                  std::to_string(tiles[1]) + " scales, found " +
                                                  std::to_string(given)};
  }
  return {};
}

float Float8Matrix::scale(std::int64_t tile) const {
  const std::size_t element_bytes = weight_type_bytes(scale_type_);
  return to_floats(scale_type_, scales_.subspan(static_cast<std::size_t>(tile) * element_bytes,
                                                element_bytes))[0];
}

void Float8Matrix::widen(std::span<const std::byte> codes, std::span<std::byte> values,
                         ThreadPool& pool) const {
  STEMMA_CHECK(
      std::ssize(codes) == outputs_ * inputs_ && values.size() == codes.size() * sizeof(BFloat16),
      "as many codes and values as the matrix has");
  auto* const to = reinterpret_cast<BFloat16*>(values.data());
  const std::int64_t strips = ceil_div(tile_outputs_, kStripOutputs);  // of a tile
  pool.run(ceil_div(outputs_, tile_outputs_) * strips, [&](std::int64_t task, int) {
    const std::int64_t tile_first = task / strips * tile_outputs_;
    const std::int64_t first = tile_first + task % strips * kStripOutputs;
    const std::int64_t end =
        std::min({first + kStripOutputs, tile_first + tile_outputs_, outputs_});
    if (first < end) widen_strip(first, end, codes.data(), to);
  });
}

// Outputs of one row of tiles.
void Float8Matrix::widen_strip(std::int64_t first, std::int64_t end, const std::byte* codes,
                               BFloat16* values) const {
  const std::int64_t tile_columns = ceil_div(inputs_, tile_inputs_);
  std::array<BFloat16, 256> value_of;
  for (std::int64_t column = 0; column < tile_columns; ++column) {
    const float tile_scale = scale(first / tile_outputs_ * tile_columns + column);
    for (std::size_t code = 0; code < value_of.size(); ++code) {
      const Float8E4M3 stored = {static_cast<std::uint8_t>(code)};
      value_of[code] = to_bfloat16(to_float(stored) * tile_scale);
    }
    const std::int64_t begin = column * tile_inputs_;
    const std::int64_t count = std::min(tile_inputs_, inputs_ - begin);
    for (std::int64_t output = first; output < end; ++output) {
      const std::int64_t at = output * inputs_ + begin;
      for (std::int64_t i = at; i < at + count; ++i) {
        values[i] = value_of[static_cast<std::size_t>(codes[i])];
      }
    }
  }
}

}  // namespace stemma
