// AdapterConfig: what an adapter_config.json of PEFT says of a LoRA adapter, checked.
//
// What such a file can ask for and this build does not compute (other kinds of adapters, DoRA,
// biases, initialisations that change the model's own weights) is refused by the field's name,
// never ignored.
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

#include "model/tokenizer_regex.h"
#include "stemma/result.h"

namespace stemma {

struct AdapterConfig {
  // Of matrices that no pattern names.
  std::int64_t rank = 0;
  double alpha = 1;
  bool by_root = false;  // alpha is divided by the root of the rank
  // Of those whose path ends as the expression says, from the beginning of a name on; of several
  // the first.
  struct Pattern {
    TextPattern end;
    double value = 0;
  };
  std::vector<Pattern> rank_pattern;
  std::vector<Pattern> alpha_pattern;
  // The matrices that it changes, by the ends of their names; nullopt: all that it can.
  std::optional<std::vector<std::string>> targets;
  std::optional<std::vector<std::int64_t>> layers;  // nullopt: all

  // Whether it says that it changes the matrix `path`, such as
  // "model.layers.3.self_attn.q_proj", of this layer.
  bool names(std::string_view path, std::int64_t layer) const;

  // Of the two matrices that it has for `path`: their rank, and what their product is multiplied
  // by. An error where an expression takes more steps than a search may.
  struct Strength {
    std::int64_t rank = 0;
    float scale = 0;
  };
  Result<Strength> strength_of(std::string_view path) const;

  // The scale of what no pattern names.
  float usual_scale() const;
};

// Reads the text of an adapter_config.json. Errors are one line: `file_name`, the field, what is
// wrong with it.
Result<AdapterConfig> parse_adapter_config(std::string_view json, std::string_view file_name);

// Whether `path` ends with the name `target`, as whole parts between dots.
bool names_end_of(std::string_view target, std::string_view path);

}  // namespace stemma
