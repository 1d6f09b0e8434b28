// RedisCounters: what the connections of a remote store did, counted.
//
// Thread:     any; relaxed atomics, each exact, together not of one moment.
// Memory:     a word each.
// Cost:       an atomic addition.
// Not here:   names of metrics (redis_page_store).
#pragma once

#include <atomic>
#include <cstdint>

namespace stemma {

struct RedisCounters {
  using Counter = std::atomic<std::int64_t>;
  Counter connects = 0;
  Counter connect_failures = 0;
  Counter lost_connections = 0;    // the server or the system ended them
  Counter missed_deadlines = 0;    // of an exchange; the connection was dropped
  Counter protocol_errors = 0;     // the same, for bytes that are not replies
  Counter redirects = 0;           // MOVED, ASK, and writes met by a replica
  Counter topology_refreshes = 0;  // maps of slots and primaries learned
  Counter error_replies = 0;       // other than redirects
  Counter breaker_openings = 0;
  Counter breaker_refusals = 0;  // commands that were not sent because of one
};

inline void count(RedisCounters::Counter& counter, std::int64_t more = 1) noexcept {
  counter.fetch_add(more, std::memory_order_relaxed);
}
inline std::int64_t counted(const RedisCounters::Counter& counter) noexcept {
  return counter.load(std::memory_order_relaxed);
}

}  // namespace stemma
