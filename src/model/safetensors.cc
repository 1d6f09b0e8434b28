#include "model/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>
#include <utility>

#include "base/float16.h"
#include "base/json_text.h"

namespace stemma {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kDimsMax = 8;
constexpr std::size_t kIndexBytesMax = std::size_t{64} << 20;
constexpr std::string_view kMetadataKey = "__metadata__";

struct ElementType {
  std::string_view name;
  std::int64_t bytes;
};
constexpr std::array kElementTypes = {
    ElementType{"F64", 8},     ElementType{"F32", 4},     ElementType{"F16", 2},
    ElementType{"BF16", 2},    ElementType{"I64", 8},     ElementType{"I32", 4},
    ElementType{"I16", 2},     ElementType{"I8", 1},      ElementType{"U64", 8},
    ElementType{"U32", 4},     ElementType{"U16", 2},     ElementType{"U8", 1},
    ElementType{"F8_E4M3", 1}, ElementType{"F8_E5M2", 1}, ElementType{"BOOL", 1},
};

// Errors of one tensor: "FILE: tensor 'NAME': WHY".
class TensorErrors {
 public:
  TensorErrors(std::string_view file_name, std::string_view tensor)
      : prefix_(std::string(file_name) + ": tensor '" + printable(tensor, 200) + "': ") {}
  Error operator()(ErrorCode code, const std::string& why) const {
    return Error{code, prefix_ + why};
  }

 private:
  std::string prefix_;
};

// Safe in errors whatever is written; those that are known stay what they are.
Result<std::string> read_dtype(const Json& entry, const TensorErrors& error) {
  const auto found = entry.find("dtype");
  if (found != entry.end() && found->is_string()) return printable(found->get<std::string>());
  return error(ErrorCode::kCorrupt, "dtype must be a string");
}

std::optional<std::int64_t> try_element_bytes(std::string_view dtype) {
  for (const ElementType& type : kElementTypes) {
    if (type.name == dtype) return type.bytes;
  }
  return std::nullopt;
}

// An array of at most `length_max` integers from 0 to 2^62.
Result<std::vector<std::int64_t>> read_numbers(const Json& entry, const char* field,
                                               std::size_t length_max, const TensorErrors& error) {
  const auto found = entry.find(field);
  if (found == entry.end() || !found->is_array() || found->size() > length_max) {
    return error(ErrorCode::kCorrupt, std::string(field) + " must be a list of at most " +
                                          std::to_string(length_max) + " numbers");
  }
  std::vector<std::int64_t> numbers;
  for (const Json& number : *found) {
    if (!number.is_number_unsigned() || number.get<std::uint64_t>() > (std::uint64_t{1} << 62)) {
      return error(ErrorCode::kCorrupt, std::string(field) + " must hold whole numbers");
    }
    numbers.push_back(number.get<std::int64_t>());
  }
  return numbers;
}

// Bytes of a tensor; nullopt if they do not fit 63 bits.
std::optional<std::int64_t> try_tensor_bytes(const std::vector<std::int64_t>& shape,
                                             std::int64_t bytes_per_element) {
  std::int64_t bytes = bytes_per_element;
  for (const std::int64_t extent : shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) {
      return std::nullopt;
    }
  }
  return bytes;
}

// `entry` of the header. Offsets in it count from the end of the header.
Result<TensorEntry> read_tensor(const std::string& name, const Json& entry,
                                std::int64_t header_bytes, std::int64_t file_bytes,
                                const TensorErrors& error) {
  if (!entry.is_object()) {
    return error(ErrorCode::kCorrupt, "must be an object");
  }
  TensorEntry tensor;
  tensor.name = name;
  STEMMA_ASSIGN_OR_RETURN(tensor.dtype, read_dtype(entry, error));
  STEMMA_ASSIGN_OR_RETURN(tensor.shape, read_numbers(entry, "shape", kDimsMax, error));
  STEMMA_ASSIGN_OR_RETURN(const std::vector<std::int64_t> offsets,
                          read_numbers(entry, "data_offsets", 2, error));
  if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > file_bytes - header_bytes) {
    return error(ErrorCode::kCorrupt, "data_offsets " + printable(entry.at("data_offsets").dump()) +
                                          " lie outside the file's " +
                                          std::to_string(file_bytes - header_bytes) +
                                          " bytes of data");
  }
  tensor.offset_bytes = header_bytes + offsets[0];
  tensor.size_bytes = offsets[1] - offsets[0];
  const std::optional<std::int64_t> element_bytes = try_element_bytes(tensor.dtype);
  if (element_bytes && try_tensor_bytes(tensor.shape, *element_bytes) != tensor.size_bytes) {
    return error(ErrorCode::kCorrupt, "shape " + printable(entry.at("shape").dump()) + " of " +
                                          tensor.dtype + " does not take the " +
                                          std::to_string(tensor.size_bytes) +
                                          " bytes of data_offsets");
  }
  return tensor;
}

// Sorts into file order and checks that the tensors fill the file.
Status order_and_check(SafetensorsHeader& header, std::int64_t file_bytes,
                       std::string_view file_name) {
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const TensorEntry& a, const TensorEntry& b) {
              return std::tie(a.offset_bytes, a.size_bytes, a.name) <
                     std::tie(b.offset_bytes, b.size_bytes, b.name);
            });
  std::int64_t end_bytes = header.header_bytes;
  for (const TensorEntry& tensor : header.tensors) {
    if (tensor.offset_bytes != end_bytes) {
      const bool overlaps = tensor.offset_bytes < end_bytes;
      return TensorErrors(file_name, tensor.name)(
          ErrorCode::kCorrupt,
          std::string(overlaps ? "overlaps the one before it" : "leaves a gap before it") +
              " at offset " + std::to_string(tensor.offset_bytes - header.header_bytes));
    }
    end_bytes += tensor.size_bytes;
  }
  if (end_bytes != file_bytes) {
    return Error{ErrorCode::kCorrupt, std::string(file_name) + ": " +
                                          std::to_string(file_bytes - end_bytes) +
                                          " bytes after the last tensor"};
  }
  return {};
}

}  // namespace

std::vector<float> to_floats(WeightType type, std::span<const std::byte> bytes) {
  const std::size_t element_bytes = weight_type_bytes(type);
  std::vector<float> values(bytes.size() / element_bytes);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::byte* element = bytes.data() + i * element_bytes;
    std::uint16_t half = 0;
    if (type == WeightType::kF32) {
      std::memcpy(&values[i], element, sizeof(float));
      continue;
    }
    std::memcpy(&half, element, sizeof(half));
    values[i] = type == WeightType::kBf16 ? to_float(BFloat16{half}) : to_float(Float16{half});
  }
  return values;
}

std::optional<WeightType> TensorEntry::weight_type() const {
  if (dtype == "F32") {
    return WeightType::kF32;
  }
  if (dtype == "F16") {
    return WeightType::kF16;
  }
  if (dtype == "BF16") {
    return WeightType::kBf16;
  }
  return std::nullopt;
}

Result<std::int64_t> safetensors_header_bytes(std::span<const std::byte> first_bytes,
                                              std::int64_t file_bytes, std::string_view file_name) {
  const std::string file(file_name);
  if (file_bytes < kSafetensorsLengthBytes ||
      first_bytes.size() < static_cast<std::size_t>(kSafetensorsLengthBytes)) {
    return Error{ErrorCode::kCorrupt, file + ": too short for a safetensors file (" +
                                          std::to_string(file_bytes) + " bytes)"};
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < 8; ++i) {
    length |= std::to_integer<std::uint64_t>(first_bytes[i]) << (8 * i);
  }
  if (length > static_cast<std::uint64_t>(file_bytes - kSafetensorsLengthBytes)) {
    return Error{ErrorCode::kCorrupt, file + ": header length " + std::to_string(length) +
                                          " exceeds the file's " + std::to_string(file_bytes) +
                                          " bytes (truncated?)"};
  }
  if (length > static_cast<std::uint64_t>(kSafetensorsHeaderBytesMax)) {
    return Error{ErrorCode::kTooLarge,
                 file + ": header length " + std::to_string(length) + "; at most " +
                     std::to_string(kSafetensorsHeaderBytesMax) + " bytes are accepted"};
  }
  return kSafetensorsLengthBytes + static_cast<std::int64_t>(length);
}

Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> bytes,
                                                   std::int64_t file_bytes,
                                                   std::string_view file_name) {
  SafetensorsHeader header;
  STEMMA_ASSIGN_OR_RETURN(header.header_bytes,
                          safetensors_header_bytes(bytes, file_bytes, file_name));
  if (bytes.size() < static_cast<std::size_t>(header.header_bytes)) {
    return Error{ErrorCode::kCorrupt, std::string(file_name) + ": header is cut off at byte " +
                                          std::to_string(bytes.size())};
  }
  const std::span<const std::byte> json =
      bytes.first(static_cast<std::size_t>(header.header_bytes))
          .subspan(static_cast<std::size_t>(kSafetensorsLengthBytes));
  const std::string_view text(reinterpret_cast<const char*>(json.data()), json.size());
  const JsonLimits limits = {static_cast<std::size_t>(kSafetensorsHeaderBytesMax), 4};
  STEMMA_ASSIGN_OR_RETURN(const Json object, parse_json_object(text, file_name, limits));
  for (const auto& [name, entry] : object.items()) {
    if (name == kMetadataKey) {
      continue;
    }
    STEMMA_ASSIGN_OR_RETURN(
        TensorEntry tensor,
        read_tensor(name, entry, header.header_bytes, file_bytes, TensorErrors(file_name, name)));
    header.tensors.push_back(std::move(tensor));
  }
  STEMMA_RETURN_IF_ERROR(order_and_check(header, file_bytes, file_name));
  return header;
}

Result<std::map<std::string, std::string>> parse_safetensors_index(std::string_view json,
                                                                   std::string_view file_name) {
  STEMMA_ASSIGN_OR_RETURN(const Json object,
                          parse_json_object(json, file_name, JsonLimits{kIndexBytesMax, 8}));
  const auto weight_map = object.find("weight_map");
  if (weight_map == object.end() || !weight_map->is_object()) {
    return Error{ErrorCode::kCorrupt, std::string(file_name) + ": weight_map: must be an object"};
  }
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : weight_map->items()) {
    const TensorErrors error(file_name, tensor);
    if (!file.is_string()) {
      return error(ErrorCode::kCorrupt, "the file must be a string");
    }
    const auto& name = file.get_ref<const std::string&>();
    const bool plain = !name.empty() && name != "." && name != ".." &&
                       name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
    if (!plain) {
      return error(ErrorCode::kCorrupt, "'" + printable(name) + "' is not a plain file name");
    }
    files.emplace(tensor, name);
  }
  return files;
}

}  // namespace stemma
