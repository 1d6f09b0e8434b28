// config_json: the text of a config.json that says what a ModelConfig says.
//
// Thread:     a pure function.
// Memory:     the text.
// Cost:       a few microseconds.
// Not here:   reading one (config).
#pragma once

#include <string>

#include "model/config.h"

namespace stemma {

// The text of a config.json that parse_config reads as `config`.
// REQUIRES: such a file can say it: a DeepSeek model has its dense layers first.
std::string config_json(const ModelConfig& config);

}  // namespace stemma
