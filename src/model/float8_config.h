// Float8Config: how a model's files store matrices in 8 bits, as config.json says it.
//
// A value is an e4m3 code times a scale that lies in a tensor beside the codes. One scale serves a
// tile of outputs and inputs (DeepSeek-V3 as published, Qwen3-FP8), an output, or the tensor
// (fbgemm_fp8, compressed-tensors). What the section says of activations and of the KV cache is
// advice for computing in 8 bits: here codes become bf16 when they are read.
//
// Thread:     values and pure functions.
// Memory:     two integers.
// Cost:       a parse at start-up.
// Not here:   codes and scales (float8_scales), the rest of config.json (config).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace stemma {

class JsonFields;

struct Float8Config {
  // The extents of a tile; 0: a scale for each output, or one for the tensor.
  std::int64_t tile_outputs = 0;
  std::int64_t tile_inputs = 0;

  friend bool operator==(const Float8Config&, const Float8Config&) = default;
};

// Reads `quantization_config`, or nothing where there is none. What is wrong in it, or stores
// weights in a way that is not read here, is remembered in `fields`. `file_name` is for errors.
std::optional<Float8Config> read_float8(JsonFields& fields, std::string_view file_name);

}  // namespace stemma
