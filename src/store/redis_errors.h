// RedisErrors: what a server means by the first word of an error.
//
// Thread:     pure functions.
// Memory:     a host's name.
// Cost:       a few comparisons.
// Not here:   what is done about it (redis_lane for where, redis_page_store for what).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "store/redis_url.h"

namespace stemma {

enum class RedisErrorKind : std::uint8_t {
  kMoved,        // MOVED, ASK: another node has the key
  kUnavailable,  // LOADING, MASTERDOWN, CLUSTERDOWN, BUSY: later, perhaps
  kReadOnly,     // READONLY: a replica by now
  kNoRoom,       // OOM, MISCONF, NOREPLICAS: it takes no writes
  kWrongType,    // WRONGTYPE: what lies under the key is no value of ours
  kOther,        // TRYAGAIN, NOAUTH, NOPERM, ...: this command failed
};

RedisErrorKind redis_error_kind(std::string_view text);

// "MOVED 3999 127.0.0.1:6381", "ASK 3999 :6381".
struct RedisRedirect {
  bool ask = false;  // only for this command, and with ASKING before it
  std::uint16_t slot = 0;
  RedisEndpoint endpoint;  // an empty host: that of the node which answered
};

// Nothing unless it is a whole redirect to a known place.
std::optional<RedisRedirect> parse_redis_redirect(std::string_view text);

}  // namespace stemma
