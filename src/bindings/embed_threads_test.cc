// What embedders open where the system has no thread left: an error, and nothing is thrown.
#include <gtest/gtest.h>

#include <cerrno>
#include <utility>

#include "base/forked_child.h"
#include "base/scarce_threads.h"
#include "stemma/embed.h"
#include "stemma/kv_cache.h"

namespace stemma {
namespace {

constexpr KvShape kShape = {.layers = 1, .pages = 4, .page_size = 4, .heads = 1, .head_dim = 8};

template <typename Opened>
bool has_no_thread(const Opened& opened) {
  return !opened.ok() && opened.error().code == ErrorCode::kIo &&
         opened.error().sys_errno == EAGAIN;
}

TEST(EmbedThreads, APoolThatCannotBeFilledByAsManyIsAnError) {
  EXPECT_EQ(in_forked_child([] {
              if (!limit_threads(1)) return 1;
              const auto refused = open_kv_pool(kShape, KvLayout::kLayerFirst, 8);
              const auto alone = open_kv_pool(kShape, KvLayout::kLayerFirst, 1);
              return has_no_thread(refused) && alone.ok() ? 0 : 2;
            }),
            0);
}

TEST(EmbedThreads, SoIsACacheWhosePagesNobodyCouldMove) {
  EXPECT_EQ(in_forked_child([] {
              const auto pool = open_kv_pool(kShape);
              if (!pool.ok()) return 1;
              const auto tiers = open_lower_tiers({.host_bytes = 1 << 16}, **pool, {}, 1);
              if (!tiers.ok() || !limit_threads(1)) return 2;
              KvCacheOptions options;
              options.page_size = kShape.page_size;
              options.pages = kShape.pages;
              return has_no_thread(KvCache::open(options, nullptr, tiers->get())) ? 0 : 3;
            }),
            0);
}

}  // namespace
}  // namespace stemma
