// PackedIntConfig: how a model's files store matrices as whole numbers of 4 or 8 bits that are
// packed in words, as config.json says it.
//
// A value is (code - zero point) × scale, of codes and zero points from 0 to 15, or to 255. A scale
// and a zero point serve a group of inputs of one output; a word of 32 bits holds eight codes of 4
// bits, or four of 8. Three layouts are read, which differ in what a word holds, here of 4 bits:
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
// Not here:   codes, scales and zero points (packed_int_matrix), sections around these
//             (coded_config).
#pragma once

#include <cstdint>

namespace stemma {

class JsonFields;

struct PackedIntConfig {
  enum class Layout : std::uint8_t { kGptq, kAwq, kCompressedTensors };

  Layout layout = Layout::kGptq;
  // That share a scale; 0: all inputs of an output do.
  std::int64_t group_inputs = 0;
  // Words of zero points are those of zero points less a one for each, as one number: GPTQ's first
  // form. A zero point of 0 borrows from the next one, which those who write such files (GPTQModel)
  // give back when they read them.
  bool zeros_less_one = false;
  // All zero points are the middle one: compressed-tensors has no tensor of them then.
  bool is_symmetric = false;
  int bits = 4;  // of a code; or 8, but of AWQ

  std::int64_t per_word() const noexcept { return 32 / bits; }
  // The zero point of codes that reach as far below zero as above.
  int middle() const noexcept { return 1 << (bits - 1); }
  // A word of ones.
  std::uint32_t one_each() const noexcept { return bits == 4 ? 0x11111111 : 0x01010101; }

  friend bool operator==(const PackedIntConfig&, const PackedIntConfig&) = default;
};

// Reads a `quantization_config` of that method. What is wrong, or stored in a way that is not read
// here, is remembered in `section`.
PackedIntConfig read_gptq(JsonFields& section);
PackedIntConfig read_awq(JsonFields& section);
// The same of the weights of a group of compressed-tensors.
PackedIntConfig read_packed_group(JsonFields& weights);

}  // namespace stemma
