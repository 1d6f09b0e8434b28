// RedisUrl: which Redis or Valkey, from one line of the command line.
//
//   redis://[[user]:password@]host:port[/db]              one server
//   redis-cluster://[[user]:password@]h1:p1,h2:p2         some nodes of a cluster
//   redis-sentinel://[[user]:password@]h1:p1,h2:p2/name   sentinels, and what they call the primary
//   unix://path                                           one server on this machine
//
// User and password are for the servers that hold pages; sentinels are asked without. In them,
// %XX stands for a byte, so that they may hold any. The port is 6379 where it is left out, for
// sentinels 26379. IPv6 addresses stand in brackets.
//
// Thread:     values.
// Memory:     a few strings; at most kRedisEndpointsMax endpoints.
// Cost:       one pass over the text.
// Not here:   what names resolve to, connections (redis_connection).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stemma/result.h"

namespace stemma {

inline constexpr std::size_t kRedisEndpointsMax = 64;

// Where a server listens.
struct RedisEndpoint {
  std::string host;  // a name or an address without brackets; a path if port is 0
  std::uint16_t port = 0;
  friend auto operator<=>(const RedisEndpoint&, const RedisEndpoint&) = default;
};

// "host:port", "[::1]:port", or the path.
std::string to_string(const RedisEndpoint& endpoint);

// "host:port" as servers write it in redirects: what follows the last colon is the port. An empty
// host stays empty. kInvalidArgument.
Result<RedisEndpoint> parse_redis_endpoint(std::string_view text);

enum class RedisTopologyKind : std::uint8_t { kSingle, kCluster, kSentinel };

struct RedisUrl {
  RedisTopologyKind kind = RedisTopologyKind::kSingle;
  std::vector<RedisEndpoint> endpoints;  // at least one; exactly one for kSingle
  std::string user;                      // empty: the default user
  std::string password;                  // empty: no AUTH is sent
  int database = 0;                      // kSingle only
  std::string primary_name;              // kSentinel only
};

// kInvalidArgument or kUnsupported (rediss://), in one line that never shows a password.
Result<RedisUrl> parse_redis_url(std::string_view text);

// The URL without user and password, for logs and tools.
std::string redacted(const RedisUrl& url);

}  // namespace stemma
