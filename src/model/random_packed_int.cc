#include "model/random_packed_int.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/math.h"

namespace stemma {
namespace {

// A matrix as whole numbers, whatever tensors they come to lie in.
struct Coded {
  std::int64_t outputs = 0;
  std::int64_t inputs = 0;
  std::int64_t groups = 0;
  std::vector<std::int32_t> group_of;  // [inputs]
  std::vector<float> scales;           // [outputs, groups]
  std::vector<int> zeros;              // [outputs, groups]
  std::vector<int> codes;              // [outputs, inputs]

  std::size_t at(std::int64_t output, std::int64_t group) const {
    return static_cast<std::size_t>(output * groups + group);
  }
  std::size_t group_at(std::int64_t output, std::int64_t input) const {
    return at(output, group_of[static_cast<std::size_t>(input)]);
  }
};

Coded empty_coded(const TensorValues& matrix, const PackedIntConfig& config, bool is_reordered) {
  Coded coded;
  coded.outputs = matrix.spec.shape[0];
  coded.inputs = matrix.spec.shape[1];
  STEMMA_CHECK(coded.outputs % 8 == 0 && coded.inputs % 8 == 0, "codes fill words");
  const std::int64_t group = config.group_inputs == 0 ? coded.inputs : config.group_inputs;
  coded.groups = ceil_div(coded.inputs, group);
  for (std::int64_t i = 0; i < coded.inputs; ++i) {
    const std::int64_t own = is_reordered ? i % coded.groups : i / group;
    coded.group_of.push_back(static_cast<std::int32_t>(own));
  }
  const auto count = static_cast<std::size_t>(coded.outputs * coded.groups);
  coded.scales.resize(count);
  coded.zeros.resize(count, config.middle());
  return coded;
}

Coded round_to_codes(const TensorValues& matrix, const PackedIntConfig& config,
                     const PackedIntStorage& storage) {
  Coded coded = empty_coded(matrix, config, storage.is_reordered);
  std::vector<float> least(coded.scales.size());
  std::vector<float> largest(coded.scales.size());
  const auto value_at = [&](std::int64_t output, std::int64_t input) {
    return matrix.values[static_cast<std::size_t>(output * coded.inputs + input)];
  };
  for (std::int64_t output = 0; output < coded.outputs; ++output) {
    for (std::int64_t input = 0; input < coded.inputs; ++input) {
      const std::size_t at = coded.group_at(output, input);
      least[at] = std::min(least[at], value_at(output, input));
      largest[at] = std::max(largest[at], value_at(output, input));
    }
  }
  const int code_max = 2 * config.middle() - 1;
  const auto steps_max = static_cast<float>(code_max);
  for (std::size_t i = 0; i < coded.scales.size(); ++i) {
    const float exact = config.is_symmetric ? std::max(-least[i], largest[i]) / (steps_max / 2)
                                            : (largest[i] - least[i]) / steps_max;
    coded.scales[i] = stored_value(exact, storage.scale_type);
    if (config.is_symmetric) continue;
    const auto zero = static_cast<int>(std::lround(-least[i] / coded.scales[i]));
    coded.zeros[i] = std::clamp(zero, 0, code_max);
  }
  for (std::int64_t output = 0; output < coded.outputs; ++output) {
    for (std::int64_t input = 0; input < coded.inputs; ++input) {
      const std::size_t at = coded.group_at(output, input);
      const auto steps = std::lround(value_at(output, input) / coded.scales[at]);
      coded.codes.push_back(std::clamp(static_cast<int>(steps) + coded.zeros[at], 0, code_max));
    }
  }
  return coded;
}

// A tensor [rows, columns] of words, each `less` than the one whose codes `code_at` gives.
template <typename CodeAt>
TensorValues words_of(const PackedIntConfig& config, const std::string& name, std::int64_t rows,
                      std::int64_t columns, CodeAt code_at, std::uint32_t less = 0) {
  TensorValues tensor = {{name, {rows, columns}}, {}};
  tensor.dtype = "I32";
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      std::uint32_t word = 0;
      for (int place = 0; place < static_cast<int>(config.per_word()); ++place) {
        word |= static_cast<std::uint32_t>(code_at(row, column, place)) << (config.bits * place);
      }
      word -= less;
      const auto* const bytes = reinterpret_cast<const std::byte*>(&word);
      tensor.bytes.insert(tensor.bytes.end(), bytes, bytes + sizeof(word));
    }
  }
  return tensor;
}

template <typename T>
TensorValues whole_numbers(const std::string& name, const char* dtype,
                           const std::vector<T>& numbers) {
  TensorValues tensor = {{name, {std::ssize(numbers)}}, {}};
  tensor.dtype = dtype;
  tensor.bytes.resize(numbers.size() * sizeof(T));
  std::memcpy(tensor.bytes.data(), numbers.data(), tensor.bytes.size());
  return tensor;
}

// [outputs, groups], or turned.
TensorValues scales_of(const std::string& name, const Coded& coded, bool is_turned,
                       WeightType type) {
  TensorValues tensor = {{name, {coded.outputs, coded.groups}}, coded.scales, type};
  if (!is_turned) return tensor;
  tensor.spec.shape = {coded.groups, coded.outputs};
  tensor.values.clear();
  for (std::int64_t group = 0; group < coded.groups; ++group) {
    for (std::int64_t output = 0; output < coded.outputs; ++output) {
      tensor.values.push_back(coded.scales[coded.at(output, group)]);
    }
  }
  return tensor;
}

// The output of eight that has a place of AWQ's words.
constexpr std::array<int, 8> kAwqOrder = {0, 2, 4, 6, 1, 3, 5, 7};

std::vector<TensorValues> gptq_tensors(const std::string& module, const Coded& coded,
                                       const PackedIntConfig& config,
                                       const PackedIntStorage& storage) {
  const std::int64_t per_word = config.per_word();
  const auto code_at = [&](std::int64_t row, std::int64_t column, int place) {
    return coded.codes[static_cast<std::size_t>(column * coded.inputs + row * per_word + place)];
  };
  const auto zero_at = [&](std::int64_t row, std::int64_t column, int place) {
    return coded.zeros[coded.at(column * per_word + place, row)];
  };
  const std::uint32_t less = config.zeros_less_one ? config.one_each() : 0;
  return {
      whole_numbers(module + ".g_idx", "I32", coded.group_of),
      words_of(config, module + ".qweight", coded.inputs / per_word, coded.outputs, code_at),
      words_of(config, module + ".qzeros", coded.groups, coded.outputs / per_word, zero_at, less),
      scales_of(module + ".scales", coded, true, storage.scale_type)};
}

std::vector<TensorValues> awq_tensors(const std::string& module, const Coded& coded,
                                      const PackedIntConfig& config,
                                      const PackedIntStorage& storage) {
  const auto output_at = [](std::int64_t column, int place) {
    return column * 8 + kAwqOrder[static_cast<std::size_t>(place)];
  };
  const auto code_at = [&](std::int64_t row, std::int64_t column, int place) {
    return coded.codes[static_cast<std::size_t>(output_at(column, place) * coded.inputs + row)];
  };
  const auto zero_at = [&](std::int64_t row, std::int64_t column, int place) {
    return coded.zeros[coded.at(output_at(column, place), row)];
  };
  return {words_of(config, module + ".qweight", coded.inputs, coded.outputs / 8, code_at),
          words_of(config, module + ".qzeros", coded.groups, coded.outputs / 8, zero_at),
          scales_of(module + ".scales", coded, true, storage.scale_type)};
}

std::vector<TensorValues> compressed_tensors(const std::string& module, const Coded& coded,
                                             const PackedIntConfig& config,
                                             const PackedIntStorage& storage) {
  const std::int64_t per_word = config.per_word();
  const auto code_at = [&](std::int64_t row, std::int64_t column, int place) {
    return coded.codes[static_cast<std::size_t>(row * coded.inputs + column * per_word + place)];
  };
  const auto zero_at = [&](std::int64_t row, std::int64_t column, int place) {
    return coded.zeros[coded.at(row * per_word + place, column)];
  };
  std::vector<TensorValues> tensors = {
      whole_numbers<std::int64_t>(module + ".weight_shape", "I64", {coded.outputs, coded.inputs}),
      words_of(config, module + ".weight_packed", coded.outputs, coded.inputs / per_word, code_at),
      scales_of(module + ".weight_scale", coded, false, storage.scale_type)};
  if (storage.is_reordered) {
    tensors.push_back(whole_numbers(module + ".weight_g_idx", "I32", coded.group_of));
  }
  if (!config.is_symmetric) {
    tensors.push_back(words_of(config, module + ".weight_zero_point", coded.outputs / per_word,
                               coded.groups, zero_at));
  }
  return tensors;
}

}  // namespace

PackedIntTensors to_packed_int(const TensorValues& matrix, const PackedIntConfig& config,
                               const PackedIntStorage& storage) {
  const Coded coded = round_to_codes(matrix, config, storage);
  PackedIntTensors made;
  for (std::int64_t output = 0; output < coded.outputs; ++output) {
    for (std::int64_t input = 0; input < coded.inputs; ++input) {
      const std::size_t at = coded.group_at(output, input);
      const int code = coded.codes[static_cast<std::size_t>(output * coded.inputs + input)];
      made.values.push_back(static_cast<float>(code - coded.zeros[at]) * coded.scales[at]);
    }
  }
  constexpr std::string_view kEnding = ".weight";
  const std::string module = matrix.spec.name.substr(0, matrix.spec.name.size() - kEnding.size());
  switch (config.layout) {
    case PackedIntConfig::Layout::kGptq:
      made.tensors = gptq_tensors(module, coded, config, storage);
      break;
    case PackedIntConfig::Layout::kAwq:
      made.tensors = awq_tensors(module, coded, config, storage);
      break;
    case PackedIntConfig::Layout::kCompressedTensors:
      made.tensors = compressed_tensors(module, coded, config, storage);
      break;
  }
  return made;
}

}  // namespace stemma
