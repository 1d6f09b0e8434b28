// CpuQuota: how much of the machine's CPUs the control groups of this process leave it, as
// containers limit them (docker --cpus, Kubernetes' limits): threads beyond that wait for each
// other most of the time.
//
// Thread:     any.
// Memory:     none that stays.
// Cost:       reads some files below /proc and /sys.
// Not here:   on which CPUs it may run (usable_cpus).
//
// Source: Linux, Documentation/admin-guide/cgroup-v2.rst (cpu.max) and cgroup-v1
// (cpu.cfs_quota_us).
#pragma once

#include <optional>
#include <string>

namespace stemma {

// CPUs' worth of time, rounded up, at least 1: the least that a group around the process has, of
// either version. nullopt: no limit, or none that can be read. `root`: where /proc and /sys lie.
std::optional<int> cpu_quota(const std::string& root = "");

// How many threads keep the process busy: usable_cpus(), or what the quota leaves of them.
int busy_threads();

}  // namespace stemma
