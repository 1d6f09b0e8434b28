// CodedConfig: how a model's files store matrices in fewer bits than are computed with, as the
// `quantization_config` of config.json says it, which older files call `compression_config`.
//
// 8 bits with scales (float8_config, int8_config), or 4 or 8 bits packed in words, with scales and
// zero points (packed_int_config). What the section says of activations and of the KV cache is
// advice for computing in fewer bits: here codes become numbers when they are read, or are kept
// where rounded weights have the same form.
//
// Thread:     values and pure functions.
// Memory:     a few integers.
// Cost:       a parse at start-up.
// Not here:   what codes stand for (coded_matrix), the rest of config.json (config).
#pragma once

#include <variant>

#include "model/float8_config.h"
#include "model/int8_config.h"
#include "model/packed_int_config.h"

namespace stemma {

class JsonFields;

// Nothing: files hold numbers.
using CodedConfig = std::variant<std::monostate, Float8Config, Int8Config, PackedIntConfig>;

// Reads that section, if there is one. What is wrong in it, or stores weights in a way that is not
// read here, is remembered in `fields`.
CodedConfig read_coded(JsonFields& fields);

}  // namespace stemma
