// Bytes of the process that memory backs now, for tests and benchmarks of what is held.
//
// Thread:     any.
// Memory:     none.
// Cost:       reading a file of the kernel's.
// Not here:   what of them the heap has (heap_counter).
#pragma once

#include <unistd.h>

#include <cstdint>
#include <fstream>

#include "stemma/result.h"

namespace stemma {

// kIo where the kernel does not say.
inline Result<std::int64_t> resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t total_pages = 0;
  std::int64_t resident_pages = 0;
  if (!(file >> total_pages >> resident_pages)) {
    return Error{ErrorCode::kIo, "/proc/self/statm does not say what is resident"};
  }
  return resident_pages * ::sysconf(_SC_PAGESIZE);
}

}  // namespace stemma
