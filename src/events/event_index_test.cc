// The index that events rebuild: what it takes and what contradicts itself; 100,000 random
// operations of a cache, over the wire in each of its forms, after which index and tree are equal.
#include "events/event_index.h"

#include <gtest/gtest.h>

#include <string>

#include "events/event_fixture.h"

namespace stemma {
namespace {

WireEvent stored(std::vector<std::uint64_t> hashes, std::optional<std::uint64_t> parent,
                 Tokens tokens) {
  WireEvent event;
  event.kind = WireEvent::Kind::kStored;
  for (const std::uint64_t hash : hashes) event.hashes.push_back(EventHash::of(hash));
  if (parent.has_value()) event.parent = EventHash::of(*parent);
  event.page_size = static_cast<std::int64_t>(tokens.size() / hashes.size());
  event.tokens = std::move(tokens);
  return event;
}

WireEvent removed(std::vector<std::uint64_t> hashes) {
  WireEvent event = stored(std::move(hashes), std::nullopt, {});
  event.kind = WireEvent::Kind::kRemoved;
  return event;
}

TEST(EventIndex, PagesComeAndGo) {
  EventIndex index;
  index.apply(stored({1, 2}, std::nullopt, {10, 20}));
  index.apply(stored({3}, 2, {30}));
  EXPECT_EQ(index.pages(), 3);
  index.apply(removed({3, 2}));
  EXPECT_EQ(index.pages(), 1);
  EXPECT_TRUE(index.contains(EventHash::of(1)));
  index.apply(removed({3, 2}));  // they are gone: no harm
  index.apply(stored({1}, std::nullopt, {10}));
  EXPECT_EQ(index.contradictions(), 0);
  WireEvent cleared;
  cleared.kind = WireEvent::Kind::kCleared;
  index.apply(cleared);
  EXPECT_EQ(index.pages(), 0);
}

TEST(EventIndex, OtherMediaAndGroupsArePassedOver) {
  EventIndex index;
  WireEvent event = stored({1}, std::nullopt, {10});
  event.medium = "STORAGE";
  index.apply(event);
  event.medium = "GPU";
  event.group = 1;
  index.apply(event);
  EXPECT_EQ(index.pages(), 0);
  event.group = 0;
  index.apply(event);
  EXPECT_EQ(index.pages(), 1);
}

TEST(EventIndex, WhatContradictsItselfIsCountedAndLeftOut) {
  EventIndex index;
  index.apply(stored({1, 2}, std::nullopt, {10, 20}));
  index.apply(stored({3, 4}, 9, {30, 40}));
  EXPECT_EQ(index.first_contradiction(),
            "page 0000000000000003 is stored behind a page that is not known");
  index.apply(stored({2}, 1, {21}));
  index.apply(stored({5}, 5, {50}));
  EXPECT_EQ(index.contradictions(), 3);
  EXPECT_EQ(index.pages(), 2);
}

// A node of SGLang's goes from its first page to its last, an event each.
TEST(EventIndex, PagesOfABatchGoInAnyOrder) {
  EventIndex index;
  index.apply(stored({1, 2, 3}, std::nullopt, {10, 20, 30}));
  index.apply(stored({4}, 2, {40}));
  index.end_batch();
  for (const std::uint64_t hash : {2u, 4u, 3u}) index.apply(removed({hash}));
  index.end_batch();
  EXPECT_EQ(index.contradictions(), 0) << index.first_contradiction();
  EXPECT_EQ(index.pages(), 1);
  index.apply(removed({1}));
  index.end_batch();
  EXPECT_EQ(index.contradictions(), 0);
  EXPECT_EQ(index.pages(), 0);
}

TEST(EventIndex, APageThatGoesWithoutThoseBehindItIsCountedOnce) {
  EventIndex index;
  index.apply(stored({1, 2}, std::nullopt, {10, 20}));
  index.apply(stored({3}, 1, {30}));
  index.apply(removed({1}));
  EXPECT_EQ(index.contradictions(), 0) << "the batch goes on";
  index.end_batch();
  index.end_batch();
  EXPECT_EQ(index.contradictions(), 1);
  EXPECT_EQ(index.first_contradiction(),
            "page 0000000000000001 is removed while another continues it");
  EXPECT_EQ(index.pages(), 2);
  index.apply(removed({2}));
  index.apply(stored({1}, std::nullopt, {10}));
  index.apply(removed({1}));
  index.apply(removed({3}));
  index.end_batch();
  EXPECT_EQ(index.contradictions(), 1);
  EXPECT_EQ(index.pages(), 0);
}

// What continued it then continues it still.
TEST(EventIndex, APageThatCameBackAndGoesAgainIsCountedAgain) {
  EventIndex index;
  index.apply(stored({1, 2}, std::nullopt, {10, 20}));
  for (std::int64_t times = 1; times <= 3; ++times) {
    index.apply(removed({1}));
    index.end_batch();
    EXPECT_EQ(index.contradictions(), times);
    index.apply(stored({1}, std::nullopt, {10}));
    index.end_batch();
    EXPECT_EQ(index.contradictions(), times);
  }
}

TEST(EventIndex, WhatIsClearedContinuesNothing) {
  EventIndex index;
  index.apply(stored({1, 2}, std::nullopt, {10, 20}));
  index.apply(removed({1}));
  index.clear();
  index.apply(stored({1}, std::nullopt, {10}));
  index.apply(removed({1}));
  index.end_batch();
  EXPECT_EQ(index.contradictions(), 0) << index.first_contradiction();
}

TEST(EventIndex, ADifferenceNamesThePage) {
  EventIndex one;
  EventIndex two;
  EXPECT_EQ(one.difference(two), std::nullopt);
  one.apply(stored({1}, std::nullopt, {10}));
  EXPECT_EQ(one.difference(two), "only one has page 0000000000000001");
  EXPECT_EQ(two.difference(one), "only one has page 0000000000000001");
  two.apply(stored({1}, std::nullopt, {11}));
  EXPECT_EQ(one.difference(two), "two texts of page 0000000000000001");
  two.clear();
  two.apply(stored({2, 1}, std::nullopt, {20, 10}));
  EXPECT_EQ(one.difference(two), "two parents of page 0000000000000001");
}

struct LifeOptions {
  std::int64_t page_size;
  std::int64_t events_pages_max;
  EventForm form;
  HashForm hashes;
};

class RebuiltIndex : public testing::TestWithParam<LifeOptions> {};

TEST_P(RebuiltIndex, EqualsTheTreeAfter100000RandomOperations) {
  constexpr std::uint64_t kSeed = 100'000;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  const auto [page_size, events_pages_max, form, hashes] = GetParam();
  RandomLife life({.page_size = page_size, .pages = 150, .events_pages_max = events_pages_max},
                  kSeed);
  EventIndex index;
  EventWriter writer({.form = form, .hashes = hashes, .medium = "GPU"});
  EventBuffer buffer;
  const auto drain = [&] {
    buffer.clear();
    life.f.cache->drain_events(buffer);
    buffer.for_each(64, [&](const PrefixEvent& event) { writer.add(event); });
    const auto batch = read_event_batch(writer.finish(1));
    ASSERT_TRUE(batch.ok()) << to_string(batch.error());
    index.apply(*batch);
  };
  for (int i = 1; i <= 100'000; ++i) {
    life.step();
    if (i % 4 == 0) drain();
    if (i % 1000 == 0) {
      ASSERT_EQ(index.difference(index_of(*life.f.cache, hashes)), std::nullopt)
          << "after operation " << i;
    }
  }
  EXPECT_EQ(index.contradictions(), 0) << index.first_contradiction();
  EXPECT_GT(index.pages(), 0);
}

INSTANTIATE_TEST_SUITE_P(
    Forms, RebuiltIndex,
    testing::Values(LifeOptions{1, 4096, EventForm::kByPosition, HashForm::kUnsigned},
                    LifeOptions{16, 4096, EventForm::kByPosition, HashForm::kBytes},
                    LifeOptions{16, 4096, EventForm::kByName, HashForm::kSigned},
                    LifeOptions{1, 4096, EventForm::kByName, HashForm::kBytes},
                    LifeOptions{1, 12, EventForm::kByPosition, HashForm::kUnsigned}));

}  // namespace
}  // namespace stemma
