// WindowConfig: which layers of a model look back over a window of tokens only, as config.json says
// it.
//
// Mistral: all layers, where there is a window at all. Gemma-2: every other one; Gemma-3: all but
// every sixth. Qwen, where the switch is set: those from max_window_layers on, of a mixture of
// experts all. Newer files of any of them list the layers.
//
// Thread:     values and pure functions.
// Memory:     one bit a layer.
// Cost:       a parse at start-up.
// Not here:   windowed pages (cache/), attention (attention/), the rest of config.json (config).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace stemma {

class JsonFields;
enum class ModelFamily : std::uint8_t;

struct WindowConfig {
  std::int64_t tokens = 0;  // that a query sees, its own the last of them; 0: no layer has a window
  std::vector<bool> layers;  // which layers have one; empty without windows

  bool at_layer(std::int64_t layer) const {
    return tokens > 0 && layers[static_cast<std::size_t>(layer)];
  }
  std::int64_t count() const { return std::count(layers.begin(), layers.end(), true); }
  // The place of a layer among those of its group: with a window, or without.
  std::int64_t place(std::int64_t layer) const {
    const auto end = layers.begin() + (tokens > 0 ? layer : 0);
    return tokens > 0 ? std::count(layers.begin(), end, at_layer(layer)) : layer;
  }

  friend bool operator==(const WindowConfig&, const WindowConfig&) = default;
};

// Reads it for a model of `layers` layers; what is missing or wrong, or cannot be computed, is
// remembered in `fields`.
WindowConfig read_windows(JsonFields& fields, ModelFamily family, std::int64_t layers);

}  // namespace stemma
