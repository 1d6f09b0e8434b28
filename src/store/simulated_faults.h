// SimulatedFaults: what goes wrong on a simulated disk, as a test sets it.
//
// Thread:     one.
// Memory:     a few words.
// Cost:       none.
// Not here:   what that does to files (simulated_disk).
#pragma once

#include <cerrno>
#include <cstdint>
#include <limits>
#include <optional>

namespace stemma {

enum class DiskVerb : std::uint8_t {
  kOpen,
  kCreate,
  kAllocate,
  kRename,
  kRemove,
  kSync,
  kSyncDirectory,
  kWrite,
  kRead
};

struct SimulatedFaults {
  std::int64_t fail_at = -1;  // the operation of this number, counted from 0, fails
  std::int64_t power_off_at = std::numeric_limits<std::int64_t>::max();  // none from this one on
  std::optional<DiskVerb> failing = {};  // every operation of this kind fails
  int sys_errno = EIO;                   // of both
  double error_share = 0;                // of all operations fail with EIO
  double flip_share = 0;                 // of reads come back with a bit flipped
  double misdirected_share = 0;          // of reads come from another place of the file
  double hang_share = 0;                 // of operations end after their deadline, or never
  std::int64_t latency_us = 0;           // of each operation
  bool starts_late = true;               // what is asked for when its deadline is over
  std::int64_t space_bytes = std::numeric_limits<std::int64_t>::max();
  int full_errno = ENOSPC;  // where there is no more
  bool tells_sizes = true;  // of files
};

}  // namespace stemma
