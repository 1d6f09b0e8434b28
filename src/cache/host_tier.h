// HostTier: which prefixes have pages in host memory: a prefix tree of its own over pages of its
// own, beside the device's.
//
// Two trees instead of one whose nodes know their tiers (docs/decisions/0004): each is
// prefix-closed and audited by itself, a split in one is no affair of the other, and a text is
// looked up in both.
//
// Thread:     engine thread only.              Invariants: I1, I3, I4, I11 (docs/INVARIANTS.md).
// Memory:     that of a PageAllocator and a RadixPrefixCache for its pages; each text that
//             namespaces go on from, once.
// Cost:       that of RadixPrefixCache.
// Not here:   bytes (pool/host_pool), moves (backups, promotions).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "alloc/windowed_pages.h"
#include "cache/page_space.h"
#include "prefix/radix_prefix_cache.h"
#include "stemma/options.h"
#include "stemma/result.h"

namespace stemma {

class HostTier {
  struct Key {};

 public:
  struct Extent {
    std::int64_t pages = 0;
    std::int64_t windowed_pages = 0;  // of the layers with a window; 0 where there are none
    std::int64_t creditors = 0;       // to whom its pages may be owed
  };
  static Result<std::unique_ptr<HostTier>> open(const KvCacheOptions& options, const Extent& extent,
                                                const Clock& clock);
  HostTier(Key, std::int64_t pages, std::int64_t windowed_pages);  // for open

  // Follows the device tree: `device_ns` means `digest` from now on, and is closed as often as it
  // was opened.
  void open_namespace(NamespaceId device_ns, const NamespaceDigest& digest);
  void close_namespace(NamespaceId device_ns);

  // Its name here; invalid if there is none. As on the device, pages outlive the closing of their
  // namespace, and so does the name until it is needed for another.
  NamespaceId namespace_of(NamespaceId device_ns) const;
  // The same, and a new name where it lost its own: good as long as something is locked below it.
  // Invalid only where host memory has no name left.
  NamespaceId name_namespace(NamespaceId device_ns);

  // Texts of `device_ns` go on from this one, whole pages of the namespace of `digest`. REQUIRES:
  // one namespace always goes on from the same text.
  void set_shared(NamespaceId device_ns, const NamespaceDigest& digest,
                  std::span<const TokenId> text);
  // What a namespace has here was used: so was, later, what is here of the text that it goes on
  // from, without which nobody finds it. O(tokens of that text).
  void use_shared(NamespaceId device_ns);

  RadixPrefixCache& tree() noexcept { return *tree_; }
  const RadixPrefixCache& tree() const noexcept { return *tree_; }
  PageSpace& space() noexcept { return *space_; }
  const PageAllocator& allocator() const noexcept { return allocator_; }
  // What hangs on its pages; nullptr where no layers have a window.
  WindowedPages* windowed_or_null() const noexcept { return windowed_.get(); }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  struct SharedText {
    NamespaceDigest digest;
    std::vector<TokenId> tokens;
    std::int64_t names = 0;  // that go on from it; 0: the place is free
  };
  struct Name {
    NamespaceId host;
    NamespaceDigest digest;
    std::int64_t opens = 0;
    bool open_here = false;
    std::size_t goes_on_from = kNone;  // in shared_texts_; kNone: nothing, or not known
  };

  void forget_shared(Name& name);
  std::size_t place_of(const NamespaceDigest& digest, std::span<const TokenId> text);

  PageAllocator allocator_;
  std::unique_ptr<WindowedPages> windowed_;
  std::unique_ptr<RadixPrefixCache> tree_;  // its pages are the allocator's: destroyed before it
  std::unique_ptr<PageSpace> space_;
  std::vector<Name> names_;  // by the device's NamespaceId
  std::vector<SharedText> shared_texts_;
};

}  // namespace stemma
