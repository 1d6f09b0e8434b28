#include "base/memory_room.h"

#include <algorithm>
#include <fstream>
#include <string_view>

#include "base/control_groups.h"

namespace stemma {
namespace {

// Left for everything else that a process touches: a sixteenth of the room, or this where it is
// less.
constexpr std::int64_t kSpareBytes = std::int64_t{64} << 20;

// nullopt: it is not there, or says "max".
std::optional<std::int64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  if (!(file >> number)) return std::nullopt;
  return number;
}

// Of a file with a name and a number a line; 0 where it has no such name.
std::int64_t number_of(const std::string& path, std::string_view wanted) {
  std::ifstream file(path);
  std::string name;
  for (std::int64_t number = 0; file >> name >> number;) {
    if (name == wanted) return number;
  }
  return 0;
}

struct GroupFiles {
  const char* limit;
  const char* used;
  const char* inactive_files;  // in memory.stat, with those of the groups within
  const char* active_files;
};

constexpr GroupFiles kFilesOfOne = {"/memory.limit_in_bytes", "/memory.usage_in_bytes",
                                    "total_inactive_file", "total_active_file"};
constexpr GroupFiles kFilesOfTwo = {"/memory.max", "/memory.current", "inactive_file",
                                    "active_file"};

std::optional<std::int64_t> room_in(const ControlGroup& group) {
  const GroupFiles& files = group.version == GroupVersion::kTwo ? kFilesOfTwo : kFilesOfOne;
  const auto limit = number_in(group.directory + files.limit);
  const auto used = number_in(group.directory + files.used);
  if (!limit.has_value() || !used.has_value()) return std::nullopt;
  const std::string stat = group.directory + "/memory.stat";
  const std::int64_t taken_back =
      number_of(stat, files.inactive_files) + number_of(stat, files.active_files);
  return *limit - std::max<std::int64_t>(*used - taken_back, 0);
}

// In lines of "NAME: NUMBER kB".
std::optional<std::int64_t> room_in_machine(const std::string& root) {
  std::ifstream file(root + "/proc/meminfo");
  for (std::string name; file >> name;) {
    std::int64_t kilobytes = 0;
    if (name == "MemAvailable:" && file >> kilobytes) return kilobytes * 1024;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::int64_t> memory_room(const std::string& root) {
  std::optional<std::int64_t> least = room_in_machine(root);
  for (const ControlGroup& group : control_groups("memory", root)) {
    if (const auto room = room_in(group)) least = std::min(least.value_or(*room), *room);
  }
  if (least.has_value()) least = std::max<std::int64_t>(*least, 0);
  return least;
}

Status check_memory_room(std::int64_t bytes, const std::string& root) {
  const auto room = memory_room(root);
  if (!room.has_value() || bytes <= *room - std::min(*room / 16, kSpareBytes)) return {};
  return Error{ErrorCode::kOutOfMemory, "cannot have " + std::to_string(bytes) +
                                            " bytes of host memory: there is room for " +
                                            std::to_string(*room) +
                                            ", as /proc/meminfo and the control groups say"};
}

}  // namespace stemma
