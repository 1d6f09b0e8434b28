// Which of a Runner's adapters has a name.
//
// Thread:     a pure function.
// Memory:     none.
// Cost:       O(adapters).
// Not here:   loading them (model/adapter).
#pragma once

#include <algorithm>
#include <string_view>

#include "stemma/runner.h"

namespace stemma {

// nullptr if none has, as none has the empty name.
inline const AdapterIdentity* find_adapter_or_null(const Runner& runner, std::string_view name) {
  const auto adapters = runner.adapters();
  const auto found = std::find_if(adapters.begin(), adapters.end(),
                                  [&](const AdapterIdentity& one) { return one.name == name; });
  return name.empty() || found == adapters.end() ? nullptr : &*found;
}

}  // namespace stemma
