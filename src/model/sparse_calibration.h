// SparseCalibration: the heavy channels of one model's keys, as `stemma calibrate` files them
// beside the model:
//
//   {"format": 1, "weights_sha256": HEX, "layers": INT, "kv_heads": INT, "head_dim": INT,
//    "channels_per_head": INT, "channels": [[[INT, …], …], …]}      channels: [layer][KV head]
//
// Channels ascend. They are those of the weights that they were found for and of no others.
//
// Thread:     values and pure functions.
// Memory:     the channels.
// Cost:       reading a small file.
// Not here:   finding channels (attention/calibration_taps), using them (pool/, attention/).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attention/sparse_dial.h"
#include "base/file.h"
#include "model/config.h"
#include "pool/heavy_channels.h"
#include "stemma/result.h"

namespace stemma {

inline constexpr std::string_view kSparseCalibrationFile = "double_sparsity.json";

struct SparseCalibration {
  std::string weights_sha256;  // in hexadecimal
  std::int64_t head_dim = 0;
  HeavyChannels channels;

  friend bool operator==(const SparseCalibration&, const SparseCalibration&) = default;
};

// The file's text.
std::string sparse_calibration_text(const SparseCalibration& calibration);

// The inverse. Errors are one line that names `file_name` and the field.
Result<SparseCalibration> parse_sparse_calibration(std::string_view text,
                                                   std::string_view file_name);

// Reads the file at `path`; kNotFound says which command writes one.
Result<SparseCalibration> load_sparse_calibration(Files& files, const std::string& path);

// Writes the file at `path`, or that which a link there names, whole or not at all. kIo names it;
// kInvalidArgument if something else than a file has the name.
Status save_sparse_calibration(const SparseCalibration& calibration, const std::string& path);

// kInvalidArgument naming `file_name` and the field, unless it is one of the model with these
// extents and weights.
Status check_sparse_calibration(const SparseCalibration& calibration, std::string_view file_name,
                                const ModelConfig& config, std::string_view weights_sha256);

// The heavy channels of a model in `directory`, of the file at `path`, or, where that is empty, of
// kSparseCalibrationFile there. kUnsupported names config.json if the model has what sparse
// attention has not; else as loading and checking.
Result<HeavyChannels> load_heavy_channels(Files& files, const std::string& directory,
                                          const std::string& path, const ModelConfig& config,
                                          std::string_view weights_sha256);

// What of sparse attention makes pages valid, as (name, value): what a sparse row leaves out
// changes all that later layers store.
std::vector<std::pair<std::string, std::string>> sparse_namespace_fields(
    const HeavyChannels& channels, const SparseDial& dial);

}  // namespace stemma
