// PageStore: pages by key, outside the memory of the engine: on disk, in a remote store.
//
// A store keeps frames: opaque bytes, one frame a page, that describe and check themselves
// (tier/page_frame). It promises only that a frame it returns is as long as it should be; whoever
// reads one verifies it before a byte of it reaches a pool (I8). An answer is a verdict on each
// page, never an earlier "it exists": between a lookup and a read the store may have evicted.
//
// Thread:     usage and visit_metrics from any thread, lookup too where it is local. One thread at
//             a time reads, removes and looks up, one at a time writes and purges, and these two
//             may run at once.
// Memory:     the store's own index and I/O buffers, bounded when it is opened; callers' frames are
//             used during a call only, even where an operation of the system never ends.
// Cost:       lookup: the store's memory, or one round trip where lookup_is_local() is false. The
//             others: I/O.
// Not here:   what is in a frame (tier/page_frame), which thread calls (tier/transfer_engine), when
//             a page moves (cache/tiering).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "stemma/metrics.h"
#include "stemma/prefix_cache.h"
#include "stemma/result.h"

namespace stemma {

// The places where pages can be, nearest first.
enum class Tier : std::uint8_t { kDevice, kHost, kDisk, kRemote };

constexpr std::string_view tier_name(Tier tier) noexcept {
  switch (tier) {
    case Tier::kDevice:
      return "device";
    case Tier::kHost:
      return "host";
    case Tier::kDisk:
      return "disk";
    case Tier::kRemote:
      return "remote";
  }
  return "unknown";
}

// What became of one page of a call.
enum class PageVerdict : std::uint8_t {
  kDone,     // read: the frame is filled. Written: it is stored, or was already
  kMissing,  // read: the store has no such page, or not of this length
  kRefused,  // written: no room, read-only, or a limit; it is not stored
  kCorrupt,  // read: the bytes are not those of the page asked for; nothing of them may be used
  kFailed,   // an error, or the deadline passed: nothing is known of the page, and nothing was
             // written to `frame` that may be used
};

struct PageRead {
  PageKey key;
  std::span<std::byte> frame;  // as long as the page's frame must be
  PageVerdict verdict = PageVerdict::kFailed;
};

struct PageWrite {
  PageKey key;
  std::span<const std::byte> frame;
  PageVerdict verdict = PageVerdict::kFailed;
};

// A page that failed verification.
struct PageRemoval {
  PageKey key;
  std::span<const std::byte> frame;  // the bytes that were read
};

struct PageStoreUsage {
  std::int64_t pages = 0;
  std::int64_t bytes = 0;      // everything that counts against the limit, metadata included
  std::int64_t bytes_max = 0;  // 0: the store does not know
};

// What became of one call of purge.
struct PurgeOutcome {
  std::int64_t pages = 0;  // that it removed, whatever became of the others
  Status status = {};      // ok: none is left. Else some may be, and the caller asks again
  bool advanced = false;   // not ok, but the next call goes on from further than this one did

  // Whether to ask again at once.
  bool got_on() const noexcept { return pages > 0 || advanced; }
};

class PageStore {
 public:
  virtual ~PageStore() = default;

  virtual Tier tier() const = 0;
  // "disk", "redis", "memory".
  virtual std::string_view name() const = 0;

  // Says once what a namespace is made of, for tools and logs: "model=... dtype=...". May be
  // forgotten without harm. Errors are the store's to count.
  virtual void describe(const NamespaceDigest& digest, std::string_view description) = 0;

  // How many of `keys`, from the first one on, the store seems to have. Counts as a use of them.
  // An error, or a deadline passed, is kIo or kDeadline. `deadline_us` here and below is on the
  // clock that the store was opened with.
  virtual Result<std::int64_t> lookup(std::span<const PageKey> keys, std::int64_t deadline_us) = 0;
  // Whether lookup answers from memory, so that the engine thread may call it.
  virtual bool lookup_is_local() const = 0;

  // Fills the frames and sets a verdict on each. Returns by the deadline.
  virtual void read(std::span<PageRead> reads, std::int64_t deadline_us) = 0;

  // Stores the frames and sets a verdict on each: kDone only for what a later read, also after a
  // restart of a store that survives one, can find. A page that the store has already is left as
  // it is. Returns by the deadline.
  virtual void write(std::span<PageWrite> writes, std::int64_t deadline_us) = 0;

  // Has pages that were stored before last as long as if they were stored now. How many of `keys`,
  // from the first one on, it seems to have: all, unless it knows better. Called like write, of a
  // store whose lookup is not local: with what lies before the pages that it was just given, which
  // are worth nothing without. Returns by the deadline.
  virtual std::int64_t renew(std::span<const PageKey> keys, std::int64_t deadline_us) {
    static_cast<void>(deadline_us);
    return static_cast<std::int64_t>(keys.size());
  }

  // Removes each page if the store still holds exactly these bytes under its key. Returns by the
  // deadline; what could not be removed is the store's to count.
  virtual void remove(std::span<const PageRemoval> removals, std::int64_t deadline_us) = 0;

  // Makes it last that reads find none of the pages that they do not find now: until something is
  // stored under their keys, no later read does either, also after a restart of a store that
  // survives one. An error: some may be back, and the caller asks again. Returns by the deadline.
  // Called like remove. A store that is rid of what it does not find has nothing to do.
  virtual Status make_removals_last(std::int64_t deadline_us) {
    static_cast<void>(deadline_us);
    return {};
  }

  // Removes every page of these families of namespaces; of all where none is named. Once it says
  // that none is left, no later read finds one that was stored before, also after a restart of a
  // store that survives one. What it did not get to by the deadline it goes on with when it is
  // asked again. kUnsupported: it cannot remove them at all, and is not asked again. REQUIRES:
  // meanwhile the caller stores nothing of these namespaces.
  virtual PurgeOutcome purge(std::span<const NamespaceFamily> namespaces,
                             std::int64_t deadline_us) = 0;

  // The same of those of their pages that have at least `pages_before` pages before them in their
  // texts: what may have been computed from one of these. A store that cannot tell which they are
  // purges all of the namespaces.
  virtual PurgeOutcome purge_behind(std::span<const NamespaceFamily> namespaces,
                                    std::int64_t pages_before, std::int64_t deadline_us) {
    static_cast<void>(pages_before);
    return purge(namespaces, deadline_us);
  }

  virtual PageStoreUsage usage() const = 0;
  virtual void visit_metrics(MetricVisitor& visitor) const = 0;
};

}  // namespace stemma
