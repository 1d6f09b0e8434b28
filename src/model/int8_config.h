// Int8Config: how a model's files store matrices as whole numbers of 8 bits, as config.json says
// it.
//
// A value is a code times a scale that lies in a tensor beside the codes: one for each output, or
// one for the tensor (compressed-tensors' "int-quantized", as llm-compressor writes W8A8).
//
// Thread:     values and pure functions.
// Memory:     none.
// Cost:       a parse at start-up.
// Not here:   codes and scales (int8_matrix), sections around these (coded_config).
#pragma once

namespace stemma {

class JsonFields;

struct Int8Config {
  friend bool operator==(const Int8Config&, const Int8Config&) = default;
};

// Reads the weights of a group of compressed-tensors. What is wrong, or stored in a way that is not
// read here, is remembered in `weights`.
Int8Config read_int8_group(JsonFields& weights);

}  // namespace stemma
