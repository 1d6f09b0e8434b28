// Steady state: match, insert, complete, evict, copying ids, unlocking and probing take nothing
// from the heap, with a full pool, splits, duplicates and evictions all the time. Every operator
// new of this program counts.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <vector>

#include "base/heap_counter.h"
#include "base/prng.h"
#include "prefix/prefix_fixture.h"

namespace stemma {
namespace {

// Texts that share prefixes of many lengths.
std::vector<Tokens> shared_texts(Prng& random, std::int64_t page_size) {
  std::vector<Tokens> texts = {{}};
  for (int i = 0; i < 400; ++i) {
    const Tokens& stem =
        texts[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(texts.size())))];
    const auto kept = random.below(static_cast<std::int64_t>(stem.size()) / page_size + 1);
    Tokens text(stem.begin(), stem.begin() + kept * page_size);
    for (std::int64_t t = 0; t < (1 + random.below(6)) * page_size; ++t) {
      text.push_back(static_cast<TokenId>(random.below(3)));
    }
    texts.push_back(std::move(text));
  }
  return texts;
}

// One request in two chunks, with all that a step does to the cache.
void serve(PrefixFixture& f, const Tokens& text, std::span<PageId> row) {
  const std::span<const TokenId> tokens(text);
  PrefixLock lock = f.cache->match(f.ns, tokens);
  const auto missing = (static_cast<std::int64_t>(tokens.size()) - lock.tokens()) / f.page_size;
  const std::int64_t first_chunk = missing / 2;
  for (const std::int64_t pages : {first_chunk, missing - first_chunk}) {
    const auto end = static_cast<std::size_t>(lock.tokens() + pages * f.page_size);
    lock = f.cache->insert(tokens.first(end), std::move(lock), f.allocate(pages), {});
    lock.copy_pages(0, row);
    ASSERT_GE(f.cache->probe(f.ns, tokens).matched_tokens, lock.tokens());
  }
  f.cache->complete(lock, {.prompt_tokens = lock.tokens(), .output_tokens = 10});
}

class PrefixSteadyState : public testing::TestWithParam<const char*> {};

TEST_P(PrefixSteadyState, NothingIsTakenFromTheHeap) {
  for (const std::int64_t page_size : {1, 16}) {
    PrefixFixture f({.page_size = page_size, .pages = 300, .eviction = GetParam()});
    Prng random(1);
    const std::vector<Tokens> texts = shared_texts(random, page_size);
    std::vector<PageId> row(1000);
    const std::int64_t before = heap_allocations;
    for (int i = 0; i < 5'000; ++i) {
      serve(f, texts[static_cast<std::size_t>(random.below(401))], row);
    }
    EXPECT_EQ(heap_allocations - before, 0);
    EXPECT_EQ(f.allocator.free_pages() + f.cache->usage().total_tokens() / page_size, 300);
  }
}

class CountingSink final : public PrefixEventSink {
 public:
  void take(const PrefixEvent& event) override { pages += std::ssize(event.keys); }
  std::int64_t pages = 0;
};

TEST_P(PrefixSteadyState, NorForEventsThatAreDrainedEachStep) {
  PrefixFixture f(
      {.page_size = 16, .pages = 300, .eviction = GetParam(), .events_pages_max = 1000});
  Prng random(1);
  const std::vector<Tokens> texts = shared_texts(random, 16);
  std::vector<PageId> row(1000);
  CountingSink sink;
  serve(f, texts[1], row);  // the first key reserves room for all of them
  const std::int64_t before = heap_allocations;
  for (int i = 0; i < 5'000; ++i) {
    serve(f, texts[static_cast<std::size_t>(random.below(401))], row);
    f.cache->drain_events(sink);
  }
  EXPECT_EQ(heap_allocations - before, 0);
  EXPECT_EQ(f.cache->event_log_or_null()->overflows(), 0);
  EXPECT_GT(sink.pages, 3'000);
}

// Any tenant may ask what is near its text, and purge what it has, between two steps: what that
// costs must not grow with what others have.
TEST(PrefixSteadyStateOfOthers, WhatOneTenantAsksTakesNothingForTheNodesOfOthers) {
  PrefixFixture f({.page_size = 1, .pages = 5'000});
  NamespaceDigest ours;
  ours.bytes[0] = 1;
  const NamespaceId ns = *f.cache->try_open_namespace(ours);
  for (std::int32_t i = 0; i < 2'000; ++i) {  // two by two below a page of their own
    const Tokens text = {i / 2, i % 2};
    PrefixLock held = f.cache->match(f.ns, text);
    const std::int64_t missing = 2 - held.tokens();
    f.cache->insert(text, std::move(held), f.allocate(missing), {}).reset();
  }
  const Tokens text = {7, 8, 9};
  f.cache->insert(text, f.cache->match(ns, {}), f.allocate(3), {}).reset();
  const std::int64_t before = heap_allocations;
  EXPECT_EQ(f.cache->nearest(ns, Tokens{7, 1}, 2).common_tokens, 1);
  EXPECT_EQ(f.cache->nearest(ns, Tokens{5}, 2).common_tokens, 0);
  const NamespaceFamily family = family_of(ours);
  EXPECT_EQ(f.cache->purge({&family, 1}), 3);
  EXPECT_LT(heap_allocations - before, 50);
}

INSTANTIATE_TEST_SUITE_P(Orders, PrefixSteadyState,
                         testing::Values("lru", "tlru", "s3fifo", "hazard"));

}  // namespace
}  // namespace stemma
