// MemoryRoom: how much more memory the system will back for this process. A mapping of any length
// may be had: what it lacks then shows when its pages are touched, and ends the process.
//
// Thread:     any.
// Memory:     none that stays.
// Cost:       reads some files below /proc and /sys.
// Not here:   the memory itself (device/buffer), memory of other devices.
//
// Source: Linux, Documentation/filesystems/proc.rst (MemAvailable), admin-guide/cgroup-v2.rst
// (memory.max, memory.current, memory.stat) and cgroup-v1/memory.rst (memory.limit_in_bytes, …).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "stemma/result.h"

namespace stemma {

// Bytes, at least 0: the least that the machine has and that groups around the process leave, of
// either version. Pages of files, which the system takes back, count as free; swap does not count.
// nullopt: nothing says how much. `root`: where /proc and /sys lie.
std::optional<std::int64_t> memory_room(const std::string& root = "");

// kOutOfMemory with both numbers if `bytes`, which are about to be touched, are more than there is
// room for beside what else a process needs.
Status check_memory_room(std::int64_t bytes, const std::string& root = "");

}  // namespace stemma
