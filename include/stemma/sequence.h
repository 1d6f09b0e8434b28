// Sequence: one request's hold on pages: a locked prefix that is shared, then a tail of its own.
// Where its namespace goes on from a prefix that everybody shares (SharedPrefix), that is locked
// before its own.
//
// Thread:     engine thread only.            Invariants: I2, I3 (docs/INVARIANTS.md).
// Memory:     a row of its KvCache's request table.
// Cost:       moving one re-registers it with its cache.
// Not here:   where sequences come from, and everything that changes one (KvCache).
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "stemma/ids.h"
#include "stemma/page_allocator.h"
#include "stemma/prefix_cache.h"

namespace stemma {

class KvCache;

// The beginning of a text, in whole pages, that lives in a namespace which everybody may share.
// Whoever's text begins so goes on from its last page, in a namespace of its own: whose digest must
// differ for other tokens before it, and for other namespaces of them.
struct SharedPrefix {
  NamespaceDigest digest;   // of the namespace of the shared part
  std::int64_t tokens = 0;  // a multiple of page_size, at least one page
};

// Of the layers that look back over a window only (cache/windows): from which page on the sequence
// holds theirs, and where its text is likely to be gone on from by others.
struct SequenceWindow {
  std::int64_t begin_page = 0;
  std::array<std::int64_t, 2> ends = {};  // tokens: of its prompt; of what was cached in full
};

// Move-only; destroying it frees the tail, unlocks the prefix and gives the row back, and publishes
// nothing. Must not outlive its KvCache.
class [[nodiscard]] Sequence {
 public:
  // Holds nothing.
  Sequence() noexcept = default;
  Sequence(Sequence&& other) noexcept;
  Sequence& operator=(Sequence&& other) noexcept;
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;
  ~Sequence();

  // Whether it came from a cache, and neither was moved from nor gave everything back.
  bool valid() const noexcept { return cache_ != nullptr; }

  // Where it began. REQUIRES: valid().
  NamespaceId namespace_id() const noexcept { return prefix_.namespace_id(); }
  // Tokens whose KV was found by begin: they need not be computed. A multiple of page_size.
  std::int64_t cached_tokens() const noexcept { return cached_tokens_; }
  // Those of its request's prompt: all that begin was given, unless somebody says otherwise.
  std::int64_t prompt_tokens() const noexcept { return prompt_tokens_; }
  void set_prompt_tokens(std::int64_t tokens) noexcept {
    prompt_tokens_ = window_.ends[0] = tokens;
  }
  // Tokens in pages that others can find: cached ones and those committed since.
  std::int64_t published_tokens() const noexcept { return shared_.tokens() + prefix_.tokens(); }
  // Whether what it computes is published: not any more once its namespace was purged, nor where
  // it is not to be.
  bool publishes() const noexcept { return publishes_; }
  void stop_publishing() noexcept { publishes_ = false; }
  // Whether it names pages that are still arriving (KvCache::lend).
  bool on_loan() const noexcept { return lent_pages_ > 0; }
  // Tokens that the pages held have room for.
  std::int64_t capacity_tokens() const;
  // The pages of all tokens so far, in token order. Valid until the next reserve or commit.
  std::span<const PageId> pages() const;
  // Highest priority first stays longest, under the eviction order "priority".
  void set_priority(std::int32_t priority) noexcept { priority_ = priority; }
  // How long its client expects to come back to it, and that it will not: biases that eviction
  // policies which learn weigh, and others leave.
  void set_retention(Retention retention) noexcept { retention_ = retention; }
  void close_session() noexcept { session_closed_ = true; }

  // Gives everything back now instead of at destruction.
  void reset() noexcept;

 private:
  friend class KvCache;
  friend class KvCacheAudit;
  // What others can find: what everybody shares, and what goes on from it or is all there is.
  struct Published {
    PrefixLock shared;  // not valid: the namespace goes on from nothing
    PrefixLock own;     // of no tokens as long as `shared` is not whole
  };
  Sequence(KvCache* cache, RowId row, Published published, std::int64_t prompt_tokens) noexcept;
  void take_from(Sequence& other) noexcept;

  KvCache* cache_ = nullptr;
  RowId row_;                    // its pages, in token order: shared_, prefix_, then tail_
  PrefixLock shared_;            // see Published
  PrefixLock prefix_;            // what others can find
  std::int64_t lent_pages_ = 0;  // between prefix_ and tail_
  OwnedPages tail_;              // what is its own
  SequenceWindow window_;
  std::int64_t cached_tokens_ = 0;
  std::int64_t prompt_tokens_ = 0;
  std::int64_t begun_us_ = 0;  // on the cache's clock
  std::int32_t priority_ = 0;
  Retention retention_ = Retention::kDefault;
  bool session_closed_ = false;
  bool publishes_ = true;
};

// A second request with the text of a first one. The page where its text ends is its own: what the
// first one computed there is to be copied before either computes on.
struct ForkedSequence {
  Sequence sequence;
  PageId tail_from;  // invalid: the text ends with a page, and nothing is to be copied
  PageId tail_to;
  PageId windowed_from;  // of the windowed layers; invalid where there are none
  PageId windowed_to;
};

}  // namespace stemma
