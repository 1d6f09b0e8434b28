#include "base/cpu_quota.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string_view>

#include "base/file.h"
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

using Limit = std::optional<double> (*)(const std::string& group);

// The least limit of a group and those around it. Within a container what is mounted may be the
// group itself, so that its path is not found there: then its files lie at the top.
void take_limits(const std::string& mounted, std::string path, Limit limit,
                 std::optional<double>& least) {
  while (true) {
    if (const auto one = limit(mounted + path)) least = std::min(least.value_or(*one), *one);
    if (path.find_first_not_of('/') == std::string::npos) return;
    path.erase(path.rfind('/'));
  }
}

bool names_cpu(std::string_view controllers) {
  std::stringstream names{std::string(controllers)};
  for (std::string name; std::getline(names, name, ',');) {
    if (name == "cpu") return true;
  }
  return false;
}

}  // namespace

std::optional<int> cpu_quota(const std::string& root) {
  const std::string mounted = root + "/sys/fs/cgroup";
  std::ifstream groups(root + "/proc/self/cgroup");
  std::optional<double> least;
  for (std::string line; std::getline(groups, line);) {  // NUMBER:CONTROLLERS:PATH
    const std::size_t controllers = line.find(':') + 1;
    const std::size_t path = line.find(':', controllers) + 1;
    if (controllers == 0 || path == 0) continue;
    const std::string names = line.substr(controllers, path - 1 - controllers);
    const std::string group = line.substr(path);
    if (names.empty()) {
      take_limits(mounted, group, limit_of_v2, least);
      take_limits(mounted + "/unified", group, limit_of_v2, least);
    } else if (names_cpu(names)) {
      take_limits(join_path(mounted, names), group, limit_of_v1, least);
      if (names != "cpu") take_limits(mounted + "/cpu", group, limit_of_v1, least);
    }
  }
  if (!least.has_value()) return std::nullopt;
  return static_cast<int>(std::clamp(std::ceil(*least), 1.0, 1e6));
}

int busy_threads() {
  const int cpus = usable_cpus();
  return std::min(cpus, cpu_quota().value_or(cpus));
}

}  // namespace stemma
