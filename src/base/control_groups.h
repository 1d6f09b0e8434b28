// ControlGroups: the control groups that this process is in, and those around them, as containers
// limit what a process may use of a machine (docker --cpus and --memory, Kubernetes' limits).
//
// Thread:     any.
// Memory:     the paths that are returned.
// Cost:       reads a file below /proc.
// Not here:   what the files of a group say (cpu_quota, memory_room).
//
// Source: Linux, Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/cgroups.rst.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stemma {

enum class GroupVersion : std::uint8_t { kOne, kTwo };  // whose files have other names

struct ControlGroup {
  std::string directory;  // which may not be there
  GroupVersion version = GroupVersion::kTwo;
};

// Of `resource` ("cpu", "memory"), each before those around it. `root`: where /proc and /sys lie.
std::vector<ControlGroup> control_groups(std::string_view resource, const std::string& root);

}  // namespace stemma
