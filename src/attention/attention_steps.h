// Ways to cut sequences into steps: for the tests of I13.
//
// Thread:     one test.
// Memory:     the steps.
// Cost:       none worth noting.
// Not here:   computing the steps (attention_fixture).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "attention/attention_fixture.h"
#include "base/prng.h"

namespace stemma {

// Each sequence in chunks of `chunk` rows, one sequence after the other.
inline std::vector<Step> in_chunks(const std::vector<std::int64_t>& tokens, std::int64_t chunk) {
  std::vector<Step> steps;
  for (std::size_t s = 0; s < tokens.size(); ++s) {
    for (std::int64_t done = 0; done < tokens[s]; done += chunk) {
      steps.push_back({{s, std::min(chunk, tokens[s] - done)}});
    }
  }
  return steps;
}

// Prompts in one step, but for their last three tokens, which are decoded together.
inline std::vector<Step> prefill_then_decode(const std::vector<std::int64_t>& tokens) {
  std::vector<Step> steps(1);
  for (std::size_t s = 0; s < tokens.size(); ++s) {
    if (tokens[s] > 3) steps[0].push_back({s, tokens[s] - 3});
  }
  for (int i = 0; i < 3; ++i) {
    Step step;
    for (std::size_t s = 0; s < tokens.size(); ++s) {
      if (tokens[s] > 3 || i < tokens[s]) step.push_back({s, 1});
    }
    steps.push_back(step);
  }
  return steps;
}

// Random mixed steps of up to `batch_max` sequences: chunks beside single rows.
inline std::vector<Step> mixed(const std::vector<std::int64_t>& tokens, std::int64_t batch_max,
                               Prng& prng) {
  std::vector<std::int64_t> left = tokens;
  std::vector<Step> steps;
  for (;;) {
    Step step;
    for (std::size_t s = 0; s < left.size(); ++s) {
      const bool full = static_cast<std::int64_t>(step.size()) == batch_max;
      if (left[s] == 0 || full || prng.below(3) == 0) continue;
      const std::int64_t rows =
          prng.below(2) == 0 ? 1 : 1 + prng.below(std::min<std::int64_t>(left[s], 90));
      step.push_back({s, rows});
      left[s] -= rows;
    }
    if (!step.empty()) steps.push_back(step);
    if (std::all_of(left.begin(), left.end(), [](std::int64_t n) { return n == 0; })) return steps;
  }
}

}  // namespace stemma
