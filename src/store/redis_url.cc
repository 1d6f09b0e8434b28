#include "store/redis_url.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <utility>

namespace stemma {

// Refusals quote nothing of the text: where an @ was forgotten, any part of it may be the password.
namespace {

constexpr std::uint16_t kRedisPort = 6379;
constexpr std::uint16_t kSentinelPort = 26379;
constexpr std::size_t kUnixPathBytesMax = 107;  // of sockaddr_un
constexpr int kDatabaseMax = 65535;

Error wrong(std::string_view why) {
  return {ErrorCode::kInvalidArgument, fmt::format("redis URL: {}", why)};
}

template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// What stands before `separator`, which is taken off `text` with it; nothing if it is not there.
std::optional<std::string_view> take_before(std::string_view& text, std::string_view separator) {
  const std::size_t at = text.find(separator);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view before = text.substr(0, at);
  text.remove_prefix(at + separator.size());
  return before;
}

Result<std::string> percent_decoded(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    unsigned byte = 0;
    const std::string_view digits = text.substr(i + 1, 2);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
    if (error != std::errc() || digits.size() != 2 || end != digits.data() + 2) {
      return wrong("% in the user or password must be followed by two hexadecimal digits");
    }
    decoded += static_cast<char>(byte);
    i += 2;
  }
  return decoded;
}

// "[[user]:password@]" off the front of `rest`. The last @ ends it: a password may hold others.
Status take_login(std::string_view& rest, RedisUrl& url) {
  const std::size_t at = rest.rfind('@');
  if (at == std::string_view::npos) return {};
  std::string_view login = rest.substr(0, at);
  rest.remove_prefix(at + 1);
  const auto user = take_before(login, ":");
  if (!user) return wrong("before @ stands [user]:password");
  STEMMA_ASSIGN_OR_RETURN(url.user, percent_decoded(*user));
  STEMMA_ASSIGN_OR_RETURN(url.password, percent_decoded(login));
  if (url.password.empty()) return wrong("the password is empty");
  return {};
}

bool has_control_or_space(std::string_view text) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) <= ' ' || c == 0x7F) return true;
  }
  return false;
}

Result<RedisEndpoint> make_endpoint(std::string_view host, std::string_view port) {
  const auto number = parse_number<std::uint16_t>(port);
  if (!number || *number == 0) return wrong("a port is not a number from 1 to 65535");
  return RedisEndpoint{std::string(host), *number};
}

// "host", "host:port", "[address]:port".
Result<RedisEndpoint> parse_authority(std::string_view text, std::uint16_t default_port) {
  const std::string fallback = std::to_string(default_port);
  std::string_view host = text;
  std::string_view port = fallback;
  if (text.starts_with('[')) {
    const std::size_t close = text.find(']');
    if (close == std::string_view::npos) return wrong("[ without ]");
    host = text.substr(1, close - 1);
    const std::string_view after = text.substr(close + 1);
    if (!after.empty() && after[0] != ':') return wrong("after ] comes :port");
    if (!after.empty()) port = after.substr(1);
  } else if (const std::size_t colon = text.find(':'); colon != std::string_view::npos) {
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
  }
  if (host.empty() || has_control_or_space(host)) return wrong("a host is missing or not a name");
  return make_endpoint(host, port);
}

Status parse_endpoints(std::string_view text, std::uint16_t default_port, RedisUrl& url) {
  while (true) {
    const auto first = take_before(text, ",");
    STEMMA_ASSIGN_OR_RETURN(RedisEndpoint endpoint,
                            parse_authority(first.value_or(text), default_port));
    url.endpoints.push_back(std::move(endpoint));
    if (!first) return {};
    if (url.endpoints.size() == kRedisEndpointsMax) {
      return wrong(fmt::format("more than {} hosts", kRedisEndpointsMax));
    }
  }
}

Result<RedisUrl> parse_single(std::string_view rest) {
  RedisUrl url;
  STEMMA_RETURN_IF_ERROR(take_login(rest, url));
  const auto authority = take_before(rest, "/");
  if (authority && !rest.empty()) {
    const auto database = parse_number<int>(rest);
    if (!database || *database < 0 || *database > kDatabaseMax) {
      return wrong(fmt::format("a database is a number from 0 to {}", kDatabaseMax));
    }
    url.database = *database;
  }
  STEMMA_RETURN_IF_ERROR(parse_endpoints(authority.value_or(rest), kRedisPort, url));
  if (url.endpoints.size() != 1) {
    return wrong("redis:// names one server; several nodes of a cluster are redis-cluster://");
  }
  return url;
}

Result<RedisUrl> parse_cluster(std::string_view rest) {
  RedisUrl url;
  url.kind = RedisTopologyKind::kCluster;
  STEMMA_RETURN_IF_ERROR(take_login(rest, url));
  if (rest.ends_with('/')) rest.remove_suffix(1);
  if (rest.find('/') != std::string_view::npos) return wrong("a cluster has only database 0");
  STEMMA_RETURN_IF_ERROR(parse_endpoints(rest, kRedisPort, url));
  return url;
}

Result<RedisUrl> parse_sentinel(std::string_view rest) {
  RedisUrl url;
  url.kind = RedisTopologyKind::kSentinel;
  STEMMA_RETURN_IF_ERROR(take_login(rest, url));
  const auto authority = take_before(rest, "/");
  if (!authority || rest.empty() || has_control_or_space(rest)) {
    return wrong("redis-sentinel:// ends in /name, the name of the primary");
  }
  url.primary_name = rest;
  STEMMA_RETURN_IF_ERROR(parse_endpoints(*authority, kSentinelPort, url));
  return url;
}

Result<RedisUrl> parse_unix(std::string_view path) {
  if (path.empty() || path.size() > kUnixPathBytesMax || path.find('\0') != path.npos) {
    return wrong(fmt::format("unix:// needs a path of 1 to {} bytes", kUnixPathBytesMax));
  }
  RedisUrl url;
  url.endpoints = {{std::string(path), 0}};
  return url;
}

}  // namespace

std::string to_string(const RedisEndpoint& endpoint) {
  if (endpoint.port == 0) return endpoint.host;
  const bool bracketed = endpoint.host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", bracketed ? "[" : "", endpoint.host, bracketed ? "]" : "",
                     endpoint.port);
}

Result<RedisEndpoint> parse_redis_endpoint(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || has_control_or_space(text)) {
    return wrong("an endpoint is host:port");
  }
  return make_endpoint(text.substr(0, colon), text.substr(colon + 1));
}

Result<RedisUrl> parse_redis_url(std::string_view text) {
  const auto scheme = take_before(text, "://");
  if (scheme == "redis") return parse_single(text);
  if (scheme == "redis-cluster") return parse_cluster(text);
  if (scheme == "redis-sentinel") return parse_sentinel(text);
  if (scheme == "unix") return parse_unix(text);
  if (scheme == "rediss") {
    return Error{ErrorCode::kUnsupported,
                 "redis URL: rediss:// (TLS) is not built in; use redis:// to a TLS tunnel on this "
                 "machine, such as stunnel"};
  }
  return wrong("begins with redis://, redis-cluster://, redis-sentinel:// or unix://");
}

std::string redacted(const RedisUrl& url) {
  std::string hosts;
  for (const RedisEndpoint& endpoint : url.endpoints) {
    hosts += (hosts.empty() ? "" : ",") + to_string(endpoint);
  }
  switch (url.kind) {
    case RedisTopologyKind::kCluster:
      return "redis-cluster://" + hosts;
    case RedisTopologyKind::kSentinel:
      return "redis-sentinel://" + hosts + "/" + url.primary_name;
    case RedisTopologyKind::kSingle:
      break;
  }
  if (url.endpoints.front().port == 0) return "unix://" + hosts;
  return "redis://" + hosts + (url.database == 0 ? "" : fmt::format("/{}", url.database));
}

}  // namespace stemma
