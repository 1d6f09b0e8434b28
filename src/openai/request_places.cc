#include "openai/request_places.h"

namespace stemma {
namespace {

// Whether `path` is `place`, or lies in it, or is a text about one of them.
bool is_at(std::string_view path, std::string_view place) {
  if (!path.starts_with(place)) return false;
  if (path.size() == place.size()) return true;
  const char next = path[place.size()];
  return next == '.' || next == ':' || next == '[';
}

}  // namespace

void RequestPlaces::move(std::string& path) const {
  for (const auto& [in_chat, origin] : places_) {
    if (!is_at(path, in_chat)) continue;
    path.replace(0, in_chat.size(), origin);
    return;
  }
}

}  // namespace stemma
