// Version: the one place where Stemma's version and its arithmetic revision are written.
//
// Thread:     constants.
// Memory:     none.
// Cost:       none.
// Not here:   which features a build has (`stemma --version` prints them).
#pragma once

#include <cstdint>
#include <string_view>

namespace stemma {

// Semantic version of the library and the command.
inline constexpr std::string_view kVersion = "0.1.0";

// Raised whenever a kernel, or what files are read as, may give other bits than before. Part of
// every namespace, so that pages computed by an older arithmetic are never mixed with pages of a
// newer one (I13).
inline constexpr std::int32_t kArithmeticRevision = 5;

}  // namespace stemma
