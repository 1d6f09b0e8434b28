// RedisServerState: what a server says of itself and of its replicas, in its answer to INFO.
//
// Replication is asynchronous: what a primary has removed its replicas have later, and one that
// takes its place before that brings it back. WAIT alone does not tell that they have it: it speaks
// of what was last written on the same connection, which may be another by now, and not of what
// others removed. INFO says how far each has come; WAIT makes them say so at once.
//
// Thread:     values and pure functions; the others as RedisLane.
// Memory:     a few words.
// Cost:       a question: one round trip, some kilobytes.
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
  std::int64_t written = 0;  // bytes of what it has for replicas
  // How many replicas are connected to it, and how far the one that has least of that has come.
  std::int64_t replicas = 0;
  std::int64_t replicas_have = 0;
  // Bytes that it may hold, 0: as many as there are; and what it gives up for more, in its own word
  // ("allkeys-lru"). Nothing and empty: it does not say.
  std::optional<std::int64_t> room_bytes;
  std::string eviction;

  bool replicas_follow(std::int64_t bytes) const { return replicas == 0 || replicas_have >= bytes; }
};

RedisCommand server_state_question();
// Nothing where the answer was an error, or none came.
std::optional<RedisServerState> server_state(const RedisCommand& answered);

std::optional<RedisServerState> ask_server_state(RedisLane& servers, const RedisEndpoint& server,
                                                 std::int64_t deadline_us);

// Whether the replicas that are connected to the server have what it has now. Waits for them some
// half a second at most, and not beyond the deadline; false too where the server does not answer.
bool wait_for_replicas(RedisLane& servers, const RedisEndpoint& server, const Clock& clock,
                       std::int64_t deadline_us);

}  // namespace stemma
