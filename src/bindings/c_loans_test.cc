// Covers stemma/c_loans.h: a step begins before its pages have come, reads each layer when it is
// there, and is told whether all of it was right.
#include "stemma/c_loans.h"

#include <gtest/gtest.h>

#include <optional>

#include "bindings/c_fixture.h"
#include "stemma/c_tenants.h"
#include "stemma/c_windows.h"

namespace stemma {
namespace {

Text prompt() {
  return text(1, 25);
}

// A prompt of six pages and a token, which host memory alone has: rows of a token are its number.
class CLoans : public testing::Test {
 protected:
  void SetUp() override {
    const stemma_pool_options options = pool_options(TieredLife::kTieredPages);
    stemma_pool* pool = nullptr;
    ASSERT_EQ(stemma_pool_open(&options, &pool), STEMMA_OK);
    life_.emplace(pool);
    stemma_sequence* const sequence = life_->begin(prompt());
    ASSERT_EQ(stemma_reserve(sequence, 25), STEMMA_OK);
    const std::vector<std::int64_t> slots = TieredLife::slots_of(sequence, 25);
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const std::vector<float> row(8, static_cast<float>(i + 1));
      for (std::int64_t layer = 0; layer < 2; ++layer) {
        ASSERT_EQ(
            stemma_pool_store(pool, layer, &slots[i], 1, row.data(), row.data(), STEMMA_F32, 8),
            STEMMA_OK);
      }
    }
    ASSERT_EQ(stemma_finish(sequence, prompt().data(), 25), STEMMA_OK);
    life_->lose_the_device(6);
    promotion_ = life_->promote(prompt());
    sequence_ = life_->begin(prompt());
  }

  stemma_status lend(const Text& tokens) {
    return stemma_lend(sequence_, tokens.data(), tokens.size(), promotion_, &named_);
  }
  stemma_cache* cache() { return life_->cache(); }

  std::optional<TieredLife> life_;
  std::int64_t promotion_ = -1;
  stemma_sequence* sequence_ = nullptr;
  std::int64_t named_ = -1;
  std::int32_t whole_ = -1;
};

TEST_F(CLoans, EachLayerIsThereWhenItWasWaitedFor) {
  ASSERT_EQ(lend(prompt()), STEMMA_OK);
  ASSERT_EQ(named_, 24);
  ASSERT_EQ(stemma_reserve(sequence_, 25), STEMMA_OK);
  std::int64_t step = 0;
  ASSERT_EQ(stemma_step_begin(cache(), &step), STEMMA_OK);
  for (std::int64_t index = 0; index < 2; ++index) {
    ASSERT_EQ(stemma_wait_layer(cache(), index), 1);
    const stemma_layer layer = life_->layer(index);
    const std::vector<std::int64_t> slots = TieredLife::slots_of(sequence_, 24);
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const std::int64_t element = TieredLife::element_of(layer, slots[i]);
      EXPECT_EQ(static_cast<const float*>(layer.v)[element], static_cast<float>(i + 1));
    }
  }
  EXPECT_EQ(stemma_end_loans(cache(), &whole_), STEMMA_INVALID_ARGUMENT) << "a step is in flight";
  ASSERT_EQ(stemma_step_retire(cache(), step), STEMMA_OK);
  ASSERT_EQ(stemma_end_loans(cache(), &whole_), STEMMA_OK);
  EXPECT_EQ(whole_, 1);
  EXPECT_EQ(stemma_published_tokens(sequence_), 24);
  EXPECT_EQ(stemma_finish(sequence_, prompt().data(), 25), STEMMA_OK);
  EXPECT_EQ(stemma_promotion_release(cache(), promotion_), STEMMA_OK);
}

TEST_F(CLoans, WhileTheyLastNothingElseHappensToTheSequenceOrTheCopies) {
  ASSERT_EQ(lend(prompt()), STEMMA_OK);
  stemma_sequence* fork = nullptr;
  std::int32_t from = 0;
  std::int32_t to = 0;
  EXPECT_EQ(lend(prompt()), STEMMA_INVALID_ARGUMENT);
  EXPECT_EQ(stemma_commit(sequence_, prompt().data(), 24), STEMMA_INVALID_ARGUMENT);
  EXPECT_EQ(stemma_finish(sequence_, prompt().data(), 24), STEMMA_INVALID_ARGUMENT);
  EXPECT_EQ(stemma_advance(sequence_, 0), STEMMA_INVALID_ARGUMENT);
  EXPECT_EQ(stemma_fork(sequence_, 0, &fork, &from, &to), STEMMA_INVALID_ARGUMENT);
  EXPECT_EQ(stemma_poll_transfers(cache()), STEMMA_INVALID_ARGUMENT);
  EXPECT_EQ(stemma_wait_transfers(cache(), 1), STEMMA_INVALID_ARGUMENT);
  EXPECT_EQ(stemma_settle(cache(), 1), STEMMA_INVALID_ARGUMENT);
  EXPECT_EQ(stemma_purge(cache(), nullptr, 0), STEMMA_INVALID_ARGUMENT);
  EXPECT_EQ(stemma_wait_layer(cache(), 2), STEMMA_INVALID_ARGUMENT);
  stemma_release(sequence_);
}

//   1 … 8  9 … 24    comes up
//   51 … 58  9 … 24  its first two pages are cached
TEST_F(CLoans, TheSameTokensBehindOtherOnesAreOtherPages) {
  Text other = prompt();
  for (std::size_t i = 0; i < 8; ++i) other[i] += 50;
  stemma_sequence* sequence = life_->begin(other);
  ASSERT_EQ(stemma_reserve(sequence, 8), STEMMA_OK);
  ASSERT_EQ(stemma_finish(sequence, other.data(), 8), STEMMA_OK);
  sequence = life_->begin(other);
  ASSERT_EQ(stemma_cached_tokens(sequence), 8);
  EXPECT_EQ(stemma_lend(sequence, other.data(), other.size(), promotion_, &named_), STEMMA_OK);
  EXPECT_EQ(named_, 8);
  stemma_release(sequence);
  stemma_release(sequence_);
}

TEST_F(CLoans, OfANamespaceBehindABeginningOnlyItsTextsAreLent) {
  const std::array<std::uint8_t, 32> everybody = {1};
  const std::array<std::uint8_t, 32> ada = {2};
  const Text shared = text(1, 8);
  std::int32_t behind = -1;
  ASSERT_EQ(stemma_namespace_open_behind(cache(), ada.data(), everybody.data(), shared.data(), 8,
                                         &behind),
            STEMMA_OK);
  stemma_sequence* sequence = nullptr;
  ASSERT_EQ(stemma_begin(cache(), behind, shared.data(), 3, &sequence), STEMMA_OK);
  const Text other = {1, 2, 3, 40, 50, 60, 70, 80};
  EXPECT_EQ(stemma_lend(sequence, other.data(), other.size(), promotion_, &named_),
            STEMMA_INVALID_ARGUMENT);
  EXPECT_EQ(stemma_lend(sequence, shared.data(), shared.size(), promotion_, &named_), STEMMA_OK);
  EXPECT_GT(named_, 0);
  stemma_release(sequence);
  stemma_release(sequence_);
}

TEST_F(CLoans, WhatComesOfALongerTextIsLentUpToTheEndOfTheSharedBeginning) {
  const std::array<std::uint8_t, 32> everybody = {1};
  const std::array<std::uint8_t, 32> ada = {2};
  std::int32_t behind = -1;
  ASSERT_EQ(stemma_namespace_open_behind(cache(), ada.data(), everybody.data(), prompt().data(), 8,
                                         &behind),
            STEMMA_OK);
  stemma_sequence* sequence = nullptr;
  ASSERT_EQ(stemma_begin(cache(), behind, prompt().data(), 25, &sequence), STEMMA_OK);
  std::int64_t joined = -1;
  ASSERT_EQ(stemma_promote(cache(), behind, prompt().data(), 25, &joined), STEMMA_OK);
  EXPECT_EQ(joined, promotion_) << "what it waits for is on its way";
  ASSERT_EQ(stemma_lend(sequence, prompt().data(), 25, joined, &named_), STEMMA_OK);
  EXPECT_EQ(named_, 8) << "the pages behind it are of the other namespace";
  ASSERT_EQ(stemma_end_loans(cache(), &whole_), STEMMA_OK);
  EXPECT_EQ(whole_, 1);
  EXPECT_EQ(stemma_published_tokens(sequence), 8);
  stemma_release(sequence);
  stemma_release(sequence_);
}

TEST_F(CLoans, WhatGoesAwayMeanwhileIsForgotten) {
  ASSERT_EQ(lend(prompt()), STEMMA_OK);
  EXPECT_EQ(stemma_promotion_release(cache(), promotion_), STEMMA_OK);
  stemma_release(sequence_);
  ASSERT_EQ(stemma_end_loans(cache(), &whole_), STEMMA_OK);
  EXPECT_EQ(whole_, 1);
  EXPECT_EQ(stemma_poll_transfers(cache()), STEMMA_OK);
}

TEST_F(CLoans, OfCountsThatNoArrayHasNothingIsLent) {
  for (const std::size_t count : kNoCounts) {
    EXPECT_EQ(stemma_lend(sequence_, prompt().data(), count, promotion_, &named_),
              STEMMA_INVALID_ARGUMENT);
  }
  EXPECT_EQ(named_, -1);
}

TEST_F(CLoans, OnlyTheTextThatIsComingIsLent) {
  EXPECT_EQ(lend(text(50, 25)), STEMMA_OK);
  EXPECT_EQ(named_, 0);
  EXPECT_EQ(lend({}), STEMMA_INVALID_ARGUMENT);
  EXPECT_EQ(lend(text(1, 65)), STEMMA_TOO_LARGE);
  ASSERT_EQ(stemma_reserve(sequence_, 4), STEMMA_OK);
  EXPECT_EQ(lend(prompt()), STEMMA_INVALID_ARGUMENT) << "it holds more than begin found";
  EXPECT_EQ(stemma_promotion_release(cache(), promotion_), STEMMA_OK);
  EXPECT_EQ(lend(prompt()), STEMMA_INVALID_ARGUMENT) << "the promotion was released";
  EXPECT_EQ(stemma_wait_layer(cache(), 0), 1) << "nothing is lent";
  EXPECT_EQ(stemma_end_loans(cache(), &whole_), STEMMA_OK);
  EXPECT_EQ(whole_, 1);
  stemma_release(sequence_);
}

}  // namespace
}  // namespace stemma
