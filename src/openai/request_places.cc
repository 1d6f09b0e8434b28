#include "openai/request_places.h"

#include <algorithm>
#include <string_view>

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

void copy_fields_of_chats(const TemplateJson& body, std::span<const char* const> others,
                          TemplateJson& chat) {
  for (const auto& [name, value] : body.items()) {
    if (std::find(others.begin(), others.end(), name) == others.end()) chat[name] = value;
  }
}

ApiResult<CompletionRequest> chat_request_of(const TemplateJson& chat, const RequestRules& rules,
                                             const RequestPlaces& places) {
  ApiResult<CompletionRequest> read = completion_request_of(CompletionKind::kChat, chat, rules);
  if (auto* const wrong = std::get_if<ApiError>(&read)) {
    places.move(wrong->param);
    places.move(wrong->message);
  } else {
    places.move(std::get<CompletionRequest>(read).form.path);
  }
  return read;
}

}  // namespace stemma
