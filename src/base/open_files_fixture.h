// For tests: which files this process has open.
//
// Thread:     any.
// Memory:     none.
// Cost:       a look at every descriptor.
// Not here:   anything that serves.
#pragma once

#include <cstdint>
#include <filesystem>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>

namespace stemma {

// How many.
inline std::int64_t count_open() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all)) - 1;  // the listing's own
}

// Whether anybody has a file open whose path begins so, also one whose name has gone since.
inline bool is_any_open(std::string_view path) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the listing's own
    if (std::filesystem::read_symlink(entry.path(), gone).string().starts_with(path)) return true;
  }
  return false;
}

}  // namespace stemma
