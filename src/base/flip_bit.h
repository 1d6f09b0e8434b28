// Flips a bit of a file, as a bad disk does: for tests.
//
// Thread:     any, for a file that nobody else writes.
// Memory:     none.
// Cost:       a byte read and written.
// Not here:   files that fail (faulty_files).
#pragma once

#include <cstddef>
#include <fstream>
#include <string>

namespace stemma {

// REQUIRES: the file has a byte at `at`.
inline void flip_bit(const std::string& path, std::size_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const char byte = static_cast<char>(file.get() ^ 16);
  file.seekp(static_cast<std::streamoff>(at));
  file.put(byte);
}

}  // namespace stemma
