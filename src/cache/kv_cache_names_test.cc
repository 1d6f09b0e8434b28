// Names of namespaces: who goes on from a text which all share has two.
#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "prefix/namespace_examples.h"
#include "stemma/kv_cache.h"

namespace stemma {
namespace {

class KvCacheNames : public ::testing::Test {
 protected:
  static constexpr std::int64_t kPageSize = 4;

  void open(std::int64_t names) {
    KvCacheOptions options;
    options.page_size = kPageSize;
    options.pages = 8;
    options.namespaces_max = names;
    kv = KvCache::open(options).value();
  }
  std::optional<NamespaceId> try_open_tenant() {
    const SharedPrefix shared = {.digest = digest_of(200), .tokens = kPageSize};
    return kv->try_open_namespace(digest_of(1), &shared);
  }

  std::unique_ptr<KvCache> kv;
};

TEST_F(KvCacheNames, BothAreGivenAwayOnceTheTenantsIsClosed) {
  open(2);
  const auto own = try_open_tenant();
  ASSERT_TRUE(own.has_value());
  EXPECT_FALSE(kv->try_open_namespace(digest_of(2)).has_value());
  kv->close_namespace(*own);
  EXPECT_TRUE(kv->try_open_namespace(digest_of(2)).has_value());
  EXPECT_TRUE(kv->try_open_namespace(digest_of(3)).has_value());
}

TEST_F(KvCacheNames, WhoGetsButOneOfTwoKeepsNone) {
  open(1);
  EXPECT_FALSE(try_open_tenant().has_value());
  EXPECT_TRUE(kv->try_open_namespace(digest_of(2)).has_value());
}

}  // namespace
}  // namespace stemma
