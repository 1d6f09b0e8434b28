// The families of models with which I13 is tested: the names of their tiny configurations
// (model/tiny_config.h).
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "base/sanitizers.h"
#include "model/tiny_config.h"

namespace stemma {

// Those of `names` that this build tests: all of them, but with the thread sanitizer, which takes
// ten times as long, one of each kind of page (grouped heads, latent rows, windows), since threads
// meet over pages and not over a layer's arithmetic.
inline std::vector<std::string_view> tested_families(std::vector<std::string_view> names) {
  if (!kThreadsWatched) return names;
  std::erase_if(names, [](std::string_view name) {
    return name != "llama3" && name != "deepseek_v2" && name != "gemma3";
  });
  return names;
}

inline std::vector<std::string_view> every_family() {
  return tested_families(tiny_model_names());
}

// Families without windows, whose pages go through every tier by the same ways. Of those that write
// pages of one kind, the ones that differ in the arithmetic of a layer alone are left to the
// engine's own tests.
inline std::vector<std::string_view> tiered_families() {
  std::vector<std::string_view> names = tiny_names_without_windows();
  std::erase_if(names, [](std::string_view name) {
    return name == "qwen2_yarn" || name == "deepseek_v2_lite" || name == "deepseek_v3";
  });
  return tested_families(std::move(names));
}

// Families some of whose layers look back over a window only.
inline std::vector<std::string_view> windowed_families() {
  std::vector<std::string_view> names = tiny_model_names();
  std::erase_if(names,
                [](std::string_view name) { return tiny_model_config(name).windows.tokens == 0; });
  return tested_families(std::move(names));
}

}  // namespace stemma
