// For the tests of sparse attention: memory for one choice of the CPU's kernel, and what a choice
// must be by the guesses of the reference.
//
// Thread:     a test's.
// Memory:     that of one choice.
// Cost:       none worth noting.
// Not here:   the choices themselves (sparse_kernel, token_choice_cuda).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "attention/sparse_kernel.h"

namespace stemma {

// What one KV head's choice is worth, by the guesses of the reference.
inline void expect_best_choice(const std::vector<double>& guesses,
                               std::span<const std::int32_t> chosen) {
  std::vector<bool> in(guesses.size());
  double least = 1e9;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    ASSERT_TRUE(chosen[i] >= 0 && chosen[i] < std::ssize(guesses));
    ASSERT_TRUE(i == 0 || chosen[i - 1] < chosen[i]);
    in[static_cast<std::size_t>(chosen[i])] = true;
    least = std::min(least, guesses[static_cast<std::size_t>(chosen[i])]);
  }
  for (std::size_t token = 0; token < guesses.size(); ++token) {
    ASSERT_TRUE(in[token] || guesses[token] <= least * (1 + 1e-4)) << token;
  }
}

// Memory for one choice.
struct ChoiceMemory {
  explicit ChoiceMemory(std::int64_t tokens) {
    const auto padded = static_cast<std::size_t>(padded_tokens(tokens));
    queries.resize(4 * 64);
    scores.resize(4 * padded);
    candidates.resize(padded);
    bins.resize(2 * kSelectBins);
    chosen.resize(padded);
  }
  SelectScratch scratch() {
    return {queries.data(), scores.data(), candidates.data(), bins.data(), chosen.data()};
  }

  std::vector<float> queries, scores;
  std::vector<std::uint32_t> candidates, bins;
  std::vector<std::int32_t> chosen;
};

}  // namespace stemma
