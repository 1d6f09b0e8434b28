// LowerTiers: what lies below the device: host memory, page stores, and the lanes on which pages
// move to them and back. A KvCache decides what moves; this is what it moves with.
//
// Thread:     open_lanes and the queries by the engine thread; stores as PageStore says.
// Memory:     the implementation's: host memory and I/O buffers, fixed when opened.
// Cost:       none.
// Not here:   which pages move (KvCache), bytes (tier/).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "stemma/page_store.h"

namespace stemma {

// A copy between tiers that is on its way, or a request to a page store.
struct TransferHold {
  std::string_view kind;  // "backup", "promote", "store", "load", "fetch", ...
  std::int64_t pages = 0;
  std::int64_t first_page = 0;  // of its text
  NamespaceDigest digest;
};

// Who holds pages now, for people.
struct CacheHolds {
  std::int64_t locks = 0;               // on prefixes of the device, those of no tokens included
  std::int64_t sequences = 0;           // of requests
  std::vector<TransferHold> transfers;  // each with locks and pages of its own
};

// What a purge took by now, and the tiers that may still have more.
struct PurgeReport {
  std::array<std::int64_t, 4> pages = {};  // by tier
  std::vector<Tier> pending;  // of each store that has not confirmed it; kHost: its file stays
  std::vector<Tier> unable;   // of each store that cannot be purged: what it has of it stays there,
                              // and is not found as long as the cache lives
};

class PurgeFile;
class TransferLanes;
struct HostImage;
class HostImageRanks;

// Must outlive the caches that use it; one at a time does, since host memory is one cache's.
class LowerTiers {
 public:
  virtual ~LowerTiers() = default;

  // Pages of host memory: at least 1. What page stores read and write passes through them.
  virtual std::int64_t host_pages() const = 0;
  // Those of the layers with a window; 0: only pages of the others move.
  virtual std::int64_t host_windowed_pages() const { return 0; }
  // Nearest first.
  virtual std::span<PageStore* const> stores() const = 0;
  // Lanes for at most `jobs_max` jobs at once.
  virtual std::unique_ptr<TransferLanes> open_lanes(std::int64_t jobs_max) = 0;
  // The file that host memory survives in from one cache to the next; nullptr: none.
  virtual const HostImage* host_image_or_null() const { return nullptr; }
  // That of the layers with a window; nullptr: there is none, or no such layers.
  virtual const HostImage* windowed_host_image_or_null() const { return nullptr; }
  // Those of the other ranks, where there are some.
  virtual HostImageRanks* host_image_ranks_or_null() { return nullptr; }
  // Where what stores have not confirmed to have forgotten outlives a cache; nullptr: nowhere.
  virtual PurgeFile* purge_file_or_null() { return nullptr; }
  // Says whose pages these are, before a cache uses them: see PageStore::describe. The first one is
  // the model's own, whose pages the file of host memory says that it holds; others are beside it,
  // as those of adapters.
  virtual void describe(const NamespaceDigest& digest, std::string_view description) {
    for (PageStore* const store : stores()) store->describe(digest, description);
  }
};

// Tokens of a prompt by the lower tier that they were brought from.
struct BroughtTokens {
  std::int64_t host = 0;
  std::int64_t disk = 0;
  std::int64_t remote = 0;

  // Of all tiers.
  std::int64_t total() const noexcept { return host + disk + remote; }
  // REQUIRES: tier is not kDevice.
  std::int64_t& of(Tier tier) noexcept {
    return tier == Tier::kHost ? host : tier == Tier::kDisk ? disk : remote;
  }
  // Adds those of another prompt.
  BroughtTokens& operator+=(const BroughtTokens& other) noexcept {
    host += other.host;
    disk += other.disk;
    remote += other.remote;
    return *this;
  }
};

// What a request does with a promotion, which brings its prompt up.
enum class PromotionUse : std::uint8_t {
  kWaiting,    // waits until it has come
  kComputing,  // computes from the front while it arrives from the back
};

// What became of bringing a prompt up.
struct PromotionOutcome {
  BroughtTokens tokens;
  BroughtTokens us;         // that copies from each tier took, added up, whether waited for or not
  bool lost_pages = false;  // pages were missing, wrong or could not be read
  bool unfinished = false;  // more would have come
};

}  // namespace stemma
