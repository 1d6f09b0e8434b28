// Covers stemma/c_windows.h: which pages of layers with a window a request holds, and what becomes
// of them with tiers.
#include "stemma/c_windows.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <array>

#include "bindings/c_fixture.h"

namespace stemma {
namespace {

using ::testing::ElementsAre;
using ::testing::Ge;

constexpr std::int64_t kPages = 16;
constexpr std::int64_t kWindowedPages = 8;
constexpr std::int64_t kWindow = 8;  // two pages

stemma_cache_options windowed_options() {
  stemma_cache_options options;
  stemma_cache_options_init(&options, sizeof(options));
  options.pages = kPages;
  options.page_size = kPageSize;
  options.context_tokens_max = kPages * kPageSize;
  options.write_policy = "write-through";
  options.load_wait_us = 60'000'000;
  options.window_tokens = kWindow;
  options.windowed_pages = kWindowedPages;
  return options;
}

class CWindows : public testing::Test {
 protected:
  void open(stemma_tiers* tiers = nullptr) {
    const stemma_cache_options options = windowed_options();
    ASSERT_EQ(stemma_cache_open(&options, tiers, &cache_), STEMMA_OK) << stemma_last_error();
    const std::array<std::uint8_t, 32> digest = {1};
    ASSERT_EQ(stemma_namespace_open(cache_, digest.data(), &ns_), STEMMA_OK);
  }
  void TearDown() override { stemma_cache_close(cache_); }

  // With room for all of its tokens.
  stemma_sequence* begin(const Text& tokens) {
    stemma_sequence* sequence = nullptr;
    EXPECT_EQ(stemma_begin(cache_, ns_, tokens.data(), tokens.size(), &sequence), STEMMA_OK);
    EXPECT_EQ(stemma_reserve(sequence, std::ssize(tokens)), STEMMA_OK);
    return sequence;
  }
  void compute(stemma_sequence* sequence, const Text& tokens) {
    ASSERT_EQ(stemma_commit(sequence, tokens.data(), tokens.size()), STEMMA_OK);
    ASSERT_EQ(stemma_advance(sequence, std::ssize(tokens)), STEMMA_OK);
  }
  static Text windowed_pages(const stemma_sequence* sequence, std::int64_t first_token) {
    std::size_t count = 0;
    stemma_pages(sequence, &count);
    Text pages(count);
    EXPECT_EQ(stemma_windowed_pages(sequence, first_token, pages.data(), count), STEMMA_OK);
    return pages;
  }

  stemma_cache* cache_ = nullptr;
  std::int32_t ns_ = -1;
};

TEST_F(CWindows, ALongTextHoldsFewWindowedPages) {
  open();
  stemma_sequence* const sequence = begin(text(1, 16));
  EXPECT_THAT(windowed_pages(sequence, 0), ElementsAre(Ge(0), Ge(0), Ge(0), Ge(0)));
  compute(sequence, text(1, 16));
  // Token 16 looks back to token 9.
  EXPECT_THAT(windowed_pages(sequence, 16), ElementsAre(-1, -1, Ge(0), Ge(0)));
  for (std::int64_t tokens = 20; tokens <= 64; tokens += 4) {
    ASSERT_EQ(stemma_reserve(sequence, tokens), STEMMA_OK) << tokens << " of " << kWindowedPages;
    compute(sequence, text(1, static_cast<std::size_t>(tokens)));
  }
  stemma_release(sequence);
  EXPECT_EQ(stemma_available_windowed_pages(cache_), kWindowedPages);
}

TEST_F(CWindows, ABatchHasATableOfThemToo) {
  open();
  stemma_sequence* const both[] = {begin(text(1, 12)), begin(text(50, 6))};
  compute(both[0], text(1, 12));
  ASSERT_EQ(stemma_reserve(both[0], 13), STEMMA_OK);
  const std::int64_t first[] = {12, 0};
  const std::int64_t tokens[] = {13, 6};
  const std::int32_t* indptr = nullptr;
  const std::int32_t* pages = nullptr;
  const std::int32_t* last = nullptr;
  ASSERT_EQ(stemma_batch_windowed_pages(cache_, both, first, tokens, 2, &indptr, &pages, &last),
            STEMMA_OK);
  EXPECT_EQ(std::vector(indptr, indptr + 3), (std::vector<std::int32_t>{0, 4, 6}));
  Text expected = windowed_pages(both[0], 12);
  for (const std::int32_t page : windowed_pages(both[1], 0)) expected.push_back(page);
  EXPECT_EQ(Text(pages, pages + 6), expected);
  EXPECT_EQ(pages[0], -1) << "token 12 looks back to token 5";
  EXPECT_THAT(Text(last, last + 2), ElementsAre(1, 2));
  stemma_release(both[0]);
  stemma_release(both[1]);
}

TEST_F(CWindows, AForkHasALastPageOfItsOwnInBothPools) {
  open();
  stemma_sequence* const sequence = begin(text(1, 6));
  compute(sequence, text(1, 6));
  stemma_sequence* fork = nullptr;
  stemma_forked_tail tail;
  tail.struct_size = sizeof(tail);
  ASSERT_EQ(stemma_fork_windowed(sequence, 6, &fork, &tail), STEMMA_OK) << stemma_last_error();
  EXPECT_EQ(tail.from, stemma_pages(sequence, nullptr)[1]);
  EXPECT_EQ(tail.to, stemma_pages(fork, nullptr)[1]);
  EXPECT_EQ(tail.windowed_from, windowed_pages(sequence, 6)[1]);
  EXPECT_EQ(tail.windowed_to, windowed_pages(fork, 6)[1]);
  EXPECT_NE(tail.windowed_from, tail.windowed_to);
  EXPECT_EQ(windowed_pages(sequence, 6)[0], windowed_pages(fork, 6)[0]) << "shared";
  std::int32_t from = 0;
  std::int32_t to = 0;
  EXPECT_EQ(stemma_fork(sequence, 6, &fork, &from, &to), STEMMA_INVALID_ARGUMENT)
      << "it could not say what to copy";
  stemma_release(fork);
  stemma_release(sequence);
}

// Nothing of it is committed: the fork would begin amid a first page of which the windowed part has
// been let go.
TEST_F(CWindows, ThereIsNoForkBehindAWindowThatTheSequenceHasLeft) {
  open();
  stemma_sequence* const sequence = begin(text(1, 16));
  ASSERT_EQ(stemma_advance(sequence, 16), STEMMA_OK);
  stemma_sequence* fork = nullptr;
  stemma_forked_tail tail;
  tail.struct_size = sizeof(tail);
  EXPECT_EQ(stemma_fork_windowed(sequence, 3, &fork, &tail), STEMMA_NO_PAGES);
  stemma_release(sequence);
}

TEST_F(CWindows, WrongArgumentsAreRefused) {
  open();
  stemma_sequence* const sequence = begin(text(1, 8));
  Text pages(3);
  EXPECT_EQ(stemma_windowed_pages(sequence, 0, pages.data(), 3), STEMMA_INVALID_ARGUMENT);
  EXPECT_EQ(stemma_windowed_pages(sequence, -1, pages.data(), 2), STEMMA_INVALID_ARGUMENT);
  EXPECT_EQ(stemma_advance(sequence, 9), STEMMA_INVALID_ARGUMENT);
  stemma_release(sequence);
  EXPECT_EQ(stemma_windowed_pages_max(kWindow, kPageSize, 1), 3);
  EXPECT_EQ(stemma_windowed_pages_max(0, kPageSize, 1), -1);
  stemma_cache_options options = windowed_options();
  options.windowed_pages = 2;
  stemma_cache* other = nullptr;
  EXPECT_EQ(stemma_cache_open(&options, nullptr, &other), STEMMA_INVALID_ARGUMENT);
}

TEST_F(CWindows, WithoutAWindowThereIsNoneOfThis) {
  stemma_cache_options options = windowed_options();
  options.window_tokens = options.windowed_pages = 0;
  ASSERT_EQ(stemma_cache_open(&options, nullptr, &cache_), STEMMA_OK);
  const std::array<std::uint8_t, 32> digest = {1};
  ASSERT_EQ(stemma_namespace_open(cache_, digest.data(), &ns_), STEMMA_OK);
  stemma_sequence* const sequence = begin(text(1, 8));
  Text pages(2);
  EXPECT_EQ(stemma_windowed_pages(sequence, 0, pages.data(), 2), STEMMA_INVALID_ARGUMENT);
  EXPECT_EQ(stemma_advance(sequence, 8), STEMMA_OK) << "nothing is to be let go";
  EXPECT_EQ(stemma_available_windowed_pages(cache_), 0);
  stemma_release(sequence);
}

// What a row of the windowed pool holds comes back with its page.
class CWindowedTiers : public CWindows {
 protected:
  void SetUp() override {
    stemma_pool_options options = pool_options(kPages);
    ASSERT_EQ(stemma_pool_open(&options, &pool_), STEMMA_OK);
    options.pages = kWindowedPages;
    ASSERT_EQ(stemma_pool_open(&options, &windowed_), STEMMA_OK);
    stemma_tiers_options_init(&tiers_options_, sizeof(tiers_options_));
    tiers_options_.host_bytes = 1 << 20;
    ASSERT_EQ(stemma_tiers_open_windowed(&tiers_options_, pool_, windowed_, nullptr, 0, &tiers_),
              STEMMA_OK)
        << stemma_last_error();
  }
  void TearDown() override {
    CWindows::TearDown();
    stemma_tiers_close(tiers_);
    stemma_pool_close(windowed_);
    stemma_pool_close(pool_);
  }
  void store(std::int32_t page, float value) {
    const std::vector<float> row(8, value);
    const std::int64_t slot = page * kPageSize;
    ASSERT_EQ(stemma_pool_store(windowed_, 1, &slot, 1, row.data(), row.data(), STEMMA_F32, 8),
              STEMMA_OK);
  }
  float stored(std::int32_t page) {
    stemma_layer layer;
    layer.struct_size = sizeof(layer);
    EXPECT_EQ(stemma_pool_layer(windowed_, 1, &layer), STEMMA_OK);
    return static_cast<const float*>(layer.k)[page * layer.page_stride];
  }

  stemma_tiers_options tiers_options_;
  stemma_pool* pool_ = nullptr;
  stemma_pool* windowed_ = nullptr;
  stemma_tiers* tiers_ = nullptr;
};

TEST_F(CWindowedTiers, BringBackBothKindsOfPages) {
  open(tiers_);
  stemma_sequence* sequence = begin(text(1, 12));
  const Text before = windowed_pages(sequence, 0);
  for (std::size_t i = 0; i < 3; ++i) store(before[i], static_cast<float>(10 + i));
  ASSERT_EQ(stemma_finish(sequence, text(1, 12).data(), 12), STEMMA_OK);
  ASSERT_EQ(stemma_settle(cache_, INT64_MAX), STEMMA_OK);
  std::int64_t evicted = 0;
  ASSERT_EQ(stemma_evict(cache_, kPages, &evicted), STEMMA_OK);
  EXPECT_EQ(evicted, 3);
  for (std::int32_t page = 0; page < kWindowedPages; ++page) store(page, 0);

  const Text again = text(1, 13);
  std::int64_t promotion = -1;
  ASSERT_EQ(stemma_promote(cache_, ns_, again.data(), again.size(), &promotion), STEMMA_OK);
  while (stemma_worth_waiting(cache_, promotion) == 1) {
    ASSERT_GE(stemma_wait_transfers(cache_, 1'000'000), STEMMA_OK);
  }
  ASSERT_EQ(stemma_promotion_release(cache_, promotion), STEMMA_OK);
  sequence = begin(again);
  EXPECT_EQ(stemma_cached_tokens(sequence), 12);
  const Text after = windowed_pages(sequence, 12);
  EXPECT_EQ(stored(after[1]), 11) << "token 12 looks back to token 5";
  EXPECT_EQ(stored(after[2]), 12);
  stemma_release(sequence);
}

TEST_F(CWindowedTiers, AreOfTheCachesShape) {
  stemma_cache_options options = windowed_options();
  options.windowed_pages = kWindowedPages - 1;
  EXPECT_EQ(stemma_cache_open(&options, tiers_, &cache_), STEMMA_INVALID_ARGUMENT);
  options.window_tokens = options.windowed_pages = 0;
  EXPECT_EQ(stemma_cache_open(&options, tiers_, &cache_), STEMMA_INVALID_ARGUMENT);
  stemma_tiers* none = nullptr;
  EXPECT_EQ(stemma_tiers_open_windowed(&tiers_options_, pool_, nullptr, nullptr, 0, &none),
            STEMMA_INVALID_ARGUMENT);
  stemma_pool_options wider = pool_options(kWindowedPages);
  wider.page_size = 2 * kPageSize;
  stemma_pool* other = nullptr;
  ASSERT_EQ(stemma_pool_open(&wider, &other), STEMMA_OK);
  EXPECT_EQ(stemma_tiers_open_windowed(&tiers_options_, pool_, other, nullptr, 0, &none),
            STEMMA_INVALID_ARGUMENT)
      << "pages of as many tokens are wanted";
  EXPECT_EQ(stemma_tiers_open_windowed(&tiers_options_, pool_, pool_, nullptr, 0, &none),
            STEMMA_INVALID_ARGUMENT)
      << "one pool has not both kinds of pages";
  stemma_pool_close(other);
}

}  // namespace
}  // namespace stemma
