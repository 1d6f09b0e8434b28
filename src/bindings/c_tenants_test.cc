// Covers stemma/c_tenants.h: what a tenant is sure of, what is kept for who waits, and beginnings
// that all share.
#include "stemma/c_tenants.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <array>

#include "bindings/c_fixture.h"

namespace stemma {
namespace {

using ::testing::ElementsAre;
using Digest = std::array<std::uint8_t, 32>;

constexpr Digest kAda = {1};
constexpr Digest kBob = {2};
constexpr Digest kEverybody = {3};

class CTenants : public testing::Test {
 protected:
  void SetUp() override { open("lru"); }
  void TearDown() override { stemma_cache_close(cache_); }
  void open(const char* eviction) {
    stemma_cache_close(cache_);
    stemma_cache_options options;
    stemma_cache_options_init(&options, sizeof(options));
    options.pages = 8;
    options.page_size = kPageSize;
    options.context_tokens_max = 32;
    options.eviction = eviction;
    ASSERT_EQ(stemma_cache_open(&options, nullptr, &cache_), STEMMA_OK) << stemma_last_error();
    ada_ = open_namespace(kAda);
    bob_ = open_namespace(kBob);
  }
  std::int32_t open_namespace(const Digest& digest) {
    std::int32_t ns = -1;
    EXPECT_EQ(stemma_namespace_open(cache_, digest.data(), &ns), STEMMA_OK);
    return ns;
  }
  std::int32_t open_behind(const Digest& digest, const Text& shared) {
    std::int32_t ns = -1;
    EXPECT_EQ(stemma_namespace_open_behind(cache_, digest.data(), kEverybody.data(), shared.data(),
                                           shared.size(), &ns),
              STEMMA_OK)
        << stemma_last_error();
    return ns;
  }

  stemma_sequence* begin(std::int32_t ns, const Text& tokens) {
    stemma_sequence* sequence = nullptr;
    EXPECT_EQ(stemma_begin(cache_, ns, tokens.data(), tokens.size(), &sequence), STEMMA_OK)
        << stemma_last_error();
    EXPECT_EQ(stemma_reserve(sequence, std::ssize(tokens)), STEMMA_OK);
    return sequence;
  }
  void publish(std::int32_t ns, const Text& tokens) {
    ASSERT_EQ(stemma_finish(begin(ns, tokens), tokens.data(), tokens.size()), STEMMA_OK);
  }
  // Of a request that has another token behind `tokens`.
  std::int64_t found(std::int32_t ns, Text tokens) {
    tokens.push_back(99);
    std::int64_t cached = -1;
    EXPECT_EQ(stemma_probe(cache_, ns, tokens.data(), tokens.size(), &cached), STEMMA_OK)
        << stemma_last_error();
    return cached;
  }
  void evict(std::int64_t pages) {
    std::int64_t evicted = 0;
    ASSERT_EQ(stemma_evict(cache_, pages, &evicted), STEMMA_OK);
    ASSERT_EQ(evicted, pages);
  }

  stemma_cache* cache_ = nullptr;
  std::int32_t ada_ = -1;
  std::int32_t bob_ = -1;
};

TEST_F(CTenants, AFamilyKeepsWhatItIsSureOfWhileOthersHavePages) {
  publish(ada_, text(1, 8));
  publish(bob_, text(1, 16));
  ASSERT_EQ(stemma_set_quota(cache_, kAda.data(), 2), STEMMA_OK);
  evict(4);
  EXPECT_EQ(found(ada_, text(1, 8)), 8) << "though it is the coldest";
  EXPECT_EQ(found(bob_, text(1, 16)), 0);
  evict(1);
  EXPECT_EQ(found(ada_, text(1, 8)), 4) << "there is nothing else";
}

TEST_F(CTenants, QuotasAreToldWithWhatIsCachedOfEach) {
  publish(ada_, text(1, 8));
  ASSERT_EQ(stemma_set_quota(cache_, kAda.data(), 5), STEMMA_OK);
  std::vector<std::int64_t> told;
  const stemma_quota_sink sink = [](void* context, const std::uint8_t* family, std::int64_t quota,
                                    std::int64_t pages) {
    *static_cast<std::vector<std::int64_t>*>(context) = {family[0], quota, pages};
  };
  ASSERT_EQ(stemma_quotas(cache_, STEMMA_DEVICE, sink, &told), STEMMA_OK);
  EXPECT_THAT(told, ElementsAre(1, 5, 2));
  told.clear();
  ASSERT_EQ(stemma_quotas(cache_, STEMMA_HOST, sink, &told), STEMMA_OK);
  EXPECT_THAT(told, ElementsAre()) << "there is no host memory";
  EXPECT_EQ(stemma_quotas(cache_, STEMMA_HOST + 1, sink, &told), STEMMA_INVALID_ARGUMENT);
  EXPECT_EQ(stemma_set_quota(cache_, kAda.data(), 9), STEMMA_INVALID_ARGUMENT) << "of 8 pages";
  EXPECT_EQ(stemma_set_quota(cache_, kAda.data(), -1), STEMMA_INVALID_ARGUMENT);
}

TEST_F(CTenants, WhatAWaitingRequestWillFindGoesLast) {
  publish(ada_, text(1, 8));
  publish(ada_, text(50, 8));
  ASSERT_EQ(stemma_want(cache_, ada_, text(1, 9).data(), 9, 0), STEMMA_OK);
  evict(2);
  EXPECT_EQ(found(ada_, text(1, 8)), 8) << "though it is the coldest";
  EXPECT_EQ(found(ada_, text(50, 8)), 0);
  publish(ada_, text(50, 8));
  ASSERT_EQ(stemma_forget_wants(cache_), STEMMA_OK);
  evict(2);
  EXPECT_EQ(found(ada_, text(1, 8)), 0);
  EXPECT_EQ(stemma_want(cache_, ada_, nullptr, 0, 0), STEMMA_INVALID_ARGUMENT);
}

TEST_F(CTenants, HintsAreTakenByEveryPolicy) {
  for (const char* eviction : {"lru", "hazard"}) {
    open(eviction);
    stemma_sequence* const sequence = begin(ada_, text(1, 8));
    EXPECT_EQ(stemma_set_retention(sequence, STEMMA_RETAIN_LONG), STEMMA_OK);
    EXPECT_EQ(stemma_set_retention(sequence, STEMMA_RETAIN_LONG + 1), STEMMA_INVALID_ARGUMENT);
    EXPECT_EQ(stemma_close_session(sequence), STEMMA_OK);
    EXPECT_EQ(stemma_finish(sequence, text(1, 8).data(), 8), STEMMA_OK);
    EXPECT_EQ(stemma_close_session(sequence), STEMMA_INVALID_ARGUMENT);
    EXPECT_EQ(stemma_set_retention(nullptr, STEMMA_RETAIN_SHORT), STEMMA_INVALID_ARGUMENT);
  }
}

//   everybody   [ 1 2 3 4 ]─┬─ ada   [ 5 6 7 8 ]
//                           └─ bob   [ 5 6 7 8 ]
TEST_F(CTenants, ABeginningIsSharedAndWhatFollowsItIsNot) {
  const std::int32_t ada = open_behind(kAda, text(1, 4));
  const std::int32_t bob = open_behind(kBob, text(1, 4));
  publish(ada, text(1, 8));
  EXPECT_EQ(found(ada, text(1, 8)), 8);
  EXPECT_EQ(found(bob, text(1, 8)), 4);
  EXPECT_EQ(found(open_namespace(kEverybody), text(1, 8)), 4);
  EXPECT_EQ(found(ada_, text(1, 8)), 0) << "it is not behind the shared beginning";
  EXPECT_EQ(open_behind(kAda, text(1, 4)), ada) << "the same while it is open";
}

TEST_F(CTenants, TextsThatBeginOtherwiseAreRefused) {
  const std::int32_t ada = open_behind(kAda, text(1, 4));
  stemma_sequence* sequence = nullptr;
  EXPECT_EQ(stemma_begin(cache_, ada, text(2, 8).data(), 8, &sequence), STEMMA_INVALID_ARGUMENT);
  EXPECT_STREQ(stemma_last_error(),
               "invalid_argument: the prompt does not begin as the texts of its namespace do");
  stemma_release(begin(ada, text(1, 2)));  // a part of the beginning is one of these texts
}

// A prompt may be a part of the beginning only; what it is answered with must go on with the rest.
TEST_F(CTenants, TextsThatGoOnOtherwiseThanTheirBeginningAreNotPublished) {
  const std::int32_t ada = open_behind(kAda, text(1, 8));
  stemma_sequence* const sequence = begin(ada, text(1, 5));
  ASSERT_EQ(stemma_reserve(sequence, 12), STEMMA_OK);
  const Text other = {1, 2, 3, 4, 5, 60, 70, 80, 9, 10, 11, 12};
  EXPECT_EQ(stemma_commit(sequence, other.data(), 12), STEMMA_INVALID_ARGUMENT);
  EXPECT_EQ(stemma_finish(sequence, other.data(), 12), STEMMA_INVALID_ARGUMENT);
  EXPECT_STREQ(stemma_last_error(),
               "invalid_argument: the tokens do not begin as the texts of their namespace do");
  EXPECT_EQ(stemma_finish(sequence, other.data(), 5), STEMMA_OK) << "as far as it is one of these";
  EXPECT_EQ(found(open_namespace(kEverybody), other), 4);
  publish(ada, text(1, 8));
  EXPECT_EQ(found(ada, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}), 8);
}

// What follows one beginning is never taken for what follows another.
TEST_F(CTenants, EveryBeginningHasANamespaceOfItsOwn) {
  const std::int32_t one = open_behind(kAda, text(1, 4));
  const std::int32_t other = open_behind(kAda, text(11, 4));
  EXPECT_NE(one, other);
  publish(one, {1, 2, 3, 4, 70, 71, 72, 73});
  EXPECT_EQ(found(other, {11, 12, 13, 14, 70, 71, 72, 73}), 0);
}

TEST_F(CTenants, APurgeOfAFamilyTakesWhatItHasBehindSharedBeginnings) {
  const std::int32_t ada = open_behind(kAda, text(1, 4));
  publish(ada, text(1, 8));
  ASSERT_EQ(stemma_purge(cache_, kAda.data(), 1), STEMMA_OK);
  EXPECT_EQ(found(ada, text(1, 8)), 4);
}

TEST_F(CTenants, OfWhatBeganBeforeAPurgeThereIsNoFork) {
  stemma_sequence* const sequence = begin(ada_, text(1, 12));
  ASSERT_EQ(stemma_purge(cache_, kAda.data(), 1), STEMMA_OK);
  ASSERT_EQ(stemma_commit(sequence, text(1, 12).data(), 12), STEMMA_OK);
  EXPECT_EQ(stemma_published_tokens(sequence), 0);
  stemma_sequence* fork = nullptr;
  std::int32_t from = 0;
  std::int32_t to = 0;
  EXPECT_EQ(stemma_fork(sequence, 12, &fork, &from, &to), STEMMA_NO_PAGES);
  EXPECT_EQ(stemma_fork(sequence, 13, &fork, &from, &to), STEMMA_INVALID_ARGUMENT);
  EXPECT_EQ(fork, nullptr);
  EXPECT_EQ(stemma_finish(sequence, text(1, 12).data(), 12), STEMMA_OK);
}

TEST_F(CTenants, ABeginningIsWholePages) {
  std::int32_t ns = -1;
  for (const std::size_t tokens : {0u, 3u}) {
    EXPECT_EQ(stemma_namespace_open_behind(cache_, kAda.data(), kEverybody.data(),
                                           text(1, 4).data(), tokens, &ns),
              STEMMA_INVALID_ARGUMENT);
  }
  EXPECT_EQ(stemma_namespace_open_behind(cache_, kAda.data(), kEverybody.data(), text(1, 36).data(),
                                         36, &ns),
            STEMMA_TOO_LARGE);
  EXPECT_EQ(stemma_namespace_open_behind(cache_, kAda.data(), nullptr, text(1, 4).data(), 4, &ns),
            STEMMA_INVALID_ARGUMENT);
}

TEST_F(CTenants, CountsThatNoArrayHasAreRefused) {
  const Text tokens = text(1, 4);
  std::int32_t ns = -1;
  for (const std::size_t count : kNoCounts) {
    EXPECT_EQ(stemma_namespace_open_behind(cache_, kAda.data(), kEverybody.data(), tokens.data(),
                                           count, &ns),
              STEMMA_INVALID_ARGUMENT);
    EXPECT_EQ(stemma_want(cache_, ada_, tokens.data(), count, 1), STEMMA_INVALID_ARGUMENT);
  }
  EXPECT_EQ(ns, -1);
}

// Its sequences go on: what they cache is nobody else's, though its name were wanted.
TEST_F(CTenants, ANamespaceThatIsClosedStaysAsLongAsItsSequences) {
  const Text shared = {1, 2, 3, 4};
  const Text text = {1, 2, 3, 4, 5, 6, 7, 8};
  publish(open_namespace(kEverybody), shared);
  const std::int32_t ns = open_behind({9}, shared);
  stemma_sequence* const held = begin(ns, text);
  ASSERT_EQ(stemma_namespace_close(cache_, ns), STEMMA_OK);
  EXPECT_EQ(stemma_namespace_close(cache_, ns), STEMMA_INVALID_ARGUMENT);
  std::int32_t name = -1;
  std::uint32_t other = 0;
  const auto open_next = [&] {
    const auto byte = [&](int shift) { return static_cast<std::uint8_t>(other >> shift); };
    const Digest digest = {7, byte(0), byte(8), byte(16)};
    ++other;
    return stemma_namespace_open(cache_, digest.data(), &name);
  };
  while (open_next() == STEMMA_OK) ASSERT_NE(name, ns) << "all names are somebody's";
  ASSERT_EQ(stemma_finish(held, text.data(), text.size()), STEMMA_OK);
  EXPECT_EQ(found(open_behind({9}, shared), text), 8);
}

}  // namespace
}  // namespace stemma
