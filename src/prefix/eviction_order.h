// EvictionOrder: which unlocked leaf goes first. Smallest key first; equal keys by age of the node.
//
//   lru       (last use)                     least recently used
//   lfu       (hits, last use)               least often matched
//   fifo      (created)                      oldest
//   mru       (-last use)                    most recently used
//   filo      (-created)                     youngest
//   slru      (hits >= threshold, last use)  never matched again, then least recently used
//   priority  (priority, last use)           lowest priority
//   gdsf      (aging + uses, last use)       least often used, the past counting less and less
//
// Those that no key expresses have a name here and a PagePolicy of their own:
//
//   tlru      what its conversation's next turn can do without, then last use (tlru_policy)
//   s3fifo    oldest, new pages before those that were used again (s3fifo_policy)
//   hazard    least worth its place, as learned (hazard_policy)
//
// Thread:     values and pure functions.
// Memory:     16 bytes.
// Cost:       a switch.
// Not here:   finding the smallest key (eviction_index), when to evict (cache/).
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "stemma/result.h"

namespace stemma {

// What is known about how a node was used. Times are logical: they only order.
struct NodeUse {
  std::int64_t last_use = 0;
  std::int64_t created = 0;
  std::int64_t hits = 0;
  std::int64_t priority = 0;
  std::int64_t aging = 0;  // the highest first part of a key evicted before the last use
};

struct EvictionKey {
  std::int64_t first = 0;
  std::int64_t second = 0;
  friend auto operator<=>(const EvictionKey&, const EvictionKey&) = default;
};

enum class EvictionPolicy : std::uint8_t {  // those with a key first
  kLru,
  kLfu,
  kFifo,
  kMru,
  kFilo,
  kSlru,
  kPriority,
  kGdsf,
  kTlru,
  kS3Fifo,
  kHazard
};

class EvictionOrder {
 public:
  // A node is protected by slru from this many hits on.
  static constexpr std::int64_t kProtectedHits = 2;

  explicit EvictionOrder(EvictionPolicy policy,
                         std::int64_t protected_hits = kProtectedHits) noexcept
      : policy_(policy), protected_hits_(protected_hits) {}

  // By name: "lru", "lfu", …. An unknown name is an error that lists the known ones.
  static Result<EvictionOrder> make(std::string_view name,
                                    std::int64_t protected_hits = kProtectedHits);
  // The known names: "lru, lfu, fifo, …".
  static std::string known_names();

  std::string_view name() const noexcept;

  // Whether key() says it all.
  bool keyed() const noexcept { return policy_ < EvictionPolicy::kTlru; }

  EvictionPolicy policy() const noexcept { return policy_; }

  EvictionKey key(const NodeUse& use) const noexcept {
    switch (policy_) {
      case EvictionPolicy::kLru:
        return {use.last_use, 0};
      case EvictionPolicy::kLfu:
        return {use.hits, use.last_use};
      case EvictionPolicy::kFifo:
        return {use.created, 0};
      case EvictionPolicy::kMru:
        return {-use.last_use, 0};
      case EvictionPolicy::kFilo:
        return {-use.created, 0};
      case EvictionPolicy::kSlru:
        return {use.hits >= protected_hits_ ? 1 : 0, use.last_use};
      case EvictionPolicy::kPriority:
        return {use.priority, use.last_use};
      case EvictionPolicy::kGdsf:
        return {use.aging + use.hits + 1, use.last_use};
      case EvictionPolicy::kTlru:
      case EvictionPolicy::kS3Fifo:
      case EvictionPolicy::kHazard:
        break;
    }
    return {};
  }

 private:
  EvictionPolicy policy_;
  std::int64_t protected_hits_;
};

}  // namespace stemma
