// RedisLane: commands of one thread to whichever servers hold their keys.
//
// A lane has its own connection to each server, its own breaker for each (a dead node of a cluster
// keeps nobody from the others), and its own notion of who holds what: one server; the primary that
// sentinels name; or a cluster's map of slots. The notion is asked for when it is first needed and
// again, not too often, when a server was lost or said MOVED or READONLY. MOVED and ASK are
// followed a few times, then the command counts as failed.
//
// A connection that could not be made opens the breaker at once, so that an outage costs one
// connect timeout; errors and deadlines missed on a connection open it after some in a row.
//
// Thread:     one thread at a time.          Invariants: I9, I10 (docs/INVARIANTS.md).
// Memory:     one connection a server, at most kClusterNodesMax; 32 KiB of slots in a cluster.
// Cost:       one exchange a server that is asked, one after the other.
// Not here:   what commands mean (redis_page_store), bytes (redis_connection).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "stemma/result.h"
#include "store/cluster_slots.h"
#include "store/host_lookup.h"
#include "store/redis_connection.h"
#include "store/redis_counters.h"
#include "store/redis_errors.h"
#include "store/redis_given_up.h"
#include "store/redis_url.h"
#include "tier/breaker.h"

namespace stemma {

struct RedisLaneOptions {
  RedisUrl url;
  std::int64_t connect_us_max = 250'000;  // of a connection, its login included
  std::int64_t refresh_us = 250'000;      // between two questions of who holds what
  BreakerOptions breaker;
};

class RedisLane {
 public:
  // `counters`, `given_up` and `clock` must outlive it.
  RedisLane(RedisLaneOptions options, RedisCounters& counters, RedisGivenUp& given_up,
            const Clock& clock);

  // Sends each command to its server and sets `reply` on those that were answered, in any order of
  // servers. Those that are not answered by `deadline_us` stay so. A command whose `reply` is an
  // error was answered. Returns the first command, if any, whose value was longer than its target.
  RedisCommand* run(std::span<RedisCommand> commands, std::int64_t deadline_us);

  // The servers on which values lie, each once, as is asked for now; none where nobody says so, and
  // where a cluster does not name a primary of every slot: one it does not name may have values.
  std::vector<RedisEndpoint> ask_primaries(std::int64_t deadline_us);
  // As run, by one of these servers, whatever the commands' keys.
  void run_at(const RedisEndpoint& server, std::span<RedisCommand> commands,
              std::int64_t deadline_us);
  // Whether the server has carried out, or never will, what any lane gave up writing to it by now.
  // A later call goes on where this one ended.
  bool outlast_given_up(const RedisEndpoint& server, std::int64_t deadline_us);
  bool is_cluster() const noexcept { return options_.url.kind == RedisTopologyKind::kCluster; }
  // How often the answer to which server holds what has changed.
  std::int64_t map_changes() const noexcept { return map_changes_; }

  // Servers that were not asked, or not with success, at the end of the last run. Any thread.
  std::int64_t open_breakers() const noexcept { return open_breakers_.load(); }

 private:
  struct Node {
    Node(RedisEndpoint where, const Clock& clock, const BreakerOptions& breaker_options)
        : endpoint(std::move(where)), breaker(clock, breaker_options) {}
    RedisEndpoint endpoint;
    Breaker breaker;
    std::unique_ptr<RedisConnection> connection;
  };
  // A command and the node that is to answer it.
  struct Errand {
    RedisCommand* command;
    Node* node;  // nullptr: nobody knows
  };

  Node* node_of(const RedisCommand& command);
  Node* find_or_add(const RedisEndpoint& endpoint);
  void run_round(std::span<Errand> errands, std::int64_t deadline_us);
  void serve(Node& node, std::span<RedisCommand* const> commands, std::int64_t deadline_us);
  bool try_connect(Node& node, const RedisLogin& login, std::int64_t deadline_us);
  // Whether all were answered, on a connection that is made if there is none.
  bool try_exchange(Node& node, const RedisLogin& login, std::span<RedisCommand* const> commands,
                    std::int64_t deadline_us);
  // Whether the answer sends the command elsewhere; `errand` is then ready for another round.
  bool try_redirect(Errand& errand);

  void refresh_if_stale(std::int64_t deadline_us);
  bool try_ask(Node& node, std::int64_t deadline_us);
  Status adopt_map(const RespReply& reply, const RedisEndpoint& asked);
  Status adopt_primary(const RespReply& reply);
  // Forgets those that were heard of, but for `kept`.
  bool is_as_before(const ClusterMap& map) const;
  void prune(const std::vector<Node*>& kept);

  // An operation on the node went wrong: counts it, tells the breaker, drops the connection.
  void note_failure(Node& node, const Error& error, bool trip);
  void report(const RedisEndpoint& endpoint, std::string_view error);
  void count_open_breakers();

  const RedisLaneOptions options_;
  RedisCounters& counters_;
  RedisGivenUp& given_up_;
  const Clock& clock_;
  HostLookup lookup_;
  RedisLogin login_;
  // First those of the URL, then those that were heard of. Behind pointers, because errands and
  // slots point at them.
  std::vector<std::unique_ptr<Node>> nodes_;
  std::size_t named_nodes_ = 0;      // those of the URL
  Node* primary_ = nullptr;          // of one server, and of sentinels
  std::vector<Node*> node_of_slot_;  // [kRedisSlots], of a cluster
  std::int64_t map_changes_ = 0;
  bool stale_ = false;
  std::int64_t refresh_at_us_ = INT64_MIN;
  std::int64_t report_at_us_ = INT64_MIN;
  RedisCommand* too_long_ = nullptr;  // of this run
  std::atomic<std::int64_t> open_breakers_ = 0;
};

}  // namespace stemma
