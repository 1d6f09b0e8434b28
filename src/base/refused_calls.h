// For tests: a system call that is refused, as filters of containers do.
//
// Thread:     the filter is of the one that calls it and those that it starts later, for as long as
//             they live.
// Memory:     none.
// Cost:       none worth noting.
// Not here:   anything that serves.
#pragma once

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace stemma {

inline bool filter_system_calls(std::span<sock_filter> program) {
  const sock_fprog filter = {.len = static_cast<unsigned short>(program.size()),
                             .filter = program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

// False where the system allows no filter.
inline bool refuse_system_call(std::uint32_t number, std::uint32_t sys_errno) {
  std::array<sock_filter, 4> program = {{
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, number},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | sys_errno},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  }};
  return filter_system_calls(program);
}

// Refuses those calls of which an argument, counted from 0, has these bits (BPF_JSET), or this
// value (BPF_JEQ). False as above.
inline bool refuse_calls_with(std::uint32_t number, std::uint32_t argument, std::uint16_t test,
                              std::uint32_t value, std::uint32_t sys_errno) {
  const auto place =
      static_cast<std::uint32_t>(offsetof(seccomp_data, args) + argument * sizeof(std::uint64_t));
  std::array<sock_filter, 6> program = {{
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 3, number},
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, place},
      {static_cast<std::uint16_t>(BPF_JMP | test | BPF_K), 0, 1, value},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | sys_errno},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  }};
  return filter_system_calls(program);
}

// Directories cannot be opened; other files can. False as above.
inline bool refuse_opening_directories(std::uint32_t sys_errno) {
  return refuse_calls_with(SYS_openat, 2, BPF_JSET, O_DIRECTORY, sys_errno);
}

// Nothing is told of names; of open files it is. False as above.
inline bool refuse_stat_of_names(std::uint32_t sys_errno) {
  return refuse_calls_with(SYS_newfstatat, 3, BPF_JEQ, AT_SYMLINK_NOFOLLOW, sys_errno);
}

}  // namespace stemma
