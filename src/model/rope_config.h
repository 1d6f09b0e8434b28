// RopeConfig: how rotary position embedding turns heads, as config.json says it.
//
// Older files have rope_scaling beside rope_theta, newer ones rope_parameters with both in it, or
// with one object for each type of layer (Gemma-3). What such an object names and its type does not
// have is refused, for it would change angles or scores.
//
// Thread:     values and pure functions.
// Memory:     some hundred bytes.
// Cost:       a parse at start-up.
// Not here:   the angles (rope), the rest of config.json (config).
#pragma once

#include <cstdint>
#include <string_view>

namespace stemma {

class JsonFields;
enum class ModelFamily : std::uint8_t;

// Rotary position embedding (Su et al. 2021): pair i of a head turns by position × theta^(−2i /
// head_dim).
struct RopeConfig {
  enum class Scaling : std::uint8_t {
    kNone,
    kLinear,  // positions divided by `factor`
    kLlama3,  // slow pairs divided by `factor`, fast ones kept, a ramp between (Llama 3.1)
    kYarn,    // the same with the ramp over the pairs, and longer vectors (Peng et al. 2023)
  };

  double theta = 10000.0;
  Scaling scaling = Scaling::kNone;
  double factor = 1.0;
  double low_frequency_factor = 1.0;
  double high_frequency_factor = 4.0;
  std::int64_t original_context_tokens = 8192;
  double fast_turns = 32.0;  // kYarn: pairs that turn at least this often in the original context
  double slow_turns = 1.0;   // are kept, those that turn at most this often divided
  // kYarn: how much longer turned vectors get, and which part of it scores take back in latent
  // attention; attention_factor, unless 0, is the length itself, and length_factor multiplies it
  // where it is not (vector_length in rope.h).
  double mscale = 1.0;
  double mscale_all_dim = 0.0;
  double attention_factor = 0.0;
  double length_factor = 1.0;

  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

std::string_view rope_scaling_name(
    RopeConfig::Scaling scaling);  // "none", "linear", "llama3", "yarn"

// Reads it for the layers without a window; `usual_theta` where the file says none. What is missing
// or wrong, or cannot be computed, is remembered in `fields`.
RopeConfig read_rope(JsonFields& fields, ModelFamily family, double usual_theta);

// The same for layers with a window of a family that turns them otherwise: Gemma-3.
RopeConfig read_windowed_rope(JsonFields& fields);

}  // namespace stemma
