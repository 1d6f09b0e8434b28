#include "store/redis_errors.h"

#include <array>
#include <charconv>
#include <utility>

#include "store/cluster_slots.h"

namespace stemma {

namespace {

constexpr std::array<std::pair<std::string_view, RedisErrorKind>, 11> kKinds = {{
    {"MOVED", RedisErrorKind::kMoved},
    {"ASK", RedisErrorKind::kMoved},
    {"LOADING", RedisErrorKind::kUnavailable},
    {"MASTERDOWN", RedisErrorKind::kUnavailable},
    {"CLUSTERDOWN", RedisErrorKind::kUnavailable},
    {"BUSY", RedisErrorKind::kUnavailable},
    {"READONLY", RedisErrorKind::kReadOnly},
    {"OOM", RedisErrorKind::kNoRoom},
    {"MISCONF", RedisErrorKind::kNoRoom},
    {"NOREPLICAS", RedisErrorKind::kNoRoom},
    {"WRONGTYPE", RedisErrorKind::kWrongType},
}};

std::string_view take_word(std::string_view& text) {
  const std::string_view word = text.substr(0, text.find(' '));
  text.remove_prefix(std::min(word.size() + 1, text.size()));
  return word;
}

}  // namespace

RedisErrorKind redis_error_kind(std::string_view text) {
  const std::string_view first = take_word(text);
  for (const auto& [word, kind] : kKinds) {
    if (word == first) return kind;
  }
  return RedisErrorKind::kOther;
}

std::optional<RedisRedirect> parse_redis_redirect(std::string_view text) {
  RedisRedirect redirect;
  const std::string_view first = take_word(text);
  if (first != "MOVED" && first != "ASK") return std::nullopt;
  redirect.ask = first == "ASK";
  const std::string_view slot = take_word(text);
  const auto [end, error] = std::from_chars(slot.data(), slot.data() + slot.size(), redirect.slot);
  if (error != std::errc() || end != slot.data() + slot.size() || redirect.slot >= kRedisSlots) {
    return std::nullopt;
  }
  auto endpoint = parse_redis_endpoint(text);
  // "?" is a node that does not know its own name.
  if (!endpoint.ok() || endpoint->host == "?") return std::nullopt;
  redirect.endpoint = *std::move(endpoint);
  return redirect;
}

}  // namespace stemma
