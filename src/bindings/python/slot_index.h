// SlotIndex: a prefix cache for engines that hand out their own slots: which slots hold the KV of
// which tokens, as the engine said when it inserted them.
//
// The tree below names pages of its own; here is the table from those to the engine's slots. So an
// engine's slots may lie as they like, and an engine that frees what it must not, or inserts a slot
// twice, confuses nothing but itself.
//
// A Match names a prefix that was found. It holds nothing until it is locked, stays good when
// others split the tree, and is stale once its prefix was evicted. While nothing else happens the
// index keeps the last match's place in the tree, so that lock and read_slots find it at once; else
// they look its tokens up again.
//
// Thread:     one at a time.
// Memory:     that of the tree, for the pages of tokens_max, and 4 bytes a token at the
//             high-water mark.
// Cost:       one walk down the tree a call; insert copies its new slots; evict O(slots freed).
// Not here:   Python (slots.cc), KV bytes, free slots (the engine's).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "prefix/radix_prefix_cache.h"
#include "stemma/page_allocator.h"
#include "stemma/result.h"

namespace stemma::python {

struct SlotIndexOptions {
  std::int64_t page_size = 1;                       // tokens; matches are whole pages
  std::int64_t tokens_max = std::int64_t{1} << 20;  // in the index, at most
  std::string eviction = "lru";                     // see KvCacheOptions::eviction
  std::int64_t namespaces_max = 65'536;             // a salt a user; see KvCacheOptions
  std::int64_t slru_protected_hits = 2;
  std::int64_t events_pages_max = 0;  // see KvCacheOptions
};

class SlotIndex {
 public:
  // A prefix that was matched or inserted. It stays where it is; the index must outlive it, and be
  // told (forget) before it goes.
  struct Match {
    NamespaceId ns;
    std::int64_t tokens = 0;  // whole pages
    std::int64_t locks = 0;
    PrefixLock hold;            // while it is locked, or the last one touched
    std::vector<TokenId> text;  // else
  };

  // kInvalidArgument or kNotFound naming the option that is wrong.
  static Result<std::unique_ptr<SlotIndex>> open(const SlotIndexOptions& options);
  SlotIndex(const SlotIndex&) = delete;
  SlotIndex& operator=(const SlotIndex&) = delete;

  // See PrefixCache. A match keeps its namespace open until it is forgotten. The slots of what has
  // to go for a new one are those that evict hands out first; until then they count as evictable.
  std::optional<NamespaceId> try_open_namespace(const NamespaceDigest& digest);
  void close_namespace(NamespaceId ns);

  // `out`, which is new, becomes the longest prefix of `tokens` in whole pages. A use of it.
  // REQUIRES, here and below: ns is open.
  void match(NamespaceId ns, std::span<const TokenId> tokens, Match& out);
  // The same length, without use or hold.
  std::int64_t probe(NamespaceId ns, std::span<const TokenId> tokens) const;

  // Takes the slots of what is not there yet of the whole pages of `tokens`, all of which `out`,
  // which is new, becomes. Returns the tokens that were there before: the engine's slots of these
  // are not taken. kTooLarge, and nothing happened, if tokens_max does not allow it.
  // REQUIRES: slots.size() >= tokens.size().
  Result<std::int64_t> insert(NamespaceId ns, std::span<const TokenId> tokens,
                              std::span<const std::int32_t> slots, std::int32_t priority,
                              Match& out);

  // What is locked is not evicted. kNotFound: it was evicted before.
  Status lock(Match& match);
  // Ends one lock. kInvalidArgument: there is none.
  Status unlock(Match& match);
  // `match` goes. REQUIRES: nobody uses it any more.
  void forget(Match& match) noexcept;

  // Writes the slots of a match from `first_token` on, until `out` is full. kNotFound: evicted.
  // REQUIRES: first_token is a multiple of page_size; first_token + out.size() <= match.tokens.
  Status read_slots(const Match& match, std::int64_t first_token, std::span<std::int32_t> out);

  // What had to go before for a namespace, then the coldest whole pages, until `wanted_tokens` are
  // out or none is left that is not locked; appends their slots, page by page. REQUIRES:
  // wanted_tokens >= 0.
  void evict(std::int64_t wanted_tokens, std::vector<std::int32_t>& slots);

  // For who copies prefixes to another tier: the tokens of a match, whether locked or not; how many
  // of its tokens, from the first one on, `hits` matches have covered. kNotFound: evicted.
  Result<std::vector<TokenId>> read_text(const Match& match) const;
  Result<std::int64_t> hot_tokens(Match& match, std::int32_t hits);
  // `out`, which is new, becomes the leaf that is evicted next, with all that it continues, and is
  // locked. Returns its own tokens, at its end; 0, and nothing happened, where none can be evicted.
  std::int64_t lock_coldest(Match& out);

  // Hands over what began to be found and what stopped since the last call.
  void drain_events(PrefixEventSink& sink);

  // Forgets everything. kInvalidArgument if something is locked.
  Status reset();

  PrefixUsage usage();
  std::int64_t page_size() const noexcept { return options_.page_size; }
  std::int64_t locked_matches() const noexcept { return locked_; }
  // Every slot that evict has not handed out, in no order.
  std::vector<std::int32_t> all_slots() const;
  // The first contradiction, or nullopt.
  std::optional<std::string> audit();
  std::string draw() const { return tree_->draw(); }

 private:
  explicit SlotIndex(const SlotIndexOptions& options)
      : options_(options), allocator_(options.tokens_max / options.page_size) {}

  std::span<const TokenId> whole_pages(std::span<const TokenId> tokens) const noexcept;
  void rest(Match& match);
  void settle();
  Status take_place(Match& match);
  void name(NamespaceId ns, Match& out);
  void keep(PrefixLock hold, NamespaceId ns, Match& out);
  void write_slots(std::span<const PageId> pages, std::span<const std::int32_t> slots);
  void gather(std::span<const PageId> pages, std::span<std::int32_t> out) const noexcept;
  void move_slots(const OwnedPages& evicted, std::vector<std::int32_t>& out);

  SlotIndexOptions options_;
  PageAllocator allocator_;
  std::unique_ptr<RadixPrefixCache> tree_;
  std::vector<std::int32_t> slots_;      // [pages ever used, page_size], by the tree's page
  std::vector<std::int32_t> displaced_;  // of pages that went for a namespace
  std::vector<PageId> scratch_;
  Match* resting_ = nullptr;  // holds its place without being locked
  std::int64_t locked_ = 0;   // matches
};

}  // namespace stemma::python
