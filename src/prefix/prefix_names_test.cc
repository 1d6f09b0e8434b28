// Names: namespaces (digests and short ids), page keys (chained, lazy, divided by splits), and the
// prefix caches by name, the one that shares nothing included.
#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest.h"
#include "prefix/namespace_digest.h"
#include "prefix/namespace_registry.h"
#include "prefix/page_key.h"
#include "prefix/prefix_cache_factory.h"
#include "prefix/prefix_fixture.h"

namespace stemma {
namespace {

TEST(NamespaceDigest, FieldsAreFramed) {
  const std::array<std::byte, 1> byte = {std::byte{'1'}};
  std::set<NamespaceDigest> seen;
  seen.insert(NamespaceFields().finish());
  seen.insert(NamespaceFields().add("adapter", "bc").add("salt", "a").finish());
  seen.insert(NamespaceFields().add("adapter", "c").add("salt", "ab").finish());
  seen.insert(NamespaceFields().add("adapter", "bc").add("salt", "").finish());
  seen.insert(NamespaceFields().add("adapter", "bc").finish());
  seen.insert(NamespaceFields().add("adapterb", "c").finish());
  seen.insert(NamespaceFields().add("salt", "a").add("adapter", "bc").finish());
  seen.insert(NamespaceFields().add("rank", "1").finish());
  seen.insert(NamespaceFields().add("rank", std::int64_t{1}).finish());
  seen.insert(NamespaceFields().add("rank", byte).finish());
  EXPECT_EQ(seen.size(), 10u);
}

TEST(NamespaceDigest, TheSameFieldsGiveTheSameDigestAndABuilderStartsAnew) {
  NamespaceFields fields;
  const NamespaceDigest first = fields.add("model", "x").add("rank", std::int64_t{3}).finish();
  EXPECT_EQ(fields.add("model", "x").add("rank", std::int64_t{3}).finish(), first);
}

// The bytes of the format, spelled out: digests are stored, so they must never change by accident.
TEST(NamespaceDigest, TheFormatIsFixed) {
  const std::string bytes =
      std::string("stemma.namespace.1") + '\x01' + std::string("\x04\0\0\0\0\0\0\0", 8) + "salt" +
      std::string("\x02\0\0\0\0\0\0\0", 8) + "ab" + '\x02' + std::string("\x04\0\0\0\0\0\0\0", 8) +
      "rank" + std::string("\x08\0\0\0\0\0\0\0", 8) + std::string("\x01\x02\0\0\0\0\0\0", 8);
  EXPECT_EQ(NamespaceFields().add("salt", "ab").add("rank", std::int64_t{513}).finish().bytes,
            sha256(std::as_bytes(std::span(bytes))));
}

TEST(NamespaceDigest, ItsShortNameTellsNamespacesOfOneTenantApart) {
  const NamespaceFamily alice = family_of_tenant("alice");
  const auto salted = [](const NamespaceFamily& family, std::string_view salt) {
    return in_family(NamespaceFields().add("salt", salt).finish(), family);
  };
  std::set<std::string> names = {namespace_name(salted(alice, "a")),
                                 namespace_name(salted(alice, "b"))};
  EXPECT_EQ(names.size(), 2u);
  EXPECT_EQ(names.begin()->substr(0, 9), names.rbegin()->substr(0, 9));  // the tenant's digits
  names.insert(namespace_name(salted(family_of_tenant("bob"), "a")));
  EXPECT_EQ(names.size(), 3u);
  NamespaceDigest counted;
  std::iota(counted.bytes.begin(), counted.bytes.end(), std::uint8_t{0});
  EXPECT_EQ(namespace_name(counted), "00010203.08090a0b");
}

TEST(NamespaceRegistry, FirstComeFirstNamed) {
  NamespaceRegistry registry(2);
  EXPECT_EQ(registry.try_open(digest_of(9)), NamespaceId(0));
  EXPECT_EQ(registry.try_open(digest_of(3)), NamespaceId(1));
  EXPECT_EQ(registry.try_open(digest_of(9)), NamespaceId(0));
  EXPECT_EQ(registry.try_open(digest_of(5)), std::nullopt);
  EXPECT_EQ(registry.digest(NamespaceId(1)), digest_of(3));
  EXPECT_FALSE(registry.contains(NamespaceId(2)));
  EXPECT_FALSE(registry.contains(NamespaceId()));
  EXPECT_DEATH(static_cast<void>(registry.digest(NamespaceId(2))), "opened");
}

// SHA-256 of the namespace's 32 bytes and the tokens, 4 bytes each, least significant first; then
// of that key and the next page's tokens.
TEST(PageKey, IsTheChainedDigestOfNamespaceAndTokens) {
  std::string bytes(32, '\0');
  bytes[0] = 7;
  bytes += std::string("\x01\0\0\0\x00\x01\0\0", 8);  // tokens 1 and 256
  const Sha256Digest first = sha256(std::as_bytes(std::span(bytes)));
  std::string next(first.begin(), first.end());
  next += std::string("\xFF\xFF\xFF\xFF\x03\0\0\0", 8);  // tokens −1 and 3
  PageKeyChain chain(digest_of(7));
  EXPECT_EQ(chain.append(Tokens{1, 256}).bytes, first);
  EXPECT_EQ(chain.append(Tokens{-1, 3}).bytes, sha256(std::as_bytes(std::span(next))));
}

// Of the key before and a 'w', in the place of the key before.
TEST(PageKey, OfAPagesWindowedLayersIsAnother) {
  PageKeyChain chain(digest_of(7));
  const PageKey before = chain.append(Tokens{1, 256});
  std::string bytes(before.bytes.begin(), before.bytes.end());
  const Sha256Digest parent = sha256(std::as_bytes(std::span(bytes += 'w')));
  PageKeyHasher hasher;
  EXPECT_EQ(hasher.windowed_parent(before).bytes, parent);
  EXPECT_NE(hasher.next(PageKey{parent}, Tokens{3, 4}), chain.append(Tokens{3, 4}));
}

std::vector<PageKey> keys_of(const PrefixFixture& f, const PrefixLock& lock,
                             std::int64_t first_page = 0) {
  std::vector<PageKey> keys(static_cast<std::size_t>(lock.tokens() / f.page_size - first_page));
  EXPECT_EQ(lock.copy_page_keys(first_page, keys), static_cast<std::int64_t>(keys.size()));
  return keys;
}

std::vector<PageKey> expected_keys(const NamespaceDigest& digest, const Tokens& tokens,
                                   std::size_t page_size) {
  PageKeyChain chain(digest);
  std::vector<PageKey> keys;
  for (std::size_t i = 0; i < tokens.size(); i += page_size) {
    keys.push_back(chain.append(std::span(tokens).subspan(i, page_size)));
  }
  return keys;
}

TEST(PageKey, OfCachedPagesIsThatOfTheirTokens) {
  PrefixFixture f({.page_size = 4});
  const PrefixLock lock = f.begin(counted(1, 8));
  EXPECT_EQ(keys_of(f, lock), expected_keys(digest_of(0), counted(1, 8), 4));
  EXPECT_EQ(keys_of(f, lock, 1), (std::vector{keys_of(f, lock)[1]}));
}

TEST(PageKey, EqualPagesInDifferentPlacesHaveDifferentKeys) {
  PrefixFixture f({.page_size = 4});
  const PrefixLock lock = f.begin({1, 2, 3, 4, 1, 2, 3, 4});
  EXPECT_NE(keys_of(f, lock)[0], keys_of(f, lock)[1]);
}

TEST(PageKey, DiffersBetweenNamespaces) {
  PrefixFixture f;
  const NamespaceId other = *f.cache->try_open_namespace(digest_of(1));
  const PrefixLock here = f.begin({1});
  const PrefixLock there = f.begin_in(other, {1});
  EXPECT_NE(keys_of(f, here), keys_of(f, there));
  EXPECT_EQ(keys_of(f, there), expected_keys(digest_of(1), {1}, 1));
}

TEST(PageKey, ASplitDividesTheKeysItsNodeHas) {
  for (const bool before : {false, true}) {  // asked for before the split, or only after it
    PrefixFixture f({.page_size = 2});
    const PrefixLock first = f.begin({1, 2, 3, 4});
    if (before) static_cast<void>(keys_of(f, first));
    const PrefixLock second = f.begin({1, 2, 5, 6});
    EXPECT_EQ(keys_of(f, second), expected_keys(digest_of(0), {1, 2, 5, 6}, 2));
    EXPECT_EQ(keys_of(f, first), expected_keys(digest_of(0), {1, 2, 3, 4}, 2));
  }
}

TEST(PageKey, FollowsGrowthAndEvictionOfALeaf) {
  PrefixFixture f;
  PrefixLock lock = f.begin({1, 2, 3});
  static_cast<void>(keys_of(f, lock));
  lock = f.publish(std::move(lock), {1, 2, 3, 4, 5});
  EXPECT_EQ(keys_of(f, lock), expected_keys(digest_of(0), {1, 2, 3, 4, 5}, 1));
  lock.reset();
  f.evict(3);
  lock = f.begin({1, 2, 8, 9});
  EXPECT_EQ(keys_of(f, lock), expected_keys(digest_of(0), {1, 2, 8, 9}, 1));
}

TEST(PrefixCacheFactory, MakesCachesByName) {
  PageAllocator allocator(8);
  const PrefixCacheOptions options{allocator};
  for (const std::string name : {"radix", "none"}) {
    EXPECT_EQ(make_prefix_cache(name, options).value()->name(), name);
  }
}

TEST(PrefixCacheFactory, NamesWhatIsWrong) {
  PageAllocator allocator(8);
  const auto detail = [&](const char* name, const auto& change) {
    PrefixCacheOptions options{allocator};
    change(options);
    return make_prefix_cache(name, options).error().detail;
  };
  EXPECT_EQ(detail("hash", [](auto&) {}), "cache: unknown kind \"hash\" (known: radix, none)");
  EXPECT_EQ(detail("radix", [](auto& o) { o.eviction = "best"; }),
            "eviction: unknown order \"best\" (known: " + EvictionOrder::known_names() + ")");
  EXPECT_EQ(detail("none", [](auto& o) { o.page_size = 0; }),
            "page_size: must be 1 to 1048576 (got 0)");
  EXPECT_EQ(detail("radix", [](auto& o) { o.namespaces_max = 0; }),
            "namespaces_max: must be 1 to 1048576 (got 0)");
  EXPECT_EQ(detail("radix", [](auto& o) { o.lookup_hash_bits = 33; }),
            "lookup_hash_bits: must be 1 to 32 (got 33)");
}

// What learns keeps eight ghosts a page, which must have numbers, too.
TEST(PrefixCacheFactory, SaysOfHowManyPagesHazardEvicts) {
  PageAllocator allocator(std::int64_t{1} << 27);
  EXPECT_EQ(
      make_prefix_cache("radix", {.allocator = allocator, .eviction = "hazard"}).error().detail,
      "eviction: hazard holds fewer than 134217727 pages (got 134217728)");
}

TEST(NoPrefixCache, ANameIsNobodyElsesAsLongAsSomethingOfItIsHeld) {
  PageAllocator allocator(8);
  const auto cache =
      make_prefix_cache("none", {.allocator = allocator, .namespaces_max = 1}).value();
  const NamespaceId ns = *cache->try_open_namespace(digest_of(0));
  PrefixLock lock = cache->match(ns, Tokens{1});
  cache->close_namespace(ns);
  EXPECT_EQ(cache->try_open_namespace(digest_of(1)), std::nullopt);
  lock.reset();
  EXPECT_EQ(cache->try_open_namespace(digest_of(1)), ns);
}

TEST(NoPrefixCache, SharesNothing) {
  PageAllocator allocator(8);
  const auto cache = make_prefix_cache("none", {allocator}).value();
  EXPECT_FALSE(cache->shares());
  const NamespaceId ns = *cache->try_open_namespace(digest_of(0));
  PrefixLock lock = cache->match(ns, Tokens{1, 2, 3});
  EXPECT_TRUE(lock.valid());
  EXPECT_EQ(lock.tokens(), 0);
  EXPECT_EQ(lock.namespace_id(), ns);
  EXPECT_EQ(lock.copy_pages(0, {}), 0);
  EXPECT_EQ(lock.copy_page_keys(0, {}), 0);
  lock = cache->insert({}, std::move(lock), {}, {});
  EXPECT_TRUE(lock.valid());
  EXPECT_EQ(cache->probe(ns, Tokens{1, 2, 3}).matched_tokens, 0);
  EXPECT_TRUE(cache->evict(8).empty());
  EXPECT_EQ(cache->usage().total_tokens(), 0);
  EXPECT_EQ(cache->epoch(), 0u);
  EXPECT_EQ(cache->audit(), std::nullopt);
  EXPECT_EQ(cache->draw(), "shares nothing\n");
  EXPECT_DEATH(cache->reset(), "lock");
  EXPECT_DEATH(
      static_cast<void>(cache->insert(Tokens(16), std::move(lock), *allocator.try_allocate(1), {})),
      "takes no pages");
  EXPECT_DEATH(static_cast<void>(cache->match(NamespaceId(1), {})), "opened");
}

}  // namespace
}  // namespace stemma
