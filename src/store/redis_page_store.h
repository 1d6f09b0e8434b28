// RedisPageStore: pages in Redis or Valkey, which several engines share.
//
// One immutable value a page, `stemma:1:` and the key in hexadecimal digits: the frame, whole. With
// a secret the value is the frame and its tag (frame_seal), and the secret's fingerprint is part of
// the name, so that engines with other secrets, or none, keep to their own values. Engines that
// store the same page at once store the same bytes: SET NX, the first one stays, and lasts from the
// last time that it was to be stored. Because it stays, a value that is wrong must go before it can
// be stored again:
//   - what fails verification above comes back through `remove`, which deletes the value only if
//     it still is what was read (its SHA-1 is compared by a script, in one step of the server);
//   - what has a wrong length or tag, or is no string, is a miss, and `read` removes it likewise
//     before it returns: its caller never sees the bytes that it would have to name.
//
// It says GET, SET, TOUCH, EXPIRE, EVAL and PING; to greet, to remove and to purge INFO, and WAIT
// where a server has replicas; to purge SCAN, GETRANGE and UNLINK, and in a cluster CLUSTER NODES;
// where they are needed AUTH, SELECT, ROLE, ASKING and CLUSTER SLOTS; to sentinels SENTINEL and
// PING. An ACL must allow these, for `stemma:*`.
//
// A server that is down, slow or mad is a miss (I9): one deadline covers a call, and a breaker a
// server keeps later calls from waiting. One that is full and gives nothing up is not sent every
// page again and again: for a while pages are refused here. The servers are not asked anything
// before the first call.
//
// A purge asks every server that has values for all names of ours, and of each value for as much of
// its header as says whose it is and where in its text: a seal does not hide that. Values of
// engines with other secrets, or none, have other names and stay; those of engines that share the
// secret go with ours.
//
// What was given up before a purge, or a removal, does not come behind it: each server is asked as
// often as it takes until it has carried that out (redis_given_up); of the first purge, what
// engines may have given up that ended since. A removal is to be looked at again where there was
// some.
//
// A purge is confirmed when all primaries are known and none was started anew or gave up slots
// meanwhile; a purge, and a removal, when the replicas that are connected have it too: whichever of
// those takes a primary's place does not bring a page back. Beyond that it lasts as long as servers
// keep it: a replica that was not connected then, or a server that is started from what its disk
// had before (an older snapshot, an append-only file that was not synced), has the pages again.
// Where that must not be, servers have no snapshots, or `appendonly yes` with `appendfsync always`,
// and `min-replicas-to-write` as many as may be promoted. Of a server that leaves run_id out of its
// answer to INFO it is not seen that it was started anew.
//
// Thread:     two lanes with connections of their own. read, lookup and remove belong to one of
//             them and are never called at once; write and purge belong to the other, likewise. The
//             two may run at once. describe, usage and visit_metrics from any thread.
//             Invariants: I7, I8, I9, I10 (docs/INVARIANTS.md).
// Memory:     16 KiB and one descriptor a lane and server; names and replies during a call; what is
//             to be described, bounded. A page goes from the socket into its frame.
// Cost:       one round trip a call and a server that is asked, two where a page that is to be
//             written is there; the first purge, and one behind a write that was given up, some
//             hundred more. A page removed: a SHA-1 of it here and on the server.
// Not here:   protocol (redis_connection), servers (redis_lane), what a frame holds (page_frame).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/machine_entropy.h"
#include "stemma/page_store.h"
#include "store/frame_seal.h"
#include "store/redis_counters.h"
#include "store/redis_given_up.h"
#include "store/redis_lane.h"
#include "tier/breaker.h"

namespace stemma {

struct RedisPageStoreOptions {
  // As redis_url.h says.
  std::string url;
  // How long the server keeps a page that was stored; 0: until it needs the room.
  std::int64_t ttl_s = 86400;
  // Of any call, if its own deadline is not sooner.
  std::int64_t operation_us_max = 2'000'000;
  // Of a connection; and between two questions of who holds what (clusters, sentinels).
  std::int64_t connect_us_max = 250'000;
  std::int64_t refresh_us = 250'000;
  // One a server and lane. By default engines that lose a server do not come back to it as one.
  BreakerOptions breaker = {.seed = machine_entropy()};
  // For how long nothing is written behind a call of which no page found room.
  std::int64_t full_pause_us = 1'000'000;
  // Values are sealed with it; empty: they are not.
  std::string secret;
  // Part of the name of every value: engines with other parts, or none, keep to their own values.
  std::string part;
};

class RedisPageStore final : public PageStore {
 public:
  // Makes no connection: a server that is down is a miss, also at the start. kInvalidArgument and
  // kUnsupported, of the URL. `clock` must outlive the store.
  static Result<std::unique_ptr<RedisPageStore>> open(const RedisPageStoreOptions& options,
                                                      const Clock& clock);

  // Says in the log what servers there are, how much they may hold and what they give up for more;
  // warns of those that do not answer, may hold anything, or take no more pages when they are full.
  // At most a connect timeout where none is there. Need not be called; belongs to the lane of read.
  void greet(std::int64_t deadline_us);

  Tier tier() const override { return Tier::kRemote; }
  std::string_view name() const override { return "redis"; }

  // Is sent with the next write; of more than a few that wait, the newest are forgotten.
  void describe(const NamespaceDigest& digest, std::string_view description) override;

  // Asks for all at once. Where some server does not answer, the count ends at the first page that
  // nothing is known of; an error only if that is the first one.
  Result<std::int64_t> lookup(std::span<const PageKey> keys, std::int64_t deadline_us) override;
  bool lookup_is_local() const override { return false; }

  void read(std::span<PageRead> reads, std::int64_t deadline_us) override;
  void write(std::span<PageWrite> writes, std::int64_t deadline_us) override;
  // Asks for all at once.
  std::int64_t renew(std::span<const PageKey> keys, std::int64_t deadline_us) override;
  void remove(std::span<const PageRemoval> removals, std::int64_t deadline_us) override;
  // Waits until the replicas of every server have what it has.
  Status make_removals_last(std::int64_t deadline_us) override;

  // Goes on where the call before it ended, if that was of the same pages. What another engine
  // stores meanwhile may stay.
  PurgeOutcome purge(std::span<const NamespaceFamily> namespaces,
                     std::int64_t deadline_us) override {
    return purge_behind(namespaces, 0, deadline_us);
  }
  PurgeOutcome purge_behind(std::span<const NamespaceFamily> namespaces, std::int64_t pages_before,
                            std::int64_t deadline_us) override;

  // Nothing: what is in the server is not this process' alone.
  PageStoreUsage usage() const override { return {}; }
  void visit_metrics(MetricVisitor& visitor) const override;

  // "redis://host:6379", without user and password.
  const std::string& where() const noexcept { return where_; }

 private:
  // Half of the store: what one thread at a time uses.
  struct Lane {
    Lane(const RedisLaneOptions& options, RedisCounters& counters, RedisGivenUp& given_up,
         const Clock& clock, const std::string& secret);
    RedisLane servers;
    std::optional<FrameSeal> seal;
    std::atomic_flag busy;
  };
  // Marks a lane as used by this call, and checks that no other call uses it.
  class LaneUse {
   public:
    explicit LaneUse(Lane& lane) : lane_(lane) {
      STEMMA_CHECK(!lane.busy.test_and_set(std::memory_order_acquire),
                   "one thread at a time reads, looks up or removes, one writes or purges");
    }
    ~LaneUse() { lane_.busy.clear(std::memory_order_release); }
    LaneUse(const LaneUse&) = delete;
    LaneUse& operator=(const LaneUse&) = delete;

   private:
    Lane& lane_;
  };
  // A value that was found to be wrong, and how to say so to the server.
  struct WrongValue {
    std::string_view name;
    bool compare_bytes;    // else: not a string of the right length
    std::string argument;  // the SHA-1, or the length
  };
  struct PageCounters {
    using Counter = RedisCounters::Counter;
    Counter lookups, lookup_failures;
    Counter read, read_bytes, missing, read_failed, wrong;
    Counter written, written_bytes, refused, write_failed;
    Counter removed, remove_failed;
    Counter purged, purge_failed;
  };
  // A purge that has not come to its end.
  struct Purge {
    std::vector<NamespaceFamily> namespaces;
    std::int64_t pages_before = 0;  // those with fewer stay
    std::vector<RedisEndpoint> servers;
    std::vector<std::string> lives;  // of each server, since it was first asked
    std::size_t servers_left = 0;    // the first so many: the last of them is being asked
    std::string cursor = "0";        // on that one
    std::int64_t map_changes = 0;    // of the lane, when it began
    std::vector<std::string> slots;  // of each server of a cluster, when it began
  };
  struct ReadAnswer;

  RedisPageStore(const RedisPageStoreOptions& options, const RedisUrl& url, const Clock& clock);

  std::string value_name(std::span<const std::uint8_t> key) const;
  std::vector<RedisCommand> use_commands(std::span<const PageKey> keys,
                                         std::vector<std::string>& names,
                                         std::string_view ttl_s) const;
  std::int64_t limited(std::int64_t deadline_us) const;
  ReadAnswer judge(const PageRead& read, const RedisCommand& command, const FrameTag& tag,
                   bool too_long);
  void renew_found(std::span<PageWrite* const> found, std::int64_t deadline_us);
  void remove_values(Lane& lane, std::span<const WrongValue> values, std::int64_t deadline_us);
  // Purging (redis_page_store_purge.cc).
  Status outlast_given_up(bool& advanced, std::int64_t deadline_us);
  Status purge_piece(std::int64_t deadline_us, std::int64_t& pages);
  Result<std::vector<std::string>> scan(std::string& cursor, std::int64_t deadline_us);
  Status keep_named(std::vector<std::string>& names, std::int64_t deadline_us);
  Status unlink(std::span<const std::string> names, std::int64_t deadline_us, std::int64_t& pages);
  bool begin_purge(std::span<const NamespaceFamily> namespaces, std::int64_t pages_before,
                   std::int64_t deadline_us);
  bool nothing_moved(std::int64_t deadline_us);
  bool all_live_on(std::int64_t deadline_us);
  bool replicas_follow(Lane& lane, std::span<const RedisEndpoint> servers,
                       std::int64_t deadline_us);
  Status confirm_purge(std::int64_t deadline_us, bool scanned_now);
  std::vector<std::string> ask_slots(std::span<const RedisEndpoint> servers,
                                     std::int64_t deadline_us);
  Error purge_error(std::int64_t deadline_us) const;
  void send_descriptions(std::int64_t deadline_us);
  bool gives_up_pages(std::string_view eviction) const;

  const Clock& clock_;
  const std::int64_t operation_us_max_;
  const std::int64_t full_pause_us_;
  const std::string where_;
  const std::string ttl_s_;  // digits; empty: no expiry
  std::string prefix_;
  RedisCounters counters_;
  RedisGivenUp given_up_;
  PageCounters pages_;
  Lane reader_;
  Lane writer_;
  std::optional<Purge> purge_or_none_;  // of the writer
  std::int64_t full_until_us_ = 0;      // likewise: nothing is written before

  std::mutex descriptions_mutex_;
  std::vector<std::pair<NamespaceDigest, std::string>> descriptions_;
};

}  // namespace stemma
