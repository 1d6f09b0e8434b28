// Covers SlotIndex against a plain model of it under random use: what is found, with which slots,
// what may be evicted, and which matches are stale.
#include "bindings/python/slot_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <vector>

#include "base/prng.h"
#include "prefix/namespace_examples.h"

namespace stemma::python {
namespace {

using Tokens = std::vector<TokenId>;

std::unique_ptr<SlotIndex> open_index(std::int64_t page_size, std::int64_t tokens_max) {
  SlotIndexOptions options;
  options.page_size = page_size;
  options.tokens_max = tokens_max;
  auto opened = SlotIndex::open(options);
  EXPECT_TRUE(opened.ok());
  auto index = std::move(opened).value();
  EXPECT_TRUE(index->try_open_namespace({}).has_value());
  return index;
}

// Each cached page by its text: what an index must find.
using Pages = std::map<Tokens, std::vector<std::int32_t>>;

struct Known {
  SlotIndex::Match match;
  Tokens text;
};

class RandomSlots : public ::testing::TestWithParam<int> {
 protected:
  Tokens draw_text() {
    Tokens text(static_cast<std::size_t>(random_.below(13)));
    for (TokenId& token : text) token = static_cast<TokenId>(random_.below(2));
    return text;
  }

  // Tokens of whole pages that the model has of a text.
  std::int64_t model_tokens(const Tokens& text) const {
    std::int64_t tokens = 0;
    while (tokens + kPageSize <= std::ssize(text) &&
           pages_.contains(Tokens(text.begin(), text.begin() + tokens + kPageSize))) {
      tokens += kPageSize;
    }
    return tokens;
  }

  std::vector<std::int32_t> model_slots(const Tokens& text) const {
    std::vector<std::int32_t> slots;
    for (std::int64_t end = kPageSize; end <= std::ssize(text); end += kPageSize) {
      const auto& page = pages_.at(Tokens(text.begin(), text.begin() + end));
      slots.insert(slots.end(), page.begin(), page.end());
    }
    return slots;
  }

  void match() {
    const Tokens text = draw_text();
    Known& known = known_.emplace_back();
    index_->match(NamespaceId(0), text, known.match);
    ASSERT_EQ(known.match.tokens, model_tokens(text));
    known.text.assign(text.begin(), text.begin() + known.match.tokens);
  }

  void insert() {
    const Tokens text = draw_text();
    std::vector<std::int32_t> slots(text.size());
    for (std::int32_t& slot : slots) slot = next_slot_++;
    const std::int64_t there = model_tokens(text);
    Known& known = known_.emplace_back();
    const auto present = index_->insert(NamespaceId(0), text, slots, 0, known.match);
    if (!present.ok()) {
      ASSERT_EQ(present.error().code, ErrorCode::kTooLarge);
      known_.pop_back();
      return;
    }
    ASSERT_EQ(*present, there);
    known.text.assign(text.begin(), text.begin() + known.match.tokens);
    for (std::int64_t end = there + kPageSize; end <= std::ssize(text); end += kPageSize) {
      pages_[Tokens(text.begin(), text.begin() + end)] = {slots.begin() + end - kPageSize,
                                                          slots.begin() + end};
    }
  }

  void lock(Known& known) {
    const bool there = model_tokens(known.text) == std::ssize(known.text);
    ASSERT_EQ(index_->lock(known.match).ok(), there);
  }

  void unlock(Known& known) {
    const bool locked = known.match.locks > 0;
    ASSERT_EQ(index_->unlock(known.match).ok(), locked);
  }

  void read(const Known& known) {
    std::vector<std::int32_t> slots(static_cast<std::size_t>(known.match.tokens));
    const bool there = model_tokens(known.text) == std::ssize(known.text);
    ASSERT_EQ(index_->read_slots(known.match, 0, slots).ok(), there || slots.empty());
    if (!there) return;
    ASSERT_EQ(slots, model_slots(known.text));
  }

  void evict() {
    std::vector<std::int32_t> slots;
    const PrefixUsage before = index_->usage();
    const auto wanted = static_cast<std::int64_t>(random_.below(9));
    index_->evict(wanted, slots);
    const std::int64_t whole = (wanted + kPageSize - 1) / kPageSize * kPageSize;
    ASSERT_EQ(std::ssize(slots), std::min(whole, before.evictable_tokens));
    for (std::size_t at = 0; at < slots.size(); at += kPageSize) {
      const std::vector<std::int32_t> page(
          slots.begin() + static_cast<std::ptrdiff_t>(at),
          slots.begin() + static_cast<std::ptrdiff_t>(at + kPageSize));
      ASSERT_EQ(std::erase_if(pages_, [&](const auto& held) { return held.second == page; }), 1u);
    }
  }

  void drop_oldest() {
    index_->forget(known_.front().match);
    known_.pop_front();
  }

  void step() {
    const auto choice = random_.below(10);
    if (choice < 2) return match();
    if (choice < 4) return insert();
    if (choice < 5) return evict();
    if (known_.empty()) return;
    Known& known = known_[static_cast<std::size_t>(random_.below(std::ssize(known_)))];
    if (choice < 6) return lock(known);
    if (choice < 7) return unlock(known);
    if (choice < 9) return read(known);
    drop_oldest();
  }

  static constexpr std::int64_t kPageSize = 2;
  Prng random_{static_cast<std::uint64_t>(GetParam())};
  std::unique_ptr<SlotIndex> index_ = open_index(kPageSize, 40);
  Pages pages_;
  std::deque<Known> known_;
  std::int32_t next_slot_ = 0;
};

TEST_P(RandomSlots, FindsWhatAPlainModelFinds) {
  for (int i = 0; i < 3000 && !HasFatalFailure(); ++i) {
    step();
    ASSERT_EQ(index_->usage().total_tokens(), std::ssize(pages_) * kPageSize);
  }
  const auto contradiction = index_->audit();
  ASSERT_FALSE(contradiction.has_value()) << *contradiction;
  while (!known_.empty()) drop_oldest();
  EXPECT_EQ(index_->usage().locked_tokens, 0);
  EXPECT_TRUE(index_->reset().ok());
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomSlots, ::testing::Range(1, 21));

TEST(SlotIndex, TheColdestIsLockedWithAllThatItContinues) {
  const auto index = open_index(1, 16);
  const Tokens text = {1, 2, 3};
  SlotIndex::Match inserted;
  ASSERT_TRUE(
      index->insert(NamespaceId(0), text, std::vector<std::int32_t>{7, 8, 9}, 0, inserted).ok());
  SlotIndex::Match coldest;
  EXPECT_EQ(index->lock_coldest(coldest), 3);
  EXPECT_EQ(index->usage().locked_tokens, 3);
  SlotIndex::Match next;
  EXPECT_EQ(index->lock_coldest(next), 0) << "there is no other";
  const auto read = index->read_text(coldest);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, text);
  EXPECT_FALSE(index->reset().ok());
  index->forget(coldest);
  index->forget(inserted);
  EXPECT_TRUE(index->reset().ok());
}

// An index of two namespaces, both of which have pages.
class FullOfNamespaces : public ::testing::Test {
 protected:
  void SetUp() override {
    insert(*index_->try_open_namespace(digest_of(0)), {1, 2});
    const NamespaceId other = *index_->try_open_namespace(digest_of(1));
    insert(other, {3, 4, 5, 6});
    index_->close_namespace(other);
  }

  void insert(NamespaceId ns, const std::vector<std::int32_t>& slots) {
    SlotIndex::Match match;
    ASSERT_TRUE(index_->insert(ns, Tokens(slots.begin(), slots.end()), slots, 0, match).ok());
    index_->forget(match);
  }

  std::vector<std::int32_t> evict(std::int64_t tokens) {
    std::vector<std::int32_t> slots;
    index_->evict(tokens, slots);
    return slots;
  }

  std::unique_ptr<SlotIndex> index_ =
      SlotIndex::open({.page_size = 2, .tokens_max = 16, .namespaces_max = 2}).value();
};

TEST_F(FullOfNamespaces, WhatGoesForANewOneIsHandedOutByTheNextEviction) {
  const auto opened = index_->try_open_namespace(digest_of(2));
  ASSERT_TRUE(opened.has_value());
  EXPECT_EQ(index_->probe(*opened, Tokens{3, 4}), 0);
  insert(*opened, {7, 8});
  EXPECT_EQ(index_->usage().total_tokens(), 8);
  auto slots = index_->all_slots();
  std::sort(slots.begin(), slots.end());
  EXPECT_EQ(slots, (std::vector<std::int32_t>{1, 2, 3, 4, 5, 6, 7, 8}));
  slots = evict(6);
  std::sort(slots.begin(), slots.end());
  EXPECT_EQ(slots, (std::vector<std::int32_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(evict(8), (std::vector<std::int32_t>{7, 8}));
  EXPECT_EQ(index_->usage().total_tokens(), 0);
}

TEST_F(FullOfNamespaces, WhatWentForANewOneIsHandedOutInWholePagesAsWanted) {
  ASSERT_TRUE(index_->try_open_namespace(digest_of(2)).has_value());
  EXPECT_TRUE(evict(0).empty());
  EXPECT_EQ(evict(1).size(), 2u);
  EXPECT_EQ(evict(3).size(), 4u);
  EXPECT_TRUE(evict(1).empty());
}

TEST_F(FullOfNamespaces, OfMoreThanThereIsAllGoes) {
  ASSERT_TRUE(index_->try_open_namespace(digest_of(2)).has_value());
  EXPECT_EQ(evict(std::numeric_limits<std::int64_t>::max()).size(), 6u);
  EXPECT_TRUE(evict(std::numeric_limits<std::int64_t>::max()).empty());
}

TEST_F(FullOfNamespaces, AResetForgetsWhatWentForANewOne) {
  ASSERT_TRUE(index_->try_open_namespace(digest_of(2)).has_value());
  ASSERT_TRUE(index_->reset().ok());
  EXPECT_EQ(index_->usage().total_tokens(), 0);
  EXPECT_TRUE(index_->all_slots().empty());
}

TEST(SlotIndex, WrongOptionsAreNamed) {
  EXPECT_EQ(SlotIndex::open({.page_size = 0}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(SlotIndex::open({.tokens_max = 0}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(SlotIndex::open({.eviction = "none such"}).error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace stemma::python
