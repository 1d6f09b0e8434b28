// The kernel that chooses tokens. Written from the definition in sparse_kernel.h; the reference
// twin is reference_sparse_attention.cc.
//
// Guesses are not negative, so their bits, read as numbers, are in the order of their values: the
// keys. The least chosen key is found from a histogram of the keys' upper bits, which names the few
// keys among which it is; those are set aside and the one wanted is taken from them. One more pass
// then writes the positions in ascending order.
#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>

#include "attention/sparse_kernel.h"
#include "base/check.h"
#include "device/simd_targets.h"  // before Highway

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/sparse_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "attention/sparse_rows-inl.h"
#include "attention/transpose_words-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stemma::HWY_NAMESPACE {
namespace {

struct Choice {
  const SelectTask& task;
  const SelectScratch& scratch;
  std::int64_t group = 0;
  std::int64_t stride = 0;  // of scores
};

// [group, label_channels] of the row's queries, times scale × log2 e.
void scale_label_queries(const Choice& choice) {
  const SelectTask& task = choice.task;
  const std::int64_t channels = task.layer->label_channels;
  const std::int32_t* const heavy = task.layer->heavy_channels + task.kv_head * channels;
  const float scale = task.shape->scale * kLog2E;
  for (std::int64_t head = 0; head < choice.group; ++head) {
    const float* const q = task.q + head * task.shape->head_dim;
    for (std::int64_t i = 0; i < channels; ++i) {
      choice.scratch.queries[head * channels + i] = q[heavy[i]] * scale;
    }
  }
}

// Scores of kLanes tokens for kHeads query heads from `head` on.
template <typename T, int kHeads>
HWY_INLINE void score_labels(const Choice& choice, const T* together_or_null, const T* const* rows,
                             std::int64_t head, std::int64_t token) {
  namespace hn = hwy::HWY_NAMESPACE;
  const FloatTag d;
  const std::int64_t channels = choice.task.layer->label_channels;
  const float* const q = choice.scratch.queries + head * channels;
  Floats sums[std::size_t{kHeads}];
  for (int h = 0; h < kHeads; ++h) sums[h] = hn::Zero(d);
  for (std::int64_t i = 0; i < channels; i += kDimsInStep<T>) {
    Floats dims[kDimsInStep<T>];
    if (together_or_null != nullptr) {
      load_dims_together(together_or_null, dims);
    } else {
      load_dims(rows, i, dims);
    }
    STEMMA_UNROLL
    for (int dim = 0; dim < kDimsInStep<T>; ++dim) {
      STEMMA_UNROLL
      for (int h = 0; h < kHeads; ++h) {
        sums[h] = hn::MulAdd(hn::Set(d, q[h * channels + i + dim]), dims[dim], sums[h]);
      }
    }
  }
  float* const scores = choice.scratch.scores + head * choice.stride + token;
  for (int h = 0; h < kHeads; ++h) {
    if (together_or_null != nullptr) sums[h] = in_token_order(sums[h]);
    hn::StoreU(sums[h], d, scores + h * choice.stride);
  }
}

template <typename T>
void score_tokens(const Choice& choice, RowsAhead& ahead) {
  const bool one_step = choice.task.layer->label_channels == kDimsInStep<T>;
  LabelRows<T> labels(choice.task);
  for (std::int64_t token = 0; token < choice.task.tokens; token += kLanes) {
    const T* rows[static_cast<std::size_t>(kLanes)];
    const T* const together = kLoadsTogether && one_step ? labels.try_next_together() : nullptr;
    if (together == nullptr) labels.next(rows);
    ahead.step();
    std::int64_t head = 0;
    for (; head + kGroupStep <= choice.group; head += kGroupStep) {
      score_labels<T, kGroupStep>(choice, together, rows, head, token);
    }
    for (; head < choice.group; ++head) score_labels<T, 1>(choice, together, rows, head, token);
  }
}

// Tokens that do not exist weigh nothing.
void clear_tail(const Choice& choice) {
  const std::int64_t tokens = choice.task.tokens;
  for (std::int64_t head = 0; head < choice.group; ++head) {
    std::fill(choice.scratch.scores + head * choice.stride + tokens,
              choice.scratch.scores + head * choice.stride + round_up(tokens, kLanes),
              -std::numeric_limits<float>::infinity());
  }
}

constexpr float kOneBits = 127 * 0x1p23f;  // of 1.0f

// What turns a score of base 2 into the bits of 2^(score − max), as straight lines between powers
// of two: bits = score × 2^23 + shift; 0 below 2^-126.
HWY_INLINE Floats weight_of(Floats score, Floats shift) {
  namespace hn = hwy::HWY_NAMESPACE;
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  const Floats bits = hn::MulAdd(score, hn::Set(d, 0x1p23f), shift);
  return hn::BitCast(d, hn::ConvertTo(di, hn::Max(bits, hn::Zero(d))));
}

// Of kHeads query heads, whose scores lie `stride` apart: what weight_of adds for each.
template <int kHeads>
void find_shifts(const float* scores, std::int64_t stride, std::int64_t tokens, float* shifts) {
  namespace hn = hwy::HWY_NAMESPACE;
  const FloatTag d;
  Floats largest[std::size_t{kHeads}];
  for (int h = 0; h < kHeads; ++h) {
    largest[h] = hn::Set(d, std::numeric_limits<float>::lowest());
  }
  for (std::int64_t i = 0; i < tokens; i += kLanes) {
    STEMMA_UNROLL
    for (int h = 0; h < kHeads; ++h) {
      largest[h] = hn::Max(largest[h], hn::LoadU(d, scores + h * stride + i));
    }
  }
  for (int h = 0; h < kHeads; ++h) {
    shifts[h] = kOneBits - hn::GetLane(hn::MaxOfLanes(d, largest[h])) * 0x1p23f;
  }
}

// One by the sum of all weights, of each query head. Lane l sums tokens l, l + lanes, …; then the
// lanes are summed in the target's fixed tree.
template <int kHeads>
void find_shares(const float* scores, std::int64_t stride, std::int64_t tokens, const float* shifts,
                 float* shares, RowsAhead& ahead) {
  namespace hn = hwy::HWY_NAMESPACE;
  const FloatTag d;
  Floats totals[std::size_t{kHeads}];
  for (int h = 0; h < kHeads; ++h) totals[h] = hn::Zero(d);
  for (std::int64_t i = 0; i < tokens; i += kLanes) {
    ahead.step();
    STEMMA_UNROLL
    for (int h = 0; h < kHeads; ++h) {
      const Floats score = hn::LoadU(d, scores + h * stride + i);
      totals[h] = hn::Add(totals[h], weight_of(score, hn::Set(d, shifts[h])));
    }
  }
  for (int h = 0; h < kHeads; ++h) shares[h] = 1 / hn::GetLane(hn::SumOfLanes(d, totals[h]));
}

// guess += weight × share of kHeads query heads from `head` on, in order; the first of all begins
// at 0 and replaces its scores.
template <int kHeads>
void add_heads(const Choice& choice, std::int64_t head, RowsAhead& ahead) {
  namespace hn = hwy::HWY_NAMESPACE;
  const FloatTag d;
  float shifts[std::size_t{kHeads}];
  float shares[std::size_t{kHeads}];
  const std::int64_t tokens = choice.task.tokens;
  const float* const scores = choice.scratch.scores + head * choice.stride;
  find_shifts<kHeads>(scores, choice.stride, tokens, shifts);
  find_shares<kHeads>(scores, choice.stride, tokens, shifts, shares, ahead);
  float* const guesses = choice.scratch.scores;
  for (std::int64_t i = 0; i < tokens; i += kLanes) {
    ahead.step();
    Floats guess = head == 0 ? hn::Zero(d) : hn::LoadU(d, guesses + i);
    STEMMA_UNROLL
    for (int h = 0; h < kHeads; ++h) {
      const Floats weight =
          weight_of(hn::LoadU(d, scores + h * choice.stride + i), hn::Set(d, shifts[h]));
      guess = hn::MulAdd(weight, hn::Set(d, shares[h]), guess);
    }
    hn::StoreU(guess, d, guesses + i);
  }
}

// Bits of a guess in the order of its value, whatever it is.
HWY_INLINE Words keys_at(const float* guesses) {
  namespace hn = hwy::HWY_NAMESPACE;
  const Words bits = hn::LoadU(WordTag(), reinterpret_cast<const std::uint32_t*>(guesses));
  return hn::And(bits, hn::Set(WordTag(), 0x7FFFFFFFu));
}

std::uint32_t key_at(const float* guesses, std::int64_t i) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, guesses + i, sizeof(bits));
  return bits & 0x7FFFFFFFu;
}

// Keys of guesses below 2^-31 share the lowest bin, those of guesses far above 1 the highest; the
// others have 128 bins an octave.
constexpr std::uint32_t kFirstKey = 0x30000000u;
constexpr int kBinBits = 16;

struct KeyRange {
  std::uint32_t least = 0;
  std::uint32_t largest = 0;
};

KeyRange keys_of_bin(std::int64_t bin) {
  const auto at = static_cast<std::uint32_t>(bin) << kBinBits;
  return {bin == 0 ? 0 : kFirstKey + at,
          bin == kSelectBins - 1 ? 0x7FFFFFFFu : kFirstKey + at + (1u << kBinBits) - 1};
}

// The keys among which the `wanted`-th largest is; `wanted` becomes its place among those. Two
// histograms by turns: neighbours often share a bin, and a count waits for the one before it.
KeyRange find_range(const Choice& choice, std::int64_t& wanted) {
  namespace hn = hwy::HWY_NAMESPACE;
  const WordTag d;
  const Words first = hn::Set(d, kFirstKey);
  const Words last_bin = hn::Set(d, static_cast<std::uint32_t>(kSelectBins - 1));
  std::uint32_t* const counts[2] = {choice.scratch.bins, choice.scratch.bins + kSelectBins};
  std::fill_n(counts[0], 2 * kSelectBins, 0u);
  const std::int64_t tokens = choice.task.tokens;
  for (std::int64_t i = 0; i < tokens; i += kLanes) {
    const Words above = hn::Sub(hn::Max(keys_at(choice.scratch.scores + i), first), first);
    HWY_ALIGN std::uint32_t bins[static_cast<std::size_t>(kLanes)];
    hn::Store(hn::Min(hn::ShiftRight<kBinBits>(above), last_bin), d, bins);
    const std::int64_t lanes = std::min(kLanes, tokens - i);
    for (std::int64_t lane = 0; lane < lanes; ++lane) ++counts[lane % 2][bins[lane]];
  }
  for (std::int64_t bin = kSelectBins - 1; bin > 0; --bin) {
    const std::int64_t here = std::int64_t{counts[0][bin]} + counts[1][bin];
    if (here >= wanted) return keys_of_bin(bin);
    wanted -= here;
  }
  return keys_of_bin(0);
}

// The keys of a range, in order; returns how many.
std::int64_t gather_candidates(const Choice& choice, KeyRange range) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<WordTag> di;  // keys are below 2^31
  const auto below = hn::Set(di, static_cast<std::int32_t>(range.least) - 1);
  const auto largest = hn::Set(di, static_cast<std::int32_t>(range.largest));
  const std::int64_t tokens = choice.task.tokens;
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < tokens; i += kLanes) {
    const auto keys = hn::BitCast(di, keys_at(choice.scratch.scores + i));
    auto mask = hn::AndNot(hn::Gt(keys, largest), hn::Gt(keys, below));
    if (i + kLanes > tokens) {
      mask = hn::And(mask, hn::FirstN(di, static_cast<std::size_t>(tokens - i)));
    }
    // Compressed in a register: compressing stores are slow on some processors.
    auto* const to = reinterpret_cast<std::int32_t*>(choice.scratch.candidates) + count;
    hn::StoreU(hn::Compress(keys, mask), di, to);
    count += static_cast<std::int64_t>(hn::CountTrue(di, mask));
  }
  return count;
}

// Positions whose keys are above `least`, and the first `equals` of those that have it.
void write_chosen(const Choice& choice, std::uint32_t least, std::int64_t equals) {
  namespace hn = hwy::HWY_NAMESPACE;
  const WordTag d;
  const hn::RebindToSigned<WordTag> di;
  const Words least_keys = hn::Set(d, least);
  const std::int64_t tokens = choice.task.tokens;
  std::int32_t* to = choice.scratch.chosen;
  for (std::int64_t i = 0; i < tokens; i += kLanes) {
    const Words keys = keys_at(choice.scratch.scores + i);
    const bool ties = !hn::AllFalse(d, hn::Eq(keys, least_keys));
    if (ties || i + kLanes > tokens) {
      const std::int64_t end = std::min(tokens, i + kLanes);
      for (std::int64_t token = i; token < end; ++token) {
        const std::uint32_t key = key_at(choice.scratch.scores, token);
        const bool equal = key == least && equals > 0;
        if (equal) --equals;
        if (key > least || equal) *to++ = static_cast<std::int32_t>(token);
      }
      continue;
    }
    const auto positions = hn::Iota(di, static_cast<std::int32_t>(i));
    const auto above = hn::RebindMask(di, hn::Gt(keys, least_keys));
    hn::StoreU(hn::Compress(positions, above), di, to);
    to += hn::CountTrue(di, above);
  }
  STEMMA_CHECK_EQ(to - choice.scratch.chosen, choice.task.kept_tokens);
}

void choose_largest(const Choice& choice) {
  std::int64_t wanted = choice.task.kept_tokens;
  const KeyRange range = find_range(choice, wanted);
  std::uint32_t* const begin = choice.scratch.candidates;
  std::uint32_t* const end = begin + gather_candidates(choice, range);
  std::nth_element(begin, begin + wanted - 1, end, std::greater<>());
  const std::uint32_t least = begin[wanted - 1];
  const std::int64_t above =
      std::count_if(begin, begin + wanted - 1, [least](std::uint32_t key) { return key > least; });
  write_chosen(choice, least, wanted - above);
}

}  // namespace

void select(const SelectTask& task, const SelectScratch& scratch) {
  Choice choice{task, scratch};
  choice.group = task.shape->query_heads / task.shape->kv_heads;
  choice.stride = padded_tokens(task.tokens);
  scale_label_queries(choice);
  RowsAhead ahead(task, choice.group);
  switch (task.layer->dtype) {
    case DType::kF32:
      score_tokens<float>(choice, ahead);
      break;
    case DType::kF16:
      score_tokens<Float16>(choice, ahead);
      break;
    case DType::kBF16:
      score_tokens<BFloat16>(choice, ahead);
      break;
    case DType::kFp8E4M3:
    case DType::kFp8E5M2:
    case DType::kInt8:
      STEMMA_CHECK(false, "labels are the very elements of K");  // validate(KvShape)
  }
  clear_tail(choice);
  std::int64_t head = 0;
  for (; head + kGroupStep <= choice.group; head += kGroupStep) {
    add_heads<kGroupStep>(choice, head, ahead);
  }
  for (; head < choice.group; ++head) add_heads<1>(choice, head, ahead);
  choose_largest(choice);
}

}  // namespace stemma::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stemma {

HWY_EXPORT(select);

SelectKernel select_kernel() {
  return &HWY_DYNAMIC_DISPATCH(select);
}

}  // namespace stemma
#endif  // HWY_ONCE
