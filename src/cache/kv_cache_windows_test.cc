// What sequences hold of layers that look back over a window.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "prefix/prefix_fixture.h"
#include "stemma/kv_cache.h"

namespace stemma {
namespace {

class KvCacheWindows : public ::testing::Test {
 protected:
  void open(std::int64_t window_tokens, std::int64_t windowed_pages) {
    KvCacheOptions options;
    options.page_size = 4;
    options.pages = 32;
    options.requests_max = 3;
    options.context_tokens_max = 64;
    options.window_tokens = window_tokens;
    options.windowed_pages = windowed_pages;
    kv = KvCache::open(options).value();
    ns = *kv->try_open_namespace({});
  }
  void TearDown() override { EXPECT_EQ(kv->audit(), std::nullopt); }

  std::unique_ptr<KvCache> kv;
  NamespaceId ns;
};

TEST_F(KvCacheWindows, WhereTheirPagesAreShortNothingIsReserved) {
  open(4, 3);
  Sequence sequence = *kv->begin(ns, counted(0, 20));
  EXPECT_EQ(kv->reservable_tokens(sequence), 12);
  EXPECT_FALSE(kv->reserve(sequence, 16));
  EXPECT_TRUE(sequence.pages().empty());
  EXPECT_EQ(kv->free_pages(), 32);
  EXPECT_TRUE(kv->reserve(sequence, 12));
}

//   prompt │ outputs        page 1 is needed to go on from none of their ends
//     0    │ 1   2
TEST_F(KvCacheWindows, ThoseBehindAPromptsEndGoFirst) {
  open(4, 4);
  Sequence sequence = *kv->begin(ns, counted(0, 4));
  ASSERT_TRUE(kv->reserve(sequence, 12));
  kv->commit(sequence, counted(0, 12));
  kv->advance(sequence, 12);
  kv->finish(std::move(sequence), counted(0, 12));
  kv->keep_free(2);
  EXPECT_EQ(kv->probe(ns, counted(0, 5)), 4);
  EXPECT_EQ(kv->probe(ns, counted(0, 9)), 4);
  EXPECT_EQ(kv->probe(ns, counted(0, 13)), 12);
}

}  // namespace
}  // namespace stemma
