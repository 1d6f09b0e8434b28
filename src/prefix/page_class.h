// PageClass: what kind of page it is, to an eviction policy that learns how long pages of a kind
// stay wanted.
//
//   last     the last page of a request: a request that goes on from there writes it anew
//   shared   texts part ways at or below it, by how often other texts came by
//   chat     only continued so far: by the conversation's turn, whether the page was there before
//            this turn, how much new text the turn brought, and the length of its answer
//
// Thread:     values and pure functions.
// Memory:     none.
// Cost:       a few comparisons.
// Not here:   what is learned of a class (hazard_table), which pages are of it (hazard_policy).
#pragma once

#include <array>
#include <cstdint>

namespace stemma {

// The number of the first of `edges`, ascending, that exceeds the value.
template <std::size_t kEdges>
constexpr int grade_of(std::int64_t value, const std::array<std::int64_t, kEdges>& edges) noexcept {
  int grade = 0;
  for (const std::int64_t edge : edges) grade += value >= edge ? 1 : 0;
  return grade;
}

struct PageClass {
  static constexpr int kSharedGrades = 6;
  static constexpr int kTurnGrades = 5;
  static constexpr int kAges = 2;  // new in this turn, or older
  static constexpr int kNewTextGrades = 4;
  static constexpr int kOutputGrades = 5;
  static constexpr int kLast = 0;
  static constexpr int kShared = 1;  // the first of them
  static constexpr int kChat = kShared + kSharedGrades;
  static constexpr int kClasses = kChat + kTurnGrades * kAges * kNewTextGrades * kOutputGrades;

  // `other_texts` >= 1: how many requests used the page that did not continue the one before them.
  static constexpr int shared(std::int64_t other_texts) noexcept {
    return kShared + grade_of<5>(other_texts, {2, 4, 8, 16, 64});
  }

  struct Turn {
    std::int64_t turn = 0;  // 0: the first of its conversation
    std::int64_t new_text_tokens = 0;
    std::int64_t output_tokens = 0;
  };
  static constexpr int chat(const Turn& turn, bool older) noexcept {
    const int turn_grade = grade_of<4>(turn.turn, {1, 2, 3, 5});
    const int new_text = grade_of<3>(turn.new_text_tokens, {3'000, 10'000, 30'000});
    const int output = grade_of<4>(turn.output_tokens, {16, 64, 256, 1'024});
    const int page = turn_grade * kAges + (older ? 1 : 0);
    return kChat + (page * kNewTextGrades + new_text) * kOutputGrades + output;
  }
};

}  // namespace stemma
