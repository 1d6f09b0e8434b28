// Float8Config: how a model's files store matrices in 8 bits, as config.json says it.
//
// A value is an e4m3 code times a scale that lies in a tensor beside the codes. One scale serves a
// tile of outputs and inputs (DeepSeek-V3 as published, Qwen3-FP8), an output, or the tensor
// (fbgemm_fp8, compressed-tensors).
//
// Thread:     values and pure functions.
// Memory:     two integers.
// Cost:       a parse at start-up.
// Not here:   codes and scales (float8_matrix), sections around these (coded_config).
#pragma once

#include <cstdint>

namespace stemma {

class JsonFields;

struct Float8Config {
  // The extents of a tile; 0: a scale for each output, or one for the tensor.
  std::int64_t tile_outputs = 0;
  std::int64_t tile_inputs = 0;

  friend bool operator==(const Float8Config&, const Float8Config&) = default;
};

// Reads a `quantization_config` of method fp8. What is wrong, or stored in a way that is not read
// here, is remembered in `section`.
Float8Config read_float8(JsonFields& section);
// The same of the weights of a group of compressed-tensors.
Float8Config read_float8_group(JsonFields& weights);

}  // namespace stemma
