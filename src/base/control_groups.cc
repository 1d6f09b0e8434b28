#include "base/control_groups.h"

#include <fstream>
#include <sstream>
#include <utility>

#include "base/file.h"

namespace stemma {
namespace {

// Within a container what is mounted may be the group itself, so that its path is not found there:
// then its files lie at the top.
void append_groups(const std::string& mounted, std::string path, GroupVersion version,
                   std::vector<ControlGroup>& groups) {
  while (true) {
    groups.push_back({mounted + path, version});
    if (path.find_first_not_of('/') == std::string::npos) return;
    path.erase(path.rfind('/'));
  }
}

bool has_name(const std::string& names, std::string_view wanted) {
  std::stringstream each(names);
  for (std::string name; std::getline(each, name, ',');) {
    if (name == wanted) return true;
  }
  return false;
}

}  // namespace

std::vector<ControlGroup> control_groups(std::string_view resource, const std::string& root) {
  const std::string mounted = root + "/sys/fs/cgroup";
  const std::string of_its_own = join_path(mounted, std::string(resource));
  std::vector<ControlGroup> groups;
  std::ifstream lines(root + "/proc/self/cgroup");
  for (std::string line; std::getline(lines, line);) {  // NUMBER:RESOURCES:PATH
    const std::size_t resources = line.find(':') + 1;
    const std::size_t path = line.find(':', resources) + 1;
    if (resources == 0 || path == 0) continue;
    const std::string names = line.substr(resources, path - 1 - resources);
    const std::string group = line.substr(path);
    if (names.empty()) {
      append_groups(mounted, group, GroupVersion::kTwo, groups);
      append_groups(mounted + "/unified", group, GroupVersion::kTwo, groups);
    } else if (has_name(names, resource)) {
      append_groups(join_path(mounted, names), group, GroupVersion::kOne, groups);
      if (names != resource) append_groups(of_its_own, group, GroupVersion::kOne, groups);
    }
  }
  return groups;
}

}  // namespace stemma
