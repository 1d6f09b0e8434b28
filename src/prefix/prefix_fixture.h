// PrefixFixture: a pool, a radix prefix cache over it, and the verbs of the tests.
//
// Thread:     tests.
// Memory:     the pool's.
// Cost:       none.
// Not here:   anything that ships.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "prefix/namespace_examples.h"
#include "prefix/radix_prefix_cache.h"

namespace stemma {

using Tokens = std::vector<TokenId>;

struct FixtureOptions {
  std::int64_t page_size = 1;
  std::int64_t pages = 64;
  std::string eviction = "lru";
  int hash_bits = 32;
  const Clock* clock = nullptr;
  std::int64_t events_pages_max = 0;
  std::int64_t creditors = 0;
  std::int64_t namespaces_max = 4;
  std::int64_t evicted_marks = 0;
};

// first, first + 1, … : `count` tokens.
inline Tokens counted(TokenId first, std::int64_t count) {
  Tokens tokens;
  for (TokenId i = 0; i < count; ++i) tokens.push_back(first + i);
  return tokens;
}

inline Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// One to five pages of two tokens, of which so few are drawn that texts share beginnings.
inline Tokens drawn_text(Prng& prng) {
  Tokens text;
  for (std::int64_t page = prng.below(5); page >= 0; --page) {
    text = text + Tokens{0, static_cast<TokenId>(prng.below(2))};
  }
  return text;
}

class PrefixFixture {
 public:
  explicit PrefixFixture(const FixtureOptions& options = {})
      : allocator(options.pages), page_size(options.page_size) {
    PrefixCacheOptions cache_options{allocator};
    cache_options.page_size = options.page_size;
    cache_options.eviction = options.eviction;
    cache_options.lookup_hash_bits = options.hash_bits;
    cache_options.hash_seed = 1;
    cache_options.clock = options.clock;
    cache_options.namespaces_max = options.namespaces_max;
    cache_options.evicted_marks = options.evicted_marks;
    cache_options.events_pages_max = options.events_pages_max;
    cache_options.creditors = options.creditors;
    cache = RadixPrefixCache::open(cache_options).value();
    ns = *cache->try_open_namespace(digest_of(0));
  }
  ~PrefixFixture() { EXPECT_EQ(cache->audit(), std::nullopt); }

  // What a request does: matches `tokens`, computes the rest, publishes it. Evicts if it must.
  PrefixLock begin(const Tokens& tokens) { return begin_in(ns, tokens); }
  PrefixLock begin_in(NamespaceId in, const Tokens& tokens, std::int32_t priority = 0) {
    return publish(cache->match(in, whole(tokens)), tokens, priority);
  }
  // Publishes fresh pages for what `held` does not cover.
  PrefixLock publish(PrefixLock held, const Tokens& tokens, std::int32_t priority = 0) {
    const auto text = whole(tokens);
    const std::int64_t missing =
        (static_cast<std::int64_t>(text.size()) - held.tokens()) / page_size;
    return cache->insert(text, std::move(held), allocate(missing), {priority});
  }
  // The same, finished at once.
  void add(const Tokens& tokens) { begin(tokens).reset(); }
  void add(const Tokens& tokens, std::int32_t priority) { begin_in(ns, tokens, priority).reset(); }
  OwnedPages allocate(std::int64_t pages) {
    if (allocator.free_pages() < pages) cache->evict(pages - allocator.free_pages()).reset();
    auto got = allocator.try_allocate(pages);
    EXPECT_TRUE(got.has_value());
    return std::move(*got);
  }

  std::int64_t probe(const Tokens& tokens) const { return cache->probe(ns, tokens).matched_tokens; }
  // Counts as a use; holds nothing afterwards. The tokens found.
  std::int64_t touch(const Tokens& tokens) { return cache->match(ns, tokens).tokens(); }

  std::vector<int> evict(std::int64_t pages) { return ids(cache->evict(pages)); }

  static std::vector<int> ids(const OwnedPages& pages) {
    std::vector<PageId> out(static_cast<std::size_t>(pages.pages()));
    pages.copy_to(out);
    return values(out);
  }
  std::vector<int> ids(const PrefixLock& lock, std::int64_t first_page = 0) const {
    std::vector<PageId> out(static_cast<std::size_t>(lock.tokens() / page_size - first_page));
    EXPECT_EQ(lock.copy_pages(first_page, out), static_cast<std::int64_t>(out.size()));
    return values(out);
  }

  std::string draw() const { return "\n" + cache->draw(); }

  PageAllocator allocator;
  std::int64_t page_size;
  std::unique_ptr<RadixPrefixCache> cache;
  NamespaceId ns;

 private:
  static std::vector<int> values(const std::vector<PageId>& pages) {
    std::vector<int> out;
    for (const PageId page : pages) out.push_back(page.value());
    return out;
  }
  std::span<const TokenId> whole(const Tokens& tokens) const {
    const auto size = static_cast<std::size_t>(page_size);
    return std::span(tokens).first(tokens.size() / size * size);
  }
};

}  // namespace stemma
