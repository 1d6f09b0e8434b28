// What all share goes after what goes on from it: without it nobody would find that.
#include <gtest/gtest.h>

#include <vector>

#include "cache/grafted_copies_fixture.h"

namespace stemma {
namespace {

class SharedWarmth : public GraftedCopies<5> {
 protected:
  static constexpr std::int64_t kWhole = 7;

  void use(NamespaceId where, int number) { kv->begin(where, asked(number))->reset(); }
  // Of host memory, that has no more.
  void fill_host(std::int64_t pages) {
    ns = *kv->try_open_namespace({});
    publish(900, pages);
  }
  void end_promotions() {
    end_jobs([](const Transfer& job) { return job.kind == TransferKind::kPromote; });
  }
};

TEST_F(SharedWarmth, WhatGoesOnFromItGoesFirst) {
  open(64, 0);
  const NamespaceId own = open_tenant(1);
  compute_in(own, text(1));
  ASSERT_EQ(kv->evict(1), 1);
  EXPECT_EQ(kv->probe(own, asked(1)), kWhole - 1);
}

TEST_F(SharedWarmth, AlsoWhereItWasFound) {
  open(64, 0);
  const NamespaceId own = open_tenant(1);
  const NamespaceId other = open_tenant(2);
  compute_in(own, text(1));
  compute_in(other, text(2));
  use(own, 1);
  ASSERT_EQ(kv->evict(3), 3);
  EXPECT_EQ(kv->probe(own, asked(1)), kWhole - 1);
  EXPECT_EQ(kv->probe(other, asked(2)), kWhole - 2);
}

TEST_F(SharedWarmth, AlsoWhereWhatGoesOnComesInPieces) {
  open(64, 0);
  const NamespaceId own = open_tenant(1);
  const std::vector<TokenId> tokens = text(1);
  auto sequence = kv->begin(own, tokens);
  ASSERT_TRUE(kv->reserve(*sequence, 7));
  for (const std::size_t computed : {5u, 6u, 7u}) {
    kv->commit(*sequence, std::span(tokens).first(computed));
  }
  sequence->reset();
  end_backups();
  ASSERT_EQ(kv->evict(1), 1);
  EXPECT_EQ(kv->probe(own, asked(1)), kWhole - 1);
}

TEST_F(SharedWarmth, AlsoWhereOthersPublishedWhatGoesOn) {
  open(64, 0);
  const NamespaceId own = open_tenant(1);
  const std::vector<TokenId> tokens = asked(1);
  auto late = kv->begin(own, tokens);
  ASSERT_TRUE(kv->reserve(*late, 1));
  compute_in(own, text(1));
  ASSERT_EQ(kv->adopt(*late, tokens, 0), kWhole);
  late->reset();
  ASSERT_EQ(kv->evict(1), 1);
  EXPECT_EQ(kv->probe(own, asked(1)), kWhole - 1);
}

// Its priority is that of whoever goes on from it, too.
TEST_F(SharedWarmth, ByPriorityToo) {
  eviction = "priority";
  open(64, 0);
  const NamespaceId own = open_tenant(1);
  compute_in(*kv->try_open_namespace(digest_of(200)), {1, 2, 3, 4, 5});
  auto sequence = kv->begin(own, text(1));
  sequence->set_priority(3);
  ASSERT_TRUE(kv->reserve(*sequence, 7));
  kv->finish(std::move(*sequence), text(1));
  end_backups();
  ASSERT_EQ(kv->evict(1), 1);
  EXPECT_EQ(kv->probe(own, asked(1)), kWhole - 1);
}

TEST_F(SharedWarmth, WhereEvictionLearnsToo) {
  for (const char* learns : {"tlru", "hazard"}) {
    eviction = learns;
    open(64, 0);
    const NamespaceId own = open_tenant(1);
    compute_in(own, text(1));
    ASSERT_EQ(kv->evict(1), 1);
    EXPECT_EQ(kv->probe(own, asked(1)), kWhole - 1) << learns;
  }
}

TEST_F(SharedWarmth, OfWhatIsWantedToo) {
  open(64, 0);
  const NamespaceId own = open_tenant(1);
  compute_in(own, text(1));
  kv->want(own, asked(1), 3);
  ASSERT_EQ(kv->evict(1), 1);
  EXPECT_EQ(kv->probe(own, asked(1)), kWhole - 1);
}

TEST_F(SharedWarmth, InHostMemoryToo) {
  open(kWhole, 0);
  const NamespaceId own = open_tenant(1);
  compute_in(own, text(1));
  fill_host(1);
  kv->evict(64);
  EXPECT_EQ(kv->probe_host(own, asked(1)), kWhole - 1);
}

TEST_F(SharedWarmth, InHostMemoryThatHasItAllWhenItIsComputedAgainToo) {
  open(kWhole, 0);
  const NamespaceId own = open_tenant(1);
  compute_in(own, text(1));
  kv->evict(64);
  compute_in(own, text(1));
  fill_host(1);
  kv->evict(64);
  EXPECT_EQ(kv->probe_host(own, asked(1)), kWhole - 1);
}

TEST_F(SharedWarmth, WhoseCopiesAreUsedWhenTheyComeUp) {
  open(kWhole, 0);
  const NamespaceId own = open_tenant(1);
  compute_in(own, text(1));
  kv->evict(64);
  const auto id = kv->try_promote(own, asked(1));
  ASSERT_TRUE(id.has_value());
  end_promotions();
  kv->release_promotion(*id, PromotionUse::kWaiting);
  ASSERT_EQ(kv->probe(own, asked(1)), kWhole);
  fill_host(1);
  kv->evict(64);
  EXPECT_EQ(kv->probe_host(own, asked(1)), kWhole - 1);
}

}  // namespace
}  // namespace stemma
