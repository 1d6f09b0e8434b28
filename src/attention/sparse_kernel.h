// Sparse kernel: which of the tokens that a row sees it attends to, guessed from their labels. Used
// by the sparse attention and by whoever measures what the guess misses.
//
// One choice for all query heads of a KV head:
//
//   score[h][t]   = scale × log2 e × sum over the heavy channels c, in order, of q[h][c] × k[t][c]
//   weight[h][t]  = 2^(score − max) / sum over tokens of the same       a softmax
//   guess[t]      = sum over the KV head's query heads, in order, of weight[h][t]
//
// where 2^x is taken as straight lines between the powers of two, at most 6 % too large. The tokens
// with the largest guesses are chosen; of equal guesses the lower positions'. The sum of softmaxes
// is what the exact choice would maximise, were the scores exact: on the bundled model, at 1/8 of
// 512 … 1024 tokens, it recalls 0.53 of the attention's mass, the sum of 2^(score − max) 0.52, the
// group's summed queries 0.51, the largest of score − max 0.50, and what could be had with exact
// scores is 0.59. A row's newest tokens are chosen like all others: setting a quarter of the choice
// aside for them lost 0.01.
//
// All of it depends on the row's tokens and positions alone (I13): lanes are tokens, counted from
// position 0.
//
// Thread:     a pure function of its task; each thread has its own scratch.
// Memory:     SelectScratch, sized by its owner.
// Cost:       2 × label_channels operations and an exponential a token and query head; the choice
//             is a histogram and two passes, no sort.
// Not here:   attention over the chosen tokens (attention_kernel), how many they are (sparse_dial).
#pragma once

#include <cstdint>

#include "attention/attention.h"
#include "base/math.h"

namespace stemma {

// Arrays of tokens are padded so that vectors may run over their ends.
inline constexpr std::int64_t kSelectPadding = 64;

inline constexpr std::int64_t padded_tokens(std::int64_t tokens) {
  return round_up(tokens, kSelectPadding) + kSelectPadding;
}

// Bins of a histogram of guesses.
inline constexpr std::int64_t kSelectBins = 4352;

// One thread's working memory, for contexts of at most `tokens`.
struct SelectScratch {
  float* queries = nullptr;             // [group, label_channels], scaled
  float* scores = nullptr;              // [group, padded_tokens]; then the first row is the guesses
  std::uint32_t* candidates = nullptr;  // [padded_tokens]
  std::uint32_t* bins = nullptr;        // [2, kSelectBins]
  std::int32_t* chosen = nullptr;       // [padded_tokens]: what select gives, ascending
};

// One row and KV head.
struct SelectTask {
  const KvLayerView* layer = nullptr;  // with labels
  const AttentionShape* shape = nullptr;
  const std::int32_t* pages = nullptr;  // of the request
  const float* q = nullptr;             // of the KV head's query heads   [group, head_dim]
  std::int64_t kv_head = 0;
  std::int64_t tokens = 0;       // that the row sees
  std::int64_t kept_tokens = 0;  // 1 … tokens
  // What was chosen for the KV head before this one of the same row, if it is to be attended to
  // next: its rows of K and V are asked for meanwhile.
  const std::int32_t* keys_ahead = nullptr;
  std::int64_t keys_ahead_count = 0;
};

// Writes the chosen positions to scratch.chosen. REQUIRES: label_channels is a multiple of 8.
// Numbers that are no numbers choose something, never anything outside the context.
using SelectKernel = void (*)(const SelectTask&, const SelectScratch&);

// That of the chosen SIMD target.
SelectKernel select_kernel();

}  // namespace stemma
