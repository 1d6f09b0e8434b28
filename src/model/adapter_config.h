// AdapterConfig: what an adapter_config.json of PEFT says of a LoRA adapter, checked.
//
// What such a file can ask for and this build does not compute (other kinds of adapters, DoRA,
// biases, ranks of single matrices, initialisations that change the model's own weights) is refused
// by the field's name, never ignored.
//
// Thread:     values and a pure function.
// Memory:     a few strings.
// Cost:       a parse at start-up.
// Not here:   the matrices (adapter), what they add to a batch (adapter_pass).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stemma/result.h"

namespace stemma {

struct AdapterConfig {
  std::int64_t rank = 0;
  float scale = 1;  // what the product of its matrices is multiplied by
  // The matrices that it changes, by the ends of their names; nullopt: all that it can.
  std::optional<std::vector<std::string>> targets;
  std::optional<std::vector<std::int64_t>> layers;  // nullopt: all

  // Whether it says that it changes the matrix `path`, such as
  // "model.layers.3.self_attn.q_proj", of this layer.
  bool names(std::string_view path, std::int64_t layer) const;
};

// Reads the text of an adapter_config.json. Errors are one line: `file_name`, the field, what is
// wrong with it.
Result<AdapterConfig> parse_adapter_config(std::string_view json, std::string_view file_name);

// Whether `path` ends with the name `target`, as whole parts between dots.
bool names_end_of(std::string_view target, std::string_view path);

}  // namespace stemma
