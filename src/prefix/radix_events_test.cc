// What the radix prefix cache tells those who follow it: each way in which pages begin to be found
// or stop, as the events it gives; random lives, after each step of which a mirror built from
// events alone has the pages of the tree; logs that are too small.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "prefix/event_mirror.h"
#include "prefix/prefix_fixture.h"
#include "prefix/random_life.h"

namespace stemma {
namespace {

FixtureOptions with_events() {
  return {.page_size = 2, .events_pages_max = 256};
}

// "+12 34 behind 00" and the like: pages by their tokens, for reading.
class EventText final : public PrefixEventSink {
 public:
  void take(const PrefixEvent& event) override {
    if (event.kind == PrefixEvent::Kind::kCleared) {
      names_.clear();
      text_ += "cleared;";
      return;
    }
    const bool stored = event.kind == PrefixEvent::Kind::kStored;
    text_ += stored ? "+" : "-";
    for (std::size_t i = 0; i < event.keys.size(); ++i) {
      if (stored) {
        names_[event.keys[i]] =
            std::to_string(event.tokens[2 * i]) + std::to_string(event.tokens[2 * i + 1]);
      }
      text_ += (i == 0 ? "" : " ") + names_[event.keys[i]];
    }
    if (event.parent.has_value()) text_ += " behind " + names_[*event.parent];
    text_ += ";";
  }
  std::string take_text() { return std::exchange(text_, ""); }

 private:
  std::map<PageKey, std::string> names_;
  std::string text_;
};

std::string drained(PrefixFixture& f, EventText& text) {
  f.cache->drain_events(text);
  return text.take_text();
}

TEST(RadixEvents, PagesAreToldOfOnceAndBehindWhatTheyContinue) {
  PrefixFixture f(with_events());
  EventText text;
  f.add({1, 2, 3, 4});
  f.add({1, 2, 3, 4});
  EXPECT_EQ(drained(f, text), "+12 34;");
  f.add({1, 2, 5, 6});  // splits
  EXPECT_EQ(drained(f, text), "+56 behind 12;");
  EXPECT_EQ(drained(f, text), "");
}

TEST(RadixEvents, ALeafThatGrowsTellsOfWhatIsNew) {
  PrefixFixture f(with_events());
  EventText text;
  PrefixLock lock = f.begin({1, 2});
  lock = f.publish(std::move(lock), {1, 2, 3, 4});
  lock = f.publish(std::move(lock), {1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(drained(f, text), "+12;+34 behind 12;+56 78 behind 34;");
}

TEST(RadixEvents, WhatIsEvictedIsToldOfFromItsEnd) {
  PrefixFixture f(with_events());
  EventText text;
  f.add({1, 2, 3, 4, 5, 6});
  f.add({1, 2, 7, 8});
  EXPECT_EQ(drained(f, text), "+12 34 56;+78 behind 12;");
  f.cache->evict(1).reset();
  f.cache->evict(3).reset();
  EXPECT_EQ(drained(f, text), "-56 34 78 12;");
}

TEST(RadixEvents, WhatIsDiscardedGoesWithAllBelowIt) {
  PrefixFixture f(with_events());
  EventText text;
  f.add({1, 2, 3, 4, 5, 6});
  f.add({1, 2, 3, 4, 7, 8});
  EXPECT_EQ(drained(f, text), "+12 34 56;+78 behind 34;");
  EXPECT_TRUE(f.cache->try_discard(f.ns, Tokens{1, 2, 3, 4}, 2));
  EXPECT_EQ(drained(f, text), "-78 56 34;");
}

// Held pages in quarantine are gone for everybody else at once; when their holder lets go, or goes
// on, nothing is told of again, and others may publish the same beside them.
TEST(RadixEvents, WhatIsInQuarantineIsGoneAndToldOfOnce) {
  PrefixFixture f(with_events());
  EventText text;
  PrefixLock held = f.begin({1, 2, 3, 4});
  EXPECT_EQ(drained(f, text), "+12 34;");
  std::vector<PageKey> keys;
  f.cache->quarantine(f.ns, Tokens{1, 2, 3, 4}, 0, keys);
  EXPECT_EQ(drained(f, text), "-34 12;");
  held = f.publish(std::move(held), {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(drained(f, text), "");
  f.add({1, 2, 3, 4});
  EXPECT_EQ(drained(f, text), "+12 34;");
  held.reset();
  EXPECT_EQ(drained(f, text), "");
}

TEST(RadixEvents, AResetIsOneEvent) {
  PrefixFixture f(with_events());
  EventText text;
  f.add({1, 2, 3, 4});
  f.cache->reset();
  f.add({5, 6});
  EXPECT_EQ(drained(f, text), "cleared;+56;");
}

TEST(RadixEvents, WhereMoreChangedThanTheLogHoldsEverythingIsToldOfAnew) {
  PrefixFixture f({.page_size = 2, .events_pages_max = 3});
  EventText text;
  f.add({1, 2, 3, 4});
  EXPECT_EQ(drained(f, text), "+12 34;");
  f.add({1, 2, 3, 4, 5, 6, 6, 6});
  f.add({1, 2, 7, 8, 9, 9});
  EXPECT_EQ(f.cache->event_log_or_null()->overflows(), 1);
  f.add({4, 4});
  EXPECT_EQ(drained(f, text), "cleared;+12;+44;+34 56 66 behind 12;+78 99 behind 12;");
  f.add({4, 4, 5, 5});
  EXPECT_EQ(drained(f, text), "+55 behind 44;");
  EXPECT_EQ(f.cache->event_log_or_null()->overflows(), 1);
}

TEST(RadixEvents, WhoFollowsFromNowOnIsToldOfEverything) {
  PrefixFixture f(with_events());
  EventText text;
  f.add({1, 2, 3, 4});
  f.cache->resend_events();
  f.add({5, 6});
  EXPECT_EQ(drained(f, text), "cleared;+12 34;+56;");
}

TEST(RadixEvents, WithoutALogThereIsNothing) {
  PrefixFixture f;
  EventText text;
  f.add({1, 2, 3, 4});
  f.cache->resend_events();
  EXPECT_EQ(drained(f, text), "");
  EXPECT_EQ(f.cache->event_log_or_null(), nullptr);
}

// However many go on from a page, its coming and going takes one look at each node.
TEST(RadixEvents, APageThatManyGoOnFromTakesOneLookAtTheNodes) {
  constexpr int kTenants = 20;
  PrefixFixture f({.page_size = 2, .events_pages_max = 256, .namespaces_max = kTenants + 1});
  EventText text;
  f.add({1, 2});
  for (int tenant = 1; tenant <= kTenants; ++tenant) {
    const NamespaceId ns = *f.cache->try_open_namespace(digest_of(tenant));
    f.cache->set_grafted(ns, true);
    f.cache->follow(ns, f.cache->match(f.ns, Tokens{1, 2}));
    f.begin_in(ns, {3, 4}).reset();
  }
  const auto told = [&] {  // of pages of tenants
    const std::string all = drained(f, text);
    int pages = 0;
    for (auto at = all.find("34"); at != std::string::npos; at = all.find("34", at + 1)) ++pages;
    return pages;
  };
  EXPECT_EQ(told(), kTenants);
  const std::int64_t before = f.cache->listed_nodes();
  std::vector<PageKey> keys;
  f.cache->quarantine(f.ns, Tokens{1, 2}, 0, keys);
  EXPECT_EQ(told(), kTenants);
  EXPECT_LE(f.cache->listed_nodes() - before, 3 * (f.cache->nodes() + 1));
  const std::int64_t gone = f.cache->listed_nodes();
  f.add({1, 2});
  EXPECT_EQ(told(), kTenants);
  EXPECT_LE(f.cache->listed_nodes() - gone, 2 * f.cache->nodes());
}

TEST(RadixEvents, EqualTextsOfTwoNamespacesHaveDifferentKeys) {
  PrefixFixture f(with_events());
  EventMirror mirror;
  f.add({1, 2});
  f.begin_in(*f.cache->try_open_namespace(digest_of(1)), {1, 2}).reset();
  f.cache->drain_events(mirror);
  EXPECT_EQ(mirror.pages.size(), 2u);
}

struct LifeOptions {
  std::int64_t page_size;
  std::int64_t events_pages_max;
  const char* eviction;
};

class RandomEvents : public testing::TestWithParam<LifeOptions> {};

TEST_P(RandomEvents, AMirrorHasThePagesOfTheTree) {
  constexpr std::uint64_t kSeed = 20251;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  const auto [page_size, events_pages_max, eviction] = GetParam();
  RandomLife life({.page_size = page_size,
                   .pages = 150,
                   .eviction = eviction,
                   .events_pages_max = events_pages_max},
                  kSeed);
  EventMirror mirror;
  for (int i = 0; i < 10'000; ++i) {
    life.step();
    if (i % 3 == 0) life.f.cache->drain_events(mirror);
    if (i % 30 == 0) {
      ASSERT_EQ(mirror.pages, pages_found(*life.f.cache)) << "after step " << i;
      ASSERT_EQ(life.f.cache->audit(), std::nullopt);
    }
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(mirror.stored_events, 500);
  EXPECT_GT(mirror.removed_events, 500);
  EXPECT_GT(mirror.cleared_events, 3);
}

INSTANTIATE_TEST_SUITE_P(Lives, RandomEvents,
                         testing::Values(LifeOptions{1, 4096, "lru"}, LifeOptions{16, 4096, "lru"},
                                         LifeOptions{1, 8, "lru"}, LifeOptions{16, 8, "slru"},
                                         LifeOptions{2, 4096, "hazard"},
                                         LifeOptions{3, 20, "s3fifo"}));

}  // namespace
}  // namespace stemma
