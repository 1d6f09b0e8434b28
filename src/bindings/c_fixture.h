// What tests of the C ABI have in common: texts, a small pool's options, and a cache over tiers.
//
// Thread:     a test's.
// Memory:     of a TieredLife, what it opens.
// Cost:       none worth noting.
// Not here:   tests (c_test, c_tiers_test, c_loans_test, cuda_c_pool_cuda_test).
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "stemma/c.h"

namespace stemma {

using Text = std::vector<std::int32_t>;

inline constexpr std::int64_t kPageSize = 4;

// Counts that no array has: of bytes, and what becomes of a count below 0.
inline constexpr std::array<std::size_t, 4> kNoCounts = {
    std::size_t{1} << 60, std::size_t{1} << 63, static_cast<std::size_t>(-kPageSize), SIZE_MAX};

// `count` tokens that follow each other.
inline Text text(std::int32_t first, std::size_t count) {
  Text tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// Of two layers, with rows of eight f32.
inline stemma_pool_options pool_options(std::int64_t pages) {
  stemma_pool_options options;
  stemma_pool_options_init(&options, sizeof(options));
  options.layers = 2;
  options.pages = pages;
  options.page_size = kPageSize;
  options.heads = 1;
  options.head_dim = 8;
  options.dtype = STEMMA_F32;
  return options;
}

// A pool of kTieredPages that the test has opened, host memory and a store below it, and a cache:
// what is published goes down at once, and waiting for what comes up is always worth it.
class TieredLife {
 public:
  static constexpr std::int64_t kTieredPages = 16;

  // Takes both over. `store_or_null`: there is none. `patience_us`: of who waits for pages, and of
  // the operations that bring them. `purge_file_or_null`: as stemma_tiers_options says.
  explicit TieredLife(stemma_pool* pool, stemma_store* store_or_null = nullptr,
                      std::int64_t patience_us = 60'000'000,
                      const char* purge_file_or_null = nullptr)
      : pool_(pool) {
    stemma_tiers_options tiers;
    stemma_tiers_options_init(&tiers, sizeof(tiers));
    tiers.host_bytes = 1 << 20;
    tiers.purge_file = purge_file_or_null;
    const std::size_t stores = store_or_null == nullptr ? 0 : 1;
    EXPECT_EQ(stemma_tiers_open(&tiers, pool_, &store_or_null, stores, &tiers_), STEMMA_OK)
        << stemma_last_error();
    stemma_cache_options cache;
    stemma_cache_options_init(&cache, sizeof(cache));
    cache.pages = kTieredPages;
    cache.page_size = kPageSize;
    cache.context_tokens_max = kTieredPages * kPageSize;
    cache.write_policy = "write-through";
    cache.load_wait_us = patience_us;
    cache.store_deadline_us = patience_us;
    EXPECT_EQ(stemma_cache_open(&cache, tiers_, &cache_), STEMMA_OK) << stemma_last_error();
    const std::array<std::uint8_t, 32> digest = {1};
    EXPECT_EQ(stemma_namespace_open(cache_, digest.data(), &ns_), STEMMA_OK);
  }
  ~TieredLife() {
    stemma_cache_close(cache_);
    stemma_tiers_close(tiers_);
    stemma_pool_close(pool_);
  }
  TieredLife(const TieredLife&) = delete;
  TieredLife& operator=(const TieredLife&) = delete;

  stemma_pool* pool() const noexcept { return pool_; }
  stemma_cache* cache() const noexcept { return cache_; }
  std::int32_t ns() const noexcept { return ns_; }

  stemma_sequence* begin(const Text& tokens) const {
    stemma_sequence* sequence = nullptr;
    EXPECT_EQ(stemma_begin(cache_, ns_, tokens.data(), tokens.size(), &sequence), STEMMA_OK)
        << stemma_last_error();
    return sequence;
  }
  // Where the first `tokens` tokens of a sequence lie.
  static std::vector<std::int64_t> slots_of(const stemma_sequence* sequence, std::size_t tokens) {
    const std::int32_t* const pages = stemma_pages(sequence, nullptr);
    std::vector<std::int64_t> slots;
    for (std::size_t i = 0; i < tokens; ++i) {
      const auto place = static_cast<std::int64_t>(i);
      slots.push_back(pages[place / kPageSize] * kPageSize + place % kPageSize);
    }
    return slots;
  }
  // The element of K or V at which the row of a slot begins.
  static std::int64_t element_of(const stemma_layer& layer, std::int64_t slot) {
    return slot / kPageSize * layer.page_stride + slot % kPageSize * layer.token_stride;
  }
  stemma_layer layer(std::int64_t index) const {
    stemma_layer view;
    view.struct_size = sizeof(view);
    EXPECT_EQ(stemma_pool_layer(pool_, index, &view), STEMMA_OK);
    return view;
  }

  void settle() const { EXPECT_EQ(stemma_settle(cache_, INT64_MAX), STEMMA_OK); }
  // Nothing of `pages` cached ones stays but below.
  void lose_the_device(std::int64_t pages) const {
    settle();
    std::int64_t evicted = 0;
    ASSERT_EQ(stemma_evict(cache_, kTieredPages, &evicted), STEMMA_OK);
    EXPECT_EQ(evicted, pages);
  }
  // -1: there is nothing to bring up.
  std::int64_t promote(const Text& tokens) const {
    std::int64_t promotion = -1;
    EXPECT_GE(stemma_promote(cache_, ns_, tokens.data(), tokens.size(), &promotion), STEMMA_OK);
    return promotion;
  }
  void wait_for(std::int64_t promotion) const {
    while (stemma_worth_waiting(cache_, promotion) == 1) {
      ASSERT_GE(stemma_wait_transfers(cache_, 1'000'000), STEMMA_OK);
    }
    ASSERT_EQ(stemma_promotion_release(cache_, promotion), STEMMA_OK);
  }

 private:
  stemma_pool* pool_;
  stemma_tiers* tiers_ = nullptr;
  stemma_cache* cache_ = nullptr;
  std::int32_t ns_ = -1;
};

}  // namespace stemma
