#include "model/packed_int_matrix.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "base/check.h"
#include "base/math.h"
#include "device/packed_weights.h"

namespace stemma {
namespace {

// What one task widens, and the inputs of one output that it does at a time.
constexpr std::int64_t kStripOutputs = 16;
constexpr std::int64_t kRunInputs = 128;
// Of eight outputs, the four bits of AWQ's words that each has.
constexpr std::array<int, 8> kAwqPlaces = {0, 4, 1, 5, 2, 6, 3, 7};

constexpr std::string_view kPackedEnding = ".weight_packed";
constexpr std::string_view kPlainEnding = ".qweight";

std::string_view codes_ending(PackedIntConfig::Layout layout) {
  return layout == PackedIntConfig::Layout::kCompressedTensors ? kPackedEnding : kPlainEnding;
}

// What tensors beside codes are called behind the name of their module.
struct Endings {
  std::string_view scales;
  std::string_view zeros;
  std::string_view order;
  std::string_view shape;
};

Endings endings_of(PackedIntConfig::Layout layout) {
  if (layout == PackedIntConfig::Layout::kCompressedTensors) {
    return {".weight_scale", ".weight_zero_point", ".weight_g_idx", ".weight_shape"};
  }
  return {".scales", ".qzeros", ".g_idx", ""};
}

template <typename T>
T element(std::span<const std::byte> bytes, std::int64_t index) {
  T value;
  std::memcpy(&value, bytes.data() + static_cast<std::size_t>(index) * sizeof(T), sizeof(T));
  return value;
}

std::uint32_t word_at(const std::byte* from) {
  std::uint32_t word = 0;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

template <typename T>
T narrowed(float value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return to_bfloat16(value);
  } else {
    return to_float16(value);
  }
}

std::string text_of(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t extent : shape) {
    text += (text.empty() ? "" : " x ") + std::to_string(extent);
  }
  return text.empty() ? "one" : text;
}

// That a tensor beside codes is there, of that dtype and shape.
Status expect(const BesideTensor& tensor, std::string_view what, std::string_view dtype,
              const std::vector<std::int64_t>& shape) {
  if (!tensor.exists()) {
    return Error{ErrorCode::kNotFound,
                 "has codes in words, and no " + std::string(what) + " with its name"};
  }
  if (!dtype.empty() && tensor.entry->dtype != dtype) {
    return Error{ErrorCode::kUnsupported, std::string(what) + " of dtype " + tensor.entry->dtype +
                                              ", not " + std::string(dtype)};
  }
  if (tensor.entry->shape != shape) {
    return Error{ErrorCode::kInvalidArgument, "expected " + text_of(shape) + " " +
                                                  std::string(what) + ", found " +
                                                  text_of(tensor.entry->shape)};
  }
  return {};
}

}  // namespace

bool has_packed_codes(const PackedIntConfig& config, const TensorEntry& tensor) {
  return tensor.dtype == "I32" && tensor.name.ends_with(codes_ending(config.layout));
}

Result<PackedIntMatrix> PackedIntMatrix::open(const PackedIntConfig& config,
                                              const TensorEntry& codes, ReadBeside read_beside) {
  const std::string module =
      codes.name.substr(0, codes.name.size() - codes_ending(config.layout).size());
  const Endings endings = endings_of(config.layout);
  const auto beside = [&](std::string_view ending) -> Result<BesideTensor> {
    if (ending.empty()) return BesideTensor{};
    return read_beside(module + std::string(ending));
  };
  PackedIntMatrix matrix;
  matrix.name_ = module + ".weight";
  matrix.config_ = config;
  STEMMA_ASSIGN_OR_RETURN(const BesideTensor shape, beside(endings.shape));
  STEMMA_RETURN_IF_ERROR(matrix.set_extents(codes, shape));
  STEMMA_ASSIGN_OR_RETURN(const BesideTensor order, beside(endings.order));
  STEMMA_RETURN_IF_ERROR(matrix.set_groups(config.group_inputs, order));
  STEMMA_ASSIGN_OR_RETURN(const BesideTensor scales, beside(endings.scales));
  STEMMA_RETURN_IF_ERROR(matrix.set_scales(scales));
  STEMMA_ASSIGN_OR_RETURN(const BesideTensor zeros, beside(endings.zeros));
  STEMMA_RETURN_IF_ERROR(matrix.set_zeros(zeros));
  matrix.kept_format_ = matrix.format_that_keeps();
  return matrix;
}

Status PackedIntMatrix::set_extents(const TensorEntry& codes, const BesideTensor& shape) {
  if (codes.shape.size() != 2 || codes.size_bytes == 0) {
    return Error{ErrorCode::kUnsupported, "codes in words that are no matrix"};
  }
  const std::int64_t per_word = config_.per_word();
  const std::int64_t rows = codes.shape[0];
  const std::int64_t columns = codes.shape[1];
  switch (config_.layout) {
    case PackedIntConfig::Layout::kGptq:
      outputs_ = columns;
      inputs_ = rows * per_word;
      break;
    case PackedIntConfig::Layout::kAwq:
      outputs_ = columns * per_word;
      inputs_ = rows;
      break;
    case PackedIntConfig::Layout::kCompressedTensors:
      STEMMA_RETURN_IF_ERROR(expect(shape, "shape", "I64", {2}));
      outputs_ = element<std::int64_t>(shape.bytes, 0);
      inputs_ = element<std::int64_t>(shape.bytes, 1);
      if (outputs_ != rows || inputs_ > columns * per_word || inputs_ <= (columns - 1) * per_word) {
        return Error{ErrorCode::kInvalidArgument,
                     "a shape of " + text_of({outputs_, inputs_}) + " that its words do not have"};
      }
      break;
  }
  if (config_.layout != PackedIntConfig::Layout::kCompressedTensors && outputs_ % per_word != 0) {
    return Error{ErrorCode::kUnsupported,
                 "outputs that are no multiple of " + std::to_string(per_word)};
  }
  return {};
}

Status PackedIntMatrix::set_groups(std::int64_t group_inputs, const BesideTensor& order) {
  const std::int64_t in_order = group_inputs == 0 ? inputs_ : group_inputs;
  groups_ = ceil_div(inputs_, in_order);
  group_of_.resize(static_cast<std::size_t>(inputs_));
  if (!order.exists()) {
    for (std::int64_t i = 0; i < inputs_; ++i) {
      group_of_[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i / in_order);
    }
    return {};
  }
  STEMMA_RETURN_IF_ERROR(expect(order, "groups of inputs", "I32", {inputs_}));
  std::memcpy(group_of_.data(), order.bytes.data(), order.bytes.size());
  const auto is_group = [&](std::int32_t group) { return group >= 0 && group < groups_; };
  if (std::ranges::all_of(group_of_, is_group)) return {};
  return Error{ErrorCode::kInvalidArgument,
               "an input of a group that is none of " + std::to_string(groups_)};
}

Status PackedIntMatrix::set_scales(const BesideTensor& scales) {
  const bool by_output = config_.layout == PackedIntConfig::Layout::kCompressedTensors;
  const std::vector<std::int64_t> shape =
      by_output ? std::vector{outputs_, groups_} : std::vector{groups_, outputs_};
  STEMMA_RETURN_IF_ERROR(expect(scales, "scales", "", shape));
  if (!scales.entry->weight_type().has_value()) {
    return Error{ErrorCode::kUnsupported, "scales of dtype " + scales.entry->dtype};
  }
  scale_type_ = *scales.entry->weight_type();
  scales_ = scales.bytes;
  return {};
}

Status PackedIntMatrix::set_zeros(const BesideTensor& zeros) {
  const bool by_output = config_.layout == PackedIntConfig::Layout::kCompressedTensors;
  if (by_output && config_.is_symmetric) return {};
  const std::int64_t words = ceil_div(outputs_, config_.per_word());
  STEMMA_RETURN_IF_ERROR(
      expect(zeros, "zero points", "I32",
             by_output ? std::vector{words, groups_} : std::vector{groups_, words}));
  zeros_ = zeros.bytes;
  return {};
}

// Whether all zero points are the middle one, as they are where a file says that groups are
// symmetric.
bool PackedIntMatrix::is_symmetric() const {
  const std::uint32_t less = config_.zeros_less_one ? config_.one_each() : 0;
  const auto middles = static_cast<std::uint32_t>(config_.middle()) * config_.one_each() - less;
  const std::int64_t words = std::ssize(zeros_) / static_cast<std::int64_t>(sizeof(middles));
  for (std::int64_t i = 0; i < words; ++i) {
    if (element<std::uint32_t>(zeros_, i) != middles) return false;
  }
  return true;
}

// Inputs that rounded weights have in one group must be so here.
std::optional<WeightFormat> PackedIntMatrix::format_that_keeps() const {
  if (config_.bits == 8) {
    if (groups_ > 1 || !is_symmetric()) return std::nullopt;
    return WeightFormat::kInt8;
  }
  constexpr auto kGroup = static_cast<std::size_t>(PackedWeights::kGroupInputs);
  for (std::size_t i = 0; i < group_of_.size(); ++i) {
    if (group_of_[i] != group_of_[i / kGroup * kGroup]) return std::nullopt;
  }
  return is_symmetric() ? WeightFormat::kInt4 : WeightFormat::kInt4Shifted;
}

float PackedIntMatrix::scale(std::int64_t output, std::int64_t group) const {
  const bool by_output = config_.layout == PackedIntConfig::Layout::kCompressedTensors;
  const std::int64_t at = by_output ? output * groups_ + group : group * outputs_ + output;
  if (scale_type_ == WeightType::kF32) return element<float>(scales_, at);
  if (scale_type_ == WeightType::kF16) return to_float(element<Float16>(scales_, at));
  return to_float(element<BFloat16>(scales_, at));
}

int PackedIntMatrix::zero(std::int64_t output, std::int64_t group) const {
  if (zeros_.empty()) return config_.middle();
  const std::int64_t per_word = config_.per_word();
  const std::int64_t full_words = output / per_word;
  const auto place = static_cast<std::size_t>(output % per_word);
  const bool by_output = config_.layout == PackedIntConfig::Layout::kCompressedTensors;
  const std::int64_t at =
      by_output ? full_words * groups_ + group : group * (outputs_ / per_word) + full_words;
  const int own = packs_outputs() ? kAwqPlaces[place] : static_cast<int>(place);
  const std::uint32_t less = config_.zeros_less_one ? config_.one_each() : 0;
  return static_cast<int>((element<std::uint32_t>(zeros_, at) + less) >> (config_.bits * own) &
                          mask());
}

PackedIntMatrix::Strides PackedIntMatrix::strides() const {
  switch (config_.layout) {
    case PackedIntConfig::Layout::kGptq:
      return {1, outputs_};
    case PackedIntConfig::Layout::kAwq:
      return {0, outputs_ / config_.per_word()};
    case PackedIntConfig::Layout::kCompressedTensors:
      break;
  }
  return {ceil_div(inputs_, config_.per_word()), 1};
}

KeptGroups PackedIntMatrix::kept_groups() const {
  STEMMA_CHECK(kept_format_.has_value(), "a matrix whose codes can be kept");
  constexpr std::int64_t kGroup = PackedWeights::kGroupInputs;
  const bool is_shifted = kept_format_ == WeightFormat::kInt4Shifted;
  KeptGroups kept;
  if (config_.bits == 8) {
    for (std::int64_t output = 0; output < outputs_; ++output) {
      kept.output_scales.push_back(scale(output, 0));
    }
    return kept;
  }
  kept.scales.reserve(static_cast<std::size_t>(outputs_ * ceil_div(inputs_, kGroup)));
  for (std::int64_t output = 0; output < outputs_; ++output) {
    for (std::int64_t i = 0; i < inputs_; i += kGroup) {
      const std::int32_t group = group_of_[static_cast<std::size_t>(i)];
      kept.scales.push_back(to_bfloat16(scale(output, group)));
      if (!is_shifted) continue;
      kept.shifts.push_back(static_cast<std::int8_t>(config_.middle() - zero(output, group)));
    }
  }
  return kept;
}

void PackedIntMatrix::widen(std::span<const std::byte> codes, std::span<std::byte> values,
                            ThreadPool& pool) const {
  STEMMA_CHECK(std::ssize(values) ==
                   outputs_ * inputs_ * static_cast<std::int64_t>(weight_type_bytes(scale_type_)),
               "as many values as the matrix has");
  switch (scale_type_) {
    case WeightType::kF32:
      return widen_all(codes, reinterpret_cast<float*>(values.data()), pool);
    case WeightType::kF16:
      return widen_all(codes, reinterpret_cast<Float16*>(values.data()), pool);
    case WeightType::kBf16:
      return widen_all(codes, reinterpret_cast<BFloat16*>(values.data()), pool);
  }
}

template <typename T>
void PackedIntMatrix::widen_all(std::span<const std::byte> codes, T* values,
                                ThreadPool& pool) const {
  pool.run(ceil_div(outputs_, kStripOutputs),
           [&](std::int64_t strip, int) { widen_strip(strip * kStripOutputs, codes, values); });
}

// What each code of each group of one output stands for: [groups, codes].
template <typename T>
void PackedIntMatrix::fill_table(std::int64_t output, T* table) const {
  for (std::int64_t group = 0; group < groups_; ++group) {
    const float own_scale = scale(output, group);
    const int own_zero = zero(output, group);
    for (int code = 0; code < 1 << config_.bits; ++code) {
      *table++ = narrowed<T>(static_cast<float>(code - own_zero) * own_scale);
    }
  }
}

// Of one output those of `count` inputs from `first` on, which begins a word.
void PackedIntMatrix::unpack(std::int64_t output, std::int64_t first, std::int64_t count,
                             const std::byte* codes, std::uint8_t* unpacked) const {
  const Strides stride = strides();
  const std::int64_t per_word = config_.per_word();
  if (packs_outputs()) {
    const int shift = config_.bits * kAwqPlaces[static_cast<std::size_t>(output % per_word)];
    const std::byte* from = codes + 4 * (output / per_word + first * stride.input);
    for (std::int64_t i = 0; i < count; ++i, from += 4 * stride.input) {
      unpacked[i] = static_cast<std::uint8_t>(word_at(from) >> shift & mask());
    }
    return;
  }
  const std::byte* from = codes + 4 * (output * stride.output + first / per_word * stride.input);
  for (std::int64_t i = 0; i < count; i += per_word, from += 4 * stride.input) {
    const std::uint32_t word = word_at(from);
    for (int place = 0; place < static_cast<int>(per_word); ++place) {
      unpacked[i + place] = static_cast<std::uint8_t>(word >> (config_.bits * place) & mask());
    }
  }
}

// Outputs from `first` on, a run of inputs of all of them at a time, so that words which neighbours
// share, or that lie in one line, are met again while they are in a cache.
template <typename T>
void PackedIntMatrix::widen_strip(std::int64_t first, std::span<const std::byte> codes,
                                  T* values) const {
  const std::int64_t end = std::min(first + kStripOutputs, outputs_);
  const std::int64_t codes_each = std::int64_t{1} << config_.bits;
  const std::int64_t table_size = groups_ * codes_each;
  std::vector<T> tables(static_cast<std::size_t>((end - first) * table_size));
  for (std::int64_t output = first; output < end; ++output) {
    fill_table(output, tables.data() + (output - first) * table_size);
  }
  std::array<std::uint8_t, kRunInputs> unpacked;
  for (std::int64_t run = 0; run < inputs_; run += kRunInputs) {
    const std::int64_t count = std::min(kRunInputs, inputs_ - run);
    const std::int32_t* const groups = group_of_.data() + run;
    for (std::int64_t output = first; output < end; ++output) {
      unpack(output, run, count, codes.data(), unpacked.data());
      const T* const table = tables.data() + (output - first) * table_size;
      T* const row = values + output * inputs_ + run;
      for (std::int64_t i = 0; i < count; ++i) {
        row[i] = table[groups[i] * codes_each + unpacked[static_cast<std::size_t>(i)]];
      }
    }
  }
}

}  // namespace stemma
