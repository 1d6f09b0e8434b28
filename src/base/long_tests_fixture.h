// For tests: whether they may take as long as it takes to draw many times more.
//
// Thread:     any.
// Memory:     none.
// Cost:       a look at the environment.
// Not here:   how much more, which each test says.
#pragma once

#include <cstdlib>
#include <string_view>

namespace stemma {

inline bool long_tests() {
  const char* const wish = std::getenv("STEMMA_LONG_TESTS");
  return wish != nullptr && std::string_view(wish) == "1";
}

}  // namespace stemma
