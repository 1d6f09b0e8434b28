// Int4Config: how a model's files store matrices in 4 bits, as config.json says it.
//
// A value is (code - zero point) × scale, of codes and zero points from 0 to 15. A scale and a zero
// point serve a group of inputs of one output; codes of eight are packed in a word of 32 bits.
// Three layouts are read, which differ in what a word holds:
//   gptq                 [inputs / 8, outputs]: eight inputs of one output (GPTQ, arXiv 2210.17323,
//                        as AutoGPTQ and GPTQModel write it)
//   awq                  [inputs, outputs / 8]: one input of eight outputs, in the order of bits
//                        0 2 4 6 1 3 5 7 (AWQ, arXiv 2306.00978, as AutoAWQ's "gemm" writes it)
//   compressed-tensors   [outputs, inputs / 8]: eight inputs of one output ("pack-quantized", as
//                        llm-compressor writes it)
//
// Thread:     values and pure functions.
// Memory:     a few bytes.
// Cost:       a parse at start-up.
// Not here:   codes, scales and zero points (int4_matrix), sections around these (coded_config).
#pragma once

#include <cstdint>

namespace stemma {

class JsonFields;

struct Int4Config {
  enum class Layout : std::uint8_t { kGptq, kAwq, kCompressedTensors };

  Layout layout = Layout::kGptq;
  // That share a scale; 0: all inputs of an output do.
  std::int64_t group_inputs = 0;
  // Words of zero points are those of zero points less eight ones, as one number: GPTQ's first
  // form. A zero point of 0 borrows from the next one, which those who write such files (GPTQModel)
  // give back when they read them.
  bool zeros_less_one = false;
  // All zero points are 8: compressed-tensors has no tensor of them then.
  bool is_symmetric = false;

  friend bool operator==(const Int4Config&, const Int4Config&) = default;
};

// Reads a `quantization_config` of that method. What is wrong, or stored in a way that is not read
// here, is remembered in `section`.
Int4Config read_gptq(JsonFields& section);
Int4Config read_awq(JsonFields& section);
// The same of the weights of a group of compressed-tensors.
Int4Config read_int4_group(JsonFields& weights);

}  // namespace stemma
