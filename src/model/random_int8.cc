#include "model/random_int8.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

namespace stemma {

Int8Tensors to_int8(const TensorValues& matrix, WeightType scale_type) {
  const std::int64_t outputs = matrix.spec.shape[0];
  const std::int64_t inputs = matrix.spec.shape[1];
  TensorValues codes = {matrix.spec, {}};
  codes.dtype = "I8";
  TensorValues scales = {{matrix.spec.name + "_scale", {outputs, 1}}, {}, scale_type};
  Int8Tensors made;
  for (std::int64_t output = 0; output < outputs; ++output) {
    const auto begin = matrix.values.begin() + output * inputs;
    const auto [least, largest] = std::minmax_element(begin, begin + inputs);
    const float scale = stored_value(std::max(-*least, *largest) / 127.5f, scale_type);
    scales.values.push_back(scale);
    for (std::int64_t input = 0; input < inputs; ++input) {
      const auto nearest = std::clamp(std::lround(begin[input] / scale), -128L, 127L);
      codes.bytes.push_back(static_cast<std::byte>(nearest));
      made.values.push_back(static_cast<float>(nearest) * scale);
    }
  }
  made.tensors.push_back(std::move(scales));
  made.tensors.push_back(std::move(codes));
  return made;
}

}  // namespace stemma
