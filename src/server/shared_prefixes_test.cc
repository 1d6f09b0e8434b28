// Which prompts share which beginning, and under which names the rest lies.
#include "server/shared_prefixes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace stemma {
namespace {

constexpr NamespaceDigest kShared = {{9}};

std::vector<TokenId> text(TokenId first, std::int64_t count) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

TEST(SharedPrefixes, TheLongestThatAPromptBeginsWithCounts) {
  SharedPrefixes prefixes(kShared, 4);
  prefixes.add(text(0, 9));
  prefixes.add(text(0, 17));
  prefixes.add(text(0, 13));
  prefixes.add(text(50, 8));
  const auto shared = [&](const std::vector<TokenId>& prompt) -> std::int64_t {
    const auto* const match = prefixes.find_or_null(prompt);
    return match == nullptr ? 0 : match->prefix.tokens;
  };
  EXPECT_EQ(shared(text(0, 40)), 16);
  EXPECT_EQ(shared(text(0, 16)), 16);
  EXPECT_EQ(shared(text(0, 15)), 12);
  EXPECT_EQ(shared(text(0, 11)), 8);
  EXPECT_EQ(shared(text(0, 7)), 0);
  EXPECT_EQ(shared(text(50, 9)), 8);
  EXPECT_EQ(shared(text(1, 40)), 0);
  EXPECT_EQ(prefixes.find_or_null(text(0, 40))->prefix.digest, kShared);
}

TEST(SharedPrefixes, WhatFillsNoPageSharesNothing) {
  SharedPrefixes prefixes(kShared, 16);
  prefixes.add(text(0, 15));
  prefixes.add({});
  EXPECT_EQ(prefixes.find_or_null(text(0, 100)), nullptr);
  EXPECT_EQ(SharedPrefixes().find_or_null(text(0, 100)), nullptr);
}

// What every name stands for: whose text, and behind which tokens.
TEST(SharedPrefixes, EveryTenantAndEveryPrefixHasANameOfItsOwnInTheTenantsFamily) {
  SharedPrefixes prefixes(kShared, 4);
  prefixes.add(text(0, 8));
  prefixes.add(text(0, 12));
  prefixes.add(text(4, 8));
  SharedPrefixes elsewhere(NamespaceDigest{{8}}, 4);
  elsewhere.add(text(0, 8));
  const NamespaceDigest alice = {{1, 1}};
  const NamespaceDigest bob = {{2, 2}};
  std::vector<NamespaceDigest> names = {alice, bob, kShared};
  for (const NamespaceDigest& own : {alice, bob}) {
    for (const auto& prompt : {text(0, 8), text(0, 12), text(4, 8)}) {
      names.push_back(SharedPrefixes::behind(*prefixes.find_or_null(prompt), own));
      EXPECT_EQ(family_of(names.back()), family_of(own));
    }
    names.push_back(SharedPrefixes::behind(*elsewhere.find_or_null(text(0, 8)), own));
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::unique(names.begin(), names.end()), names.end());
}

}  // namespace
}  // namespace stemma
