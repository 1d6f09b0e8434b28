#include "model/random_float8.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/float8.h"
#include "base/math.h"

namespace stemma {
std::vector<TensorValues> to_float8(const TensorValues& matrix, const Float8Config& config,
                                    const Float8Storage& storage) {
  const std::int64_t outputs = matrix.spec.shape[0];
  const std::int64_t inputs = matrix.spec.shape[1];
  const bool in_tiles = config.tile_outputs > 0;
  const std::int64_t high = in_tiles ? config.tile_outputs : storage.by_output ? 1 : outputs;
  const std::int64_t wide = in_tiles ? config.tile_inputs : inputs;
  const std::int64_t columns = ceil_div(inputs, wide);
  TensorValues scales = {
      {matrix.spec.name + storage.scale_ending, {ceil_div(outputs, high), columns}},
      std::vector<float>(static_cast<std::size_t>(ceil_div(outputs, high) * columns)),
      storage.scale_type};
  const auto scale_at = [&](std::int64_t at) -> float& {
    return scales
        .values[static_cast<std::size_t>(at / inputs / high * columns + at % inputs / wide)];
  };
  TensorValues codes = {matrix.spec, matrix.values, std::nullopt, true};
  for (std::int64_t i = 0; i < std::ssize(codes.values); ++i) {
    scale_at(i) = std::max(scale_at(i),
                           std::abs(matrix.values[static_cast<std::size_t>(i)]) / Float8E4M3::kMax);
  }
  for (float& scale : scales.values) scale = stored_value(scale, storage.scale_type);
  for (std::int64_t i = 0; i < std::ssize(codes.values); ++i) {
    float& value = codes.values[static_cast<std::size_t>(i)];
    value = to_float(to_float8<Float8E4M3>(value / scale_at(i)));
  }
  std::vector<TensorValues> both = {std::move(codes), std::move(scales)};
  if (storage.scales_first) std::swap(both[0], both[1]);
  return both;
}

}  // namespace stemma
