// Safetensors: the header of a weights file, parsed and checked before a single weight is used.
//
// A file is the length of its header (u64, little-endian), the header (JSON: name → dtype, shape,
// data_offsets), then the bytes of the tensors without gaps. Format:
// huggingface.co/docs/safetensors.
//
// Thread:     pure functions.
// Memory:     about ten times the header while it is parsed.
// Cost:       linear in the header, and a sort of the tensors.
// Not here:   reading files (weight_files), which tensors a model needs (weights).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/weight_type.h"
#include "stemma/result.h"

namespace stemma {

// One tensor of a file.
struct TensorEntry {
  std::string name;
  std::string dtype;  // as written, be it known or not: "F32", "BF16", "I64", ...
  std::vector<std::int64_t> shape;
  std::int64_t offset_bytes = 0;  // from the start of the file
  std::int64_t size_bytes = 0;

  // The type as weights, or nullopt for what weights cannot be (integers, f64, fp8, unknown ones).
  std::optional<WeightType> weight_type() const;
  // What one of shape[0] takes in the file. REQUIRES: the tensor has one at least.
  std::int64_t output_bytes() const { return size_bytes / shape[0]; }
};

// The numbers that `bytes` are. Exact: every weight type becomes f32 without rounding.
std::vector<float> to_floats(WeightType type, std::span<const std::byte> bytes);

// What a header says: in file order, contiguous from the end of the header to the end of the file.
struct SafetensorsHeader {
  std::int64_t header_bytes = 0;  // with the eight bytes of its length
  std::vector<TensorEntry> tensors;
};

inline constexpr std::int64_t kSafetensorsLengthBytes = 8;
// Ten times what the largest published shards have.
inline constexpr std::int64_t kSafetensorsHeaderBytesMax = std::int64_t{16} << 20;

// The bytes that the header takes, its length included, from the first eight bytes of a file of
// `file_bytes`. kCorrupt if they do not fit the file, kTooLarge above the limit.
Result<std::int64_t> safetensors_header_bytes(std::span<const std::byte> first_bytes,
                                              std::int64_t file_bytes, std::string_view file_name);

// Parses the header that `bytes` begins with. Errors name `file_name`, the tensor and the offset.
// Checked: lengths, names, shapes against bytes where the dtype is known, and that the tensors fill
// the file without gap or overlap. Where a tensor begins is not: none is read in its place.
Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> bytes,
                                                   std::int64_t file_bytes,
                                                   std::string_view file_name);

// The weight_map of a model.safetensors.index.json: tensor name → file in the same directory. A
// file name with a directory in it is refused.
Result<std::map<std::string, std::string>> parse_safetensors_index(std::string_view json,
                                                                   std::string_view file_name);

}  // namespace stemma
