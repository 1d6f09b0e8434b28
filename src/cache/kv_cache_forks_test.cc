// What a fork has of the sequence that it is forked off.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "prefix/namespace_examples.h"
#include "prefix/prefix_fixture.h"
#include "stemma/kv_cache.h"

namespace stemma {
namespace {

class KvCacheForks : public ::testing::Test {
 protected:
  void open(std::int64_t pages, const char* eviction = "lru", std::int64_t window_tokens = 0) {
    KvCacheOptions options;
    options.page_size = 4;
    options.pages = pages;
    options.eviction = eviction;
    options.window_tokens = window_tokens;
    options.windowed_pages = window_tokens > 0 ? pages : 0;
    options.requests_max = 3;
    options.context_tokens_max = 64;
    kv = KvCache::open(options).value();
    ns = *kv->try_open_namespace(digest_of(0));
  }
  void TearDown() override { EXPECT_EQ(kv->audit(), std::nullopt); }

  Sequence compute(NamespaceId where, const std::vector<TokenId>& tokens) {
    Sequence sequence = *kv->begin(where, tokens);
    EXPECT_TRUE(kv->reserve(sequence, std::ssize(tokens)));
    return sequence;
  }
  // The fork goes on to the end of a text, and ends before it.
  void go_on(Sequence& first, std::int64_t forked_tokens, const std::vector<TokenId>& tokens) {
    kv->commit(first, std::span(tokens).first(static_cast<std::size_t>(forked_tokens)));
    auto forked = kv->try_fork(first, forked_tokens);
    ASSERT_TRUE(forked.has_value());
    ASSERT_TRUE(kv->reserve(forked->sequence, std::ssize(tokens)));
    kv->finish(std::move(forked->sequence), tokens);
    first.reset();
  }

  std::unique_ptr<KvCache> kv;
  NamespaceId ns;
};

TEST_F(KvCacheForks, AreAsUrgentAsIt) {
  open(8, "priority");
  Sequence other = compute(ns, counted(100, 4));
  other.set_priority(2);
  kv->finish(std::move(other), counted(100, 4));
  Sequence first = compute(ns, counted(0, 8));
  first.set_priority(3);
  go_on(first, 8, counted(0, 12));
  kv->evict(1);
  EXPECT_EQ(kv->probe(ns, counted(0, 13)), 12);
  EXPECT_EQ(kv->probe(ns, counted(100, 5)), 0);
}

TEST_F(KvCacheForks, AreRetainedAsIt) {
  open(8, "hazard");
  Sequence first = compute(ns, counted(0, 12));
  first.set_retention(Retention::kLong);
  go_on(first, 12, counted(0, 16));
  for (const TokenId other : {100, 200}) {
    kv->finish(compute(ns, counted(other, 16)), counted(other, 16));
  }
  EXPECT_EQ(kv->probe(ns, counted(0, 17)), 16);
}

//   shared 8 | own 4
TEST_F(KvCacheForks, HoldWhatAllShareToo) {
  open(16);
  const SharedPrefix shared = {.digest = digest_of(200), .tokens = 8};
  const NamespaceId own = *kv->try_open_namespace(digest_of(1), &shared);
  Sequence first = compute(own, counted(0, 12));
  kv->commit(first, counted(0, 12));
  const auto forked = kv->try_fork(first, 12);
  ASSERT_TRUE(forked.has_value());
  EXPECT_TRUE(std::ranges::equal(forked->sequence.pages(), first.pages()));
  first.reset();
  EXPECT_EQ(kv->evict(16), 0);
  EXPECT_EQ(kv->probe(own, counted(0, 13)), 12);
}

// Where layers have a window, of what it has computed beyond its prompt.
TEST_F(KvCacheForks, ThereAreNoneWhereTheWindowHasGone) {
  open(16, "lru", 4);
  Sequence first = compute(ns, counted(0, 16));
  kv->commit(first, counted(0, 8));
  kv->advance(first, 8);
  EXPECT_TRUE(kv->try_fork(first, 10).has_value());
  kv->advance(first, 16);
  EXPECT_FALSE(kv->try_fork(first, 10).has_value());
}

}  // namespace
}  // namespace stemma
