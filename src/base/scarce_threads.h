// For tests, in a child of fork(): a system that has few threads left.
//
// Thread:     the whole process, until it says otherwise.
// Memory:     none; address space is what becomes scarce.
// Cost:       a few system calls.
// Not here:   anything that serves.
#pragma once

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>

namespace stemma {

// So many more threads can be started at a time: each gets a stack so large that there is no room
// for another one. False where the system does not let itself be limited.
inline bool limit_threads(rlim_t threads) {
  constexpr std::size_t kStackBytes = std::size_t{1} << 28;
  constexpr std::size_t kOtherBytes = kStackBytes / 2;
  pthread_attr_t attributes;
  if (::pthread_getattr_default_np(&attributes) != 0) return false;
  const bool is_set = ::pthread_attr_setstacksize(&attributes, kStackBytes) == 0 &&
                      ::pthread_setattr_default_np(&attributes) == 0;
  ::pthread_attr_destroy(&attributes);
  std::ifstream statm("/proc/self/statm");
  rlim_t pages = 0;
  if (!is_set || !(statm >> pages)) return false;
  const rlim_t used_bytes = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
  const rlim_t bytes = used_bytes + threads * kStackBytes + kOtherBytes;
  rlimit limit = {};
  if (::getrlimit(RLIMIT_AS, &limit) != 0) return false;
  limit.rlim_cur = bytes;
  return ::setrlimit(RLIMIT_AS, &limit) == 0;
}

}  // namespace stemma
