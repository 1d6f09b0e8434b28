#include "base/cpu_quota.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "base/control_groups.h"
#include "base/thread_pool.h"

namespace stemma {
namespace {

// As cpu.max writes it: "max 100000", or microseconds of time in a period.
std::optional<double> cpus_of(std::istream& quota_and_period) {
  double quota = 0;
  double period = 0;
  if (!(quota_and_period >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

std::optional<double> limit_of_v2(const std::string& group) {
  std::ifstream file(group + "/cpu.max");
  return cpus_of(file);
}

std::optional<double> limit_of_v1(const std::string& group) {
  std::ifstream quota(group + "/cpu.cfs_quota_us");
  std::ifstream period(group + "/cpu.cfs_period_us");
  std::stringstream both;
  both << quota.rdbuf() << ' ' << period.rdbuf();
  return cpus_of(both);
}

}  // namespace

std::optional<int> cpu_quota(const std::string& root) {
  std::optional<double> least;
  for (const ControlGroup& group : control_groups("cpu", root)) {
    const auto limit = group.version == GroupVersion::kTwo ? limit_of_v2(group.directory)
                                                           : limit_of_v1(group.directory);
    if (limit.has_value()) least = std::min(least.value_or(*limit), *limit);
  }
  if (!least.has_value()) return std::nullopt;
  return static_cast<int>(std::clamp(std::ceil(*least), 1.0, 1e6));
}

int busy_threads() {
  const int cpus = usable_cpus();
  return std::min(cpus, cpu_quota().value_or(cpus));
}

}  // namespace stemma
