// RedisServerState: what a server says of itself, in its answer to INFO.
//
// Thread:     values and pure functions; ask_server_state as RedisLane.
// Memory:     a few words.
// Cost:       one round trip, some kilobytes.
// Not here:   what follows from it (redis_page_store).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "store/redis_lane.h"

namespace stemma {

struct RedisServerState {
  // Of the server from its start to its end, and from one replication that fed it to another: in
  // another life it may have other values, and has their names in another order. Empty: it does
  // not say.
  std::string life;
};

RedisCommand server_state_question();
// Nothing where the answer was an error, or none came.
std::optional<RedisServerState> server_state(const RedisCommand& answered);

std::optional<RedisServerState> ask_server_state(RedisLane& servers, const RedisEndpoint& server,
                                                 std::int64_t deadline_us);

}  // namespace stemma
