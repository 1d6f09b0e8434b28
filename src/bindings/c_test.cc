// Covers the C ABI beyond what its C99 program does (tests/c): versions of structs, refusals, what
// is handed on to the C++ side, page stores written by callers, and lives with tiers.
#include "stemma/c.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/temp_directory.h"
#include "bindings/c_fixture.h"

namespace stemma {
namespace {

stemma_cache_options cache_options(std::int64_t pages) {
  stemma_cache_options options;
  stemma_cache_options_init(&options, sizeof(options));
  options.pages = pages;
  options.page_size = kPageSize;
  options.requests_max = 2;
  options.context_tokens_max = 64;
  return options;
}

class CTest : public ::testing::Test {
 protected:
  void open(const stemma_cache_options& options, stemma_tiers* tiers = nullptr) {
    ASSERT_EQ(stemma_cache_open(&options, tiers, &cache_), STEMMA_OK) << stemma_last_error();
    const std::array<std::uint8_t, 32> digest = {7};
    ASSERT_EQ(stemma_namespace_open(cache_, digest.data(), &ns_), STEMMA_OK);
  }
  void TearDown() override { close(); }
  void close() {
    stemma_cache_close(cache_);
    cache_ = nullptr;
  }

  stemma_sequence* begin(const Text& tokens) {
    stemma_sequence* sequence = nullptr;
    EXPECT_EQ(stemma_begin(cache_, ns_, tokens.data(), tokens.size(), &sequence), STEMMA_OK);
    return sequence;
  }
  // A whole life: everything is computed and published.
  void publish(const Text& tokens) {
    stemma_sequence* const sequence = begin(tokens);
    ASSERT_EQ(stemma_reserve(sequence, std::ssize(tokens)), STEMMA_OK);
    ASSERT_EQ(stemma_finish(sequence, tokens.data(), tokens.size()), STEMMA_OK);
  }
  std::int64_t probe(const Text& tokens) {
    std::int64_t cached = -1;
    EXPECT_EQ(stemma_probe(cache_, ns_, tokens.data(), tokens.size(), &cached), STEMMA_OK);
    return cached;
  }
  stemma_stats stats() {
    stemma_stats stats;
    stats.struct_size = sizeof(stats);
    EXPECT_EQ(stemma_cache_stats(cache_, &stats), STEMMA_OK);
    return stats;
  }

  stemma_cache* cache_ = nullptr;
  std::int32_t ns_ = -1;
};

TEST_F(CTest, WhatOneRequestComputedTheNextOneFinds) {
  open(cache_options(16));
  publish(text(1, 12));
  Text longer = text(1, 12);
  longer.push_back(99);
  stemma_sequence* const sequence = begin(longer);
  EXPECT_EQ(stemma_cached_tokens(sequence), 12);
  std::size_t pages = 0;
  ASSERT_NE(stemma_pages(sequence, &pages), nullptr);
  EXPECT_EQ(pages, 3u);
  stemma_release(sequence);
}

TEST_F(CTest, PagesAreReadWhereTheTableHasThem) {
  open(cache_options(16));
  stemma_sequence* const sequence = begin(text(1, 12));
  ASSERT_EQ(stemma_reserve(sequence, 12), STEMMA_OK);
  std::size_t count = 0;
  const std::int32_t* const before = stemma_pages(sequence, &count);
  EXPECT_EQ(count, 3u);
  ASSERT_EQ(stemma_commit(sequence, text(1, 8).data(), 8), STEMMA_OK);
  EXPECT_EQ(stemma_pages(sequence, &count), before);
  EXPECT_EQ(stemma_published_tokens(sequence), 8);
  EXPECT_EQ(stemma_capacity_tokens(sequence), 12);
  stemma_release(sequence);
}

TEST_F(CTest, ABatchHasOnePageTable) {
  open(cache_options(16));
  stemma_sequence* const both[] = {begin(text(1, 9)), begin(text(50, 4))};
  ASSERT_EQ(stemma_reserve(both[0], 9), STEMMA_OK);
  ASSERT_EQ(stemma_reserve(both[1], 4), STEMMA_OK);
  const std::int64_t tokens[] = {9, 4};
  const std::int32_t* indptr = nullptr;
  const std::int32_t* pages = nullptr;
  const std::int32_t* last = nullptr;
  ASSERT_EQ(stemma_batch_pages(cache_, both, tokens, 2, &indptr, &pages, &last), STEMMA_OK);
  EXPECT_EQ(std::vector(indptr, indptr + 3), (std::vector<std::int32_t>{0, 3, 4}));
  EXPECT_EQ(std::vector(last, last + 2), (std::vector<std::int32_t>{1, 4}));
  EXPECT_TRUE(std::equal(pages, pages + 3, stemma_pages(both[0], nullptr)));
  EXPECT_EQ(pages[3], stemma_pages(both[1], nullptr)[0]);

  // A step may compute less than there is room for, or nothing.
  const std::int64_t fewer[] = {5, 0};
  ASSERT_EQ(stemma_batch_pages(cache_, both, fewer, 2, &indptr, &pages, &last), STEMMA_OK);
  EXPECT_EQ(std::vector(indptr, indptr + 3), (std::vector<std::int32_t>{0, 2, 2}));
  EXPECT_EQ(std::vector(last, last + 2), (std::vector<std::int32_t>{1, 0}));
  ASSERT_EQ(stemma_batch_pages(cache_, nullptr, nullptr, 0, &indptr, &pages, &last), STEMMA_OK);
  EXPECT_EQ(indptr[0], 0);

  const std::int64_t more[] = {13, 4};
  EXPECT_EQ(stemma_batch_pages(cache_, both, more, 2, &indptr, &pages, &last),
            STEMMA_INVALID_ARGUMENT);
  stemma_sequence* const none[] = {both[0], nullptr};
  EXPECT_EQ(stemma_batch_pages(cache_, none, tokens, 2, &indptr, &pages, &last),
            STEMMA_INVALID_ARGUMENT);
  for (stemma_sequence* const sequence : both) stemma_release(sequence);
}

TEST_F(CTest, OrdinaryOutcomesAreNoErrorsAndChangeNothing) {
  open(cache_options(4));
  stemma_sequence* const first = begin(text(1, 4));
  stemma_sequence* const second = begin(text(50, 4));
  stemma_sequence* third = nullptr;
  EXPECT_EQ(stemma_begin(cache_, ns_, text(9, 4).data(), 4, &third), STEMMA_NO_ROW);
  EXPECT_EQ(third, nullptr);
  EXPECT_EQ(stemma_reserve(first, 12), STEMMA_OK);
  EXPECT_EQ(stemma_reserve(second, 8), STEMMA_NO_PAGES);
  EXPECT_EQ(stemma_capacity_tokens(second), 0);
  stemma_release(first);
  EXPECT_EQ(stemma_reserve(second, 8), STEMMA_OK);
  stemma_release(second);
}

TEST_F(CTest, AnAbortedRequestPublishesNothing) {
  open(cache_options(4));
  stemma_sequence* const sequence = begin(text(1, 9));
  ASSERT_EQ(stemma_reserve(sequence, 9), STEMMA_OK);
  stemma_release(sequence);
  EXPECT_EQ(probe(text(1, 9)), 0);
  EXPECT_EQ(stats().free_pages, 4);
}

TEST_F(CTest, EvictGivesTheColdestThatNobodyHolds) {
  open(cache_options(8));
  publish(text(1, 9));
  publish(text(100, 9));
  stemma_sequence* const held = begin(text(100, 9));
  std::int64_t evicted = 0;
  EXPECT_EQ(stemma_evict(cache_, 1, &evicted), STEMMA_OK);
  EXPECT_EQ(evicted, 1);
  EXPECT_EQ(probe(text(1, 9)), 4);
  EXPECT_EQ(stemma_evict(cache_, 100, &evicted), STEMMA_OK);
  EXPECT_EQ(evicted, 1);
  EXPECT_EQ(probe(text(100, 9)), 8);
  EXPECT_EQ(stats().evicted_pages, 2);
  stemma_release(held);
}

TEST_F(CTest, PagesFreedDuringAStepAreFreeWhenItRetires) {
  open(cache_options(4));
  stemma_sequence* const sequence = begin(text(1, 8));
  ASSERT_EQ(stemma_reserve(sequence, 8), STEMMA_OK);
  std::int64_t step = 0;
  ASSERT_EQ(stemma_step_begin(cache_, &step), STEMMA_OK);
  stemma_release(sequence);
  EXPECT_EQ(stats().free_pages, 2);
  EXPECT_EQ(stemma_evict(cache_, 1, nullptr), STEMMA_INVALID_ARGUMENT);
  EXPECT_EQ(stemma_step_retire(cache_, step + 1), STEMMA_INVALID_ARGUMENT);
  EXPECT_EQ(stemma_step_retire(cache_, step), STEMMA_OK);
  EXPECT_EQ(stats().free_pages, 4);
}

TEST_F(CTest, AForkSharesFullPagesAndHasALastPageOfItsOwn) {
  open(cache_options(4));
  stemma_sequence* const first = begin(text(1, 6));
  ASSERT_EQ(stemma_reserve(first, 6), STEMMA_OK);
  stemma_sequence* fork = nullptr;
  std::int32_t from = 0;
  std::int32_t to = 0;
  EXPECT_EQ(stemma_fork(first, 6, &fork, &from, &to), STEMMA_INVALID_ARGUMENT);  // not committed
  ASSERT_EQ(stemma_commit(first, text(1, 6).data(), 6), STEMMA_OK);
  ASSERT_EQ(stemma_fork(first, 6, &fork, &from, &to), STEMMA_OK) << stemma_last_error();
  EXPECT_EQ(stemma_pages(fork, nullptr)[0], stemma_pages(first, nullptr)[0]);
  EXPECT_EQ(stemma_pages(first, nullptr)[1], from);
  EXPECT_EQ(stemma_pages(fork, nullptr)[1], to);
  EXPECT_NE(from, to);
  stemma_sequence* third = nullptr;
  EXPECT_EQ(stemma_fork(first, 6, &third, &from, &to), STEMMA_NO_ROW);
  stemma_release(first);
  stemma_release(fork);
}

TEST_F(CTest, AForkIsOfNoMoreTokensThanASequenceMayHave) {
  stemma_cache_options options = cache_options(4);
  options.context_tokens_max = 2;  // of a page of four
  open(options);
  stemma_sequence* const first = begin(text(1, 2));
  ASSERT_EQ(stemma_reserve(first, 2), STEMMA_OK);
  stemma_sequence* fork = nullptr;
  std::int32_t from = 0;
  std::int32_t to = 0;
  EXPECT_EQ(stemma_fork(first, 3, &fork, &from, &to), STEMMA_INVALID_ARGUMENT);
  ASSERT_EQ(stemma_fork(first, 2, &fork, &from, &to), STEMMA_OK) << stemma_last_error();
  stemma_release(first);
  stemma_release(fork);
}

TEST_F(CTest, WhatHasPriorityStaysUnderTheEvictionPriority) {
  stemma_cache_options options = cache_options(4);
  options.eviction = "priority";
  open(options);
  stemma_sequence* const sequence = begin(text(1, 9));
  ASSERT_EQ(stemma_set_priority(sequence, 5), STEMMA_OK);
  ASSERT_EQ(stemma_reserve(sequence, 9), STEMMA_OK);
  ASSERT_EQ(stemma_finish(sequence, text(1, 9).data(), 9), STEMMA_OK);
  publish(text(100, 8));
  EXPECT_EQ(stemma_evict(cache_, 2, nullptr), STEMMA_OK);
  EXPECT_EQ(probe(text(1, 9)), 8);
}

TEST_F(CTest, ClosingACacheReleasesWhatIsHeld) {
  open(cache_options(4));
  ASSERT_EQ(stemma_reserve(begin(text(1, 8)), 8), STEMMA_OK);
  close();
}

TEST_F(CTest, NamespacesDoNotMeet) {
  open(cache_options(8));
  publish(text(1, 9));
  const std::array<stemma_field, 1> field = {{{"tenant", "b", 1}}};
  std::array<std::uint8_t, 32> digest;
  ASSERT_EQ(stemma_digest(field.data(), field.size(), digest.data()), STEMMA_OK);
  std::int32_t other = -1;
  ASSERT_EQ(stemma_namespace_open(cache_, digest.data(), &other), STEMMA_OK);
  std::int64_t cached = -1;
  EXPECT_EQ(stemma_probe(cache_, other, text(1, 9).data(), 9, &cached), STEMMA_OK);
  EXPECT_EQ(cached, 0);
  EXPECT_EQ(stemma_namespace_close(cache_, other), STEMMA_OK);
  EXPECT_EQ(stemma_namespace_close(cache_, other), STEMMA_INVALID_ARGUMENT);
  EXPECT_EQ(stemma_probe(cache_, other, text(1, 9).data(), 9, &cached), STEMMA_INVALID_ARGUMENT);
}

TEST_F(CTest, WrongArgumentsAreRefusedWithALine) {
  open(cache_options(4));
  stemma_sequence* sequence = nullptr;
  EXPECT_EQ(stemma_begin(cache_, ns_, nullptr, 4, &sequence), STEMMA_INVALID_ARGUMENT);
  EXPECT_EQ(stemma_begin(nullptr, ns_, text(1, 4).data(), 4, &sequence), STEMMA_INVALID_ARGUMENT);
  EXPECT_EQ(stemma_begin(cache_, 5, text(1, 4).data(), 4, &sequence), STEMMA_INVALID_ARGUMENT);
  EXPECT_STREQ(stemma_last_error(), "invalid_argument: the namespace is not open");
  EXPECT_EQ(stemma_begin(cache_, ns_, text(1, 65).data(), 65, &sequence), STEMMA_TOO_LARGE);
  sequence = begin(text(1, 4));
  EXPECT_EQ(stemma_reserve(sequence, 65), STEMMA_TOO_LARGE);
  EXPECT_EQ(stemma_commit(sequence, text(1, 4).data(), 4), STEMMA_INVALID_ARGUMENT);
  EXPECT_EQ(stemma_finish(sequence, text(1, 4).data(), 4), STEMMA_INVALID_ARGUMENT);
  EXPECT_EQ(stemma_reserve(sequence, 4), STEMMA_OK);
  stemma_release(sequence);
  EXPECT_EQ(stemma_reserve(sequence, 4), STEMMA_INVALID_ARGUMENT);
  EXPECT_EQ(stemma_cached_tokens(nullptr), 0);
  EXPECT_EQ(stemma_pages(nullptr, nullptr), nullptr);
}

TEST_F(CTest, CountsThatNoArrayHasAreRefused) {
  open(cache_options(8));
  const Text tokens = text(1, 8);
  publish(tokens);
  stemma_sequence* const held = begin(tokens);
  ASSERT_EQ(stemma_reserve(held, 8), STEMMA_OK);
  stemma_sequence* sequence = nullptr;
  std::int64_t number = -1;
  const std::uint8_t family = 7;
  for (const std::size_t count : kNoCounts) {
    EXPECT_EQ(stemma_begin(cache_, ns_, tokens.data(), count, &sequence), STEMMA_INVALID_ARGUMENT);
    EXPECT_EQ(stemma_probe(cache_, ns_, tokens.data(), count, &number), STEMMA_INVALID_ARGUMENT);
    EXPECT_EQ(stemma_promote(cache_, ns_, tokens.data(), count, &number), STEMMA_INVALID_ARGUMENT);
    EXPECT_EQ(stemma_commit(held, tokens.data(), count), STEMMA_INVALID_ARGUMENT);
    EXPECT_EQ(stemma_finish(held, tokens.data(), count), STEMMA_INVALID_ARGUMENT);
    EXPECT_EQ(stemma_purge(cache_, &family, count), STEMMA_INVALID_ARGUMENT);
  }
  EXPECT_EQ(sequence, nullptr);
  EXPECT_EQ(stemma_published_tokens(held), 4);
  stemma_release(held);
}

TEST(CDigest, FieldsThatNoMemoryHasAreRefused) {
  std::array<std::uint8_t, 32> digest;
  for (const std::size_t count : kNoCounts) {
    const stemma_field field = {.name = "tenant", .value = "a", .value_bytes = count};
    EXPECT_EQ(stemma_digest(&field, 1, digest.data()), STEMMA_INVALID_ARGUMENT);
    EXPECT_EQ(stemma_digest(&field, count, digest.data()), STEMMA_INVALID_ARGUMENT);
  }
}

TEST(CErrors, AreOfTheThreadThatMadeThem) {
  stemma_set_last_error(STEMMA_IO, "mine");
  std::string theirs = "unset";
  std::thread([&] { theirs = stemma_last_error(); }).join();
  EXPECT_EQ(theirs, "");
  EXPECT_STREQ(stemma_last_error(), "mine");
}

TEST(CErrors, LongLinesAreCut) {
  stemma_set_last_error(STEMMA_IO, std::string(10'000, 'x').c_str());
  EXPECT_EQ(std::strlen(stemma_last_error()), 511u);
}

TEST(CErrors, EveryStatusHasAName) {
  EXPECT_STREQ(stemma_status_name(STEMMA_OK), "ok");
  EXPECT_STREQ(stemma_status_name(STEMMA_NOTHING), "nothing");
  EXPECT_STREQ(stemma_status_name(STEMMA_INVALID_ARGUMENT), "invalid_argument");
  EXPECT_STREQ(stemma_status_name(STEMMA_INTERNAL), "internal");
  EXPECT_STREQ(stemma_status_name(77), "unknown");
  EXPECT_STREQ(stemma_status_name(-77), "unknown");
}

TEST(CStructs, AnOlderCallersFieldsAreTakenAndTheOthersAreDefaults) {
  stemma_cache_options options = cache_options(4);
  options.struct_size = offsetof(stemma_cache_options, requests_max);  // all that it knows
  options.requests_max = -1;
  stemma_cache* cache = nullptr;
  ASSERT_EQ(stemma_cache_open(&options, nullptr, &cache), STEMMA_OK) << stemma_last_error();
  stemma_stats stats;
  stats.struct_size = sizeof(stats);
  ASSERT_EQ(stemma_cache_stats(cache, &stats), STEMMA_OK);
  EXPECT_EQ(stats.pages, 4);
  EXPECT_EQ(stats.free_rows, 16);
  stemma_cache_close(cache);
}

TEST(CStructs, ANewerCallersFieldsAreRefusedUnlessTheyAreZero) {
  struct Newer {
    stemma_cache_options known;
    std::int64_t unknown;
  };
  Newer newer;
  stemma_cache_options_init(&newer.known, sizeof(newer));
  EXPECT_EQ(newer.unknown, 0);
  newer.known.pages = 4;
  stemma_cache* cache = nullptr;
  ASSERT_EQ(stemma_cache_open(&newer.known, nullptr, &cache), STEMMA_OK) << stemma_last_error();
  stemma_cache_close(cache);
  newer.unknown = 1;
  EXPECT_EQ(stemma_cache_open(&newer.known, nullptr, &cache), STEMMA_UNSUPPORTED);
}

TEST(CStructs, OneThatWasNeverInitialisedIsRefused) {
  stemma_cache_options options = cache_options(4);
  stemma_cache* cache = nullptr;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1} << 40}) {
    options.struct_size = bytes;
    EXPECT_EQ(stemma_cache_open(&options, nullptr, &cache), STEMMA_INVALID_ARGUMENT);
  }
  EXPECT_EQ(stemma_cache_open(nullptr, nullptr, &cache), STEMMA_INVALID_ARGUMENT);
}

TEST(CStructs, AnOlderCallersStatsAreNotWrittenBeyondTheirEnd) {
  stemma_cache_options options = cache_options(4);
  stemma_cache* cache = nullptr;
  ASSERT_EQ(stemma_cache_open(&options, nullptr, &cache), STEMMA_OK);
  stemma_stats stats;
  stats.struct_size = offsetof(stemma_stats, free_pages);
  stats.free_pages = 1234;
  ASSERT_EQ(stemma_cache_stats(cache, &stats), STEMMA_OK);
  EXPECT_EQ(stats.pages, 4);
  EXPECT_EQ(stats.free_pages, 1234);
  stemma_cache_close(cache);
}

TEST(CLog, ASinkReceivesEventsOfItsLevel) {
  std::vector<std::string> lines;
  stemma_set_log(
      [](void* context, std::int32_t, const char* line, std::size_t bytes) {
        static_cast<std::vector<std::string>*>(context)->emplace_back(line, bytes);
      },
      &lines, 0);
  TempDirectory directory;
  stemma_store* store = nullptr;
  ASSERT_EQ(stemma_disk_store_open(directory.path().c_str(), 1 << 24, &store), STEMMA_OK);
  stemma_store_close(store);
  stemma_set_log(nullptr, nullptr, 1);
  EXPECT_FALSE(lines.empty());
}

TEST(CPool, RowsAreStoredWhereItsViewSaysTheyAre) {
  const stemma_pool_options options = pool_options(3);
  stemma_pool* pool = nullptr;
  ASSERT_EQ(stemma_pool_open(&options, &pool), STEMMA_OK) << stemma_last_error();
  std::array<float, 8> k;
  std::array<float, 8> v;
  std::iota(k.begin(), k.end(), 1.0f);
  std::iota(v.begin(), v.end(), 100.0f);
  const std::int64_t slot = 2 * kPageSize + 1;
  ASSERT_EQ(stemma_pool_store(pool, 1, &slot, 1, k.data(), v.data(), STEMMA_F32, 8), STEMMA_OK);
  stemma_layer layer;
  layer.struct_size = sizeof(layer);
  ASSERT_EQ(stemma_pool_layer(pool, 1, &layer), STEMMA_OK);
  const std::int64_t element = 2 * layer.page_stride + layer.token_stride;
  EXPECT_EQ(static_cast<float*>(layer.k)[element + 3], 4.0f);
  EXPECT_EQ(static_cast<float*>(layer.v)[element + 3], 103.0f);
  EXPECT_EQ(layer.k_scales, nullptr);
  EXPECT_EQ(stemma_pool_layer(pool, 2, &layer), STEMMA_INVALID_ARGUMENT);
  EXPECT_EQ(stemma_pool_store(pool, 1, &slot, 1, k.data(), nullptr, STEMMA_F32, 8),
            STEMMA_INVALID_ARGUMENT);
  const std::int64_t outside = 3 * kPageSize;
  EXPECT_EQ(stemma_pool_store(pool, 1, &outside, 1, k.data(), v.data(), STEMMA_F32, 8),
            STEMMA_INVALID_ARGUMENT);
  stemma_pool_close(pool);
}

TEST(CPool, RowsThatNoMemoryHasAreRefused) {
  const stemma_pool_options options = pool_options(3);
  stemma_pool* pool = nullptr;
  ASSERT_EQ(stemma_pool_open(&options, &pool), STEMMA_OK);
  const std::array<std::int64_t, 2> slots = {0, 1};
  const std::array<float, 16> rows = {};
  const auto store = [&](std::size_t count, std::int64_t stride) {
    return stemma_pool_store(pool, 0, slots.data(), count, rows.data(), rows.data(), STEMMA_F32,
                             stride);
  };
  EXPECT_EQ(store(2, 8), STEMMA_OK);
  EXPECT_EQ(store(2, INT64_MAX), STEMMA_INVALID_ARGUMENT);
  for (const std::size_t count : kNoCounts) EXPECT_EQ(store(count, 8), STEMMA_INVALID_ARGUMENT);
  stemma_pool_close(pool);
}

TEST(CPool, WrongShapesAreRefused) {
  stemma_pool* pool = nullptr;
  stemma_pool_options options = pool_options(3);
  options.dtype = 6;
  EXPECT_EQ(stemma_pool_open(&options, &pool), STEMMA_INVALID_ARGUMENT);
  options = pool_options(0);
  EXPECT_EQ(stemma_pool_open(&options, &pool), STEMMA_INVALID_ARGUMENT);
  options = pool_options(3);
  for (const std::int32_t threads : {0, 1025, 2'000'000'000}) {
    options = pool_options(3);
    options.threads = threads;
    EXPECT_EQ(stemma_pool_open(&options, &pool), STEMMA_INVALID_ARGUMENT);
    EXPECT_NE(std::string(stemma_last_error()).find("threads must be from 1 to 1024"),
              std::string::npos);
  }
  EXPECT_EQ(pool, nullptr);
}

TEST(CPool, BytesAreTurnedIntoPages) {
  const stemma_pool_options options = pool_options(0);
  std::int64_t pages = 0;
  ASSERT_EQ(stemma_pages_for_bytes(&options, 10'000, &pages), STEMMA_OK);
  EXPECT_EQ(pages, 10'000 / (2 * kPageSize * 2 * 8 * 4));
  EXPECT_EQ(stemma_pages_for_bytes(&options, 1, &pages), STEMMA_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace stemma
