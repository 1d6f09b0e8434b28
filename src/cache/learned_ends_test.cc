// What an eviction policy that learns is told of how requests end.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "prefix/namespace_examples.h"
#include "prefix/prefix_fixture.h"
#include "prefix/tlru_policy.h"
#include "stemma/kv_cache.h"

namespace stemma {
namespace {

// Pages of 1,024 tokens under "tlru": of a text that was asked for, seven pages at its end can be
// computed again in time, and go first.
class LearnedEnds : public ::testing::Test {
 protected:
  static constexpr std::int64_t kPageTokens = 1'024;
  static constexpr std::int64_t kSparePages =
      (TlruPolicy::kComputedTokensMax - TlruPolicy::kNextTurnTokens) / kPageTokens;
  static_assert(kSparePages == 7);

  LearnedEnds() {
    KvCacheOptions options;
    options.page_size = kPageTokens;
    options.pages = 64;
    options.requests_max = 2;
    options.context_tokens_max = 16 * kPageTokens;
    options.eviction = "tlru";
    kv = KvCache::open(options).value();
    ns = *kv->try_open_namespace(digest_of(0));
  }

  static std::vector<TokenId> text(TokenId first, std::int64_t pages) {
    return counted(first, pages * kPageTokens);
  }
  void publish(NamespaceId where, const std::vector<TokenId>& tokens) {
    auto sequence = kv->begin(where, tokens);
    ASSERT_TRUE(kv->reserve(*sequence, std::ssize(tokens)));
    kv->finish(std::move(*sequence), tokens);
  }
  std::int64_t cached_pages(NamespaceId where, std::vector<TokenId> tokens) const {
    tokens.push_back(0);
    return kv->probe(where, tokens) / kPageTokens;
  }

  std::unique_ptr<KvCache> kv;
  NamespaceId ns;
};

//   shared 8 | a tenant: 2, which are soon computed behind it
TEST_F(LearnedEnds, OfWhatATenantGoesOnWithTheSharedPartIsNone) {
  const SharedPrefix shared = {.digest = digest_of(200), .tokens = 8 * kPageTokens};
  const NamespaceId own = *kv->try_open_namespace(digest_of(1), &shared);
  publish(ns, text(1'000'000, 12));
  publish(own, text(0, 10));
  kv->evict(kSparePages + 2);
  EXPECT_EQ(cached_pages(own, text(0, 10)), 8);
  EXPECT_EQ(cached_pages(ns, text(1'000'000, 12)), 12 - kSparePages);
}

// Whose namespace was purged before it ran, say. It found what others have published since.
TEST_F(LearnedEnds, WhoPublishesNothingTeachesNothing) {
  const std::vector<TokenId> older = text(0, 3);
  const std::vector<TokenId> younger = text(1'000'000, 3);
  publish(ns, older);
  publish(ns, younger);
  auto sequence = kv->begin(ns, older);
  sequence->stop_publishing();
  ASSERT_TRUE(kv->reserve(*sequence, std::ssize(older)));
  kv->finish(std::move(*sequence), older);
  kv->evict(3);
  EXPECT_EQ(cached_pages(ns, older), 0);
  EXPECT_EQ(cached_pages(ns, younger), 3);
}

}  // namespace
}  // namespace stemma
