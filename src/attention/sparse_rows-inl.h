// Sparse rows: where labels lie, how they are loaded, and the rows of K and V that are asked for
// while a choice is made.
//
// Included by sparse_cpu.cc after Highway, once for each SIMD target; never by anything else.
#if defined(STEMMA_ATTENTION_SPARSE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STEMMA_ATTENTION_SPARSE_ROWS_INL_H_
#undef STEMMA_ATTENTION_SPARSE_ROWS_INL_H_
#else
#define STEMMA_ATTENTION_SPARSE_ROWS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "attention/row_prefetch.h"
#include "attention/sparse_kernel.h"
#include "attention/transpose_words-inl.h"
#include "base/math.h"
#include "device/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace stemma::HWY_NAMESPACE {
namespace {

// Query heads whose scores are summed in registers at once.
constexpr int kGroupStep = 4;

// The rows of K and V that an earlier choice will be attended to: asked for while this one is made,
// so that memory and arithmetic overlap, one row a step.
class RowsAhead {
 public:
  RowsAhead(const SelectTask& task, std::int64_t group)
      : layer_(*task.layer),
        pages_(task.pages),
        keys_(task.keys_ahead),
        end_(task.keys_ahead + task.keys_ahead_count),
        element_bytes_(dtype_bytes(layer_.dtype)),
        head_bytes_((task.kv_head - 1) * layer_.head_stride * element_bytes_),
        steps_(passes(group) * ceil_div(task.tokens, kLanes)),
        rows_(2 * task.keys_ahead_count) {}

  // Called kPasses times for each vector of tokens: asks for a row now and then, for all in the
  // end.
  HWY_INLINE void step() {
    for (due_ += rows_; due_ >= steps_; due_ -= steps_) ask();
  }

 private:
  // One pass scores, and two more of each step of query heads make guesses.
  static std::int64_t passes(std::int64_t group) {
    return 1 + 2 * (group / kGroupStep + group % kGroupStep);
  }

  void ask() {
    if (keys_ == end_) return;
    const auto key = static_cast<std::uint32_t>(*keys_);
    const auto page_size = static_cast<std::uint32_t>(layer_.page_size);
    const std::int64_t element =
        pages_[key / page_size] * layer_.page_stride + key % page_size * layer_.token_stride;
    const auto* const row = static_cast<const std::byte*>(value_turn_ ? layer_.v : layer_.k) +
                            element * element_bytes_ + head_bytes_;
    for (std::int64_t i = 0; i < layer_.head_dim * element_bytes_; i += kLineBytes) {
      __builtin_prefetch(row + i, 0, 2);
    }
    if (value_turn_) ++keys_;
    value_turn_ = !value_turn_;
  }

  const KvLayerView& layer_;
  const std::int32_t* pages_;
  const std::int32_t* keys_;
  const std::int32_t* end_;
  std::int64_t element_bytes_;
  std::int64_t head_bytes_;
  std::int64_t steps_;
  std::int64_t rows_;
  std::int64_t due_ = 0;
  bool value_turn_ = false;
};

// Where a KV head's labels lie, token by token.
template <typename T>
class LabelRows {
 public:
  explicit LabelRows(const SelectTask& task)
      : task_(task),
        layer_(*task.layer),
        head_(static_cast<const T*>(layer_.labels) + task.kv_head * layer_.label_head_stride) {
    begin_page();
  }

  // Of the next kLanes tokens; those that do not exist are zeros.
  HWY_INLINE void next(const T** rows) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane, ++token_) {
      if (token_ >= task_.tokens) {
        rows[lane] = reinterpret_cast<const T*>(kZeroRow);
        continue;
      }
      if (token_ == page_end_) begin_page();
      rows[lane] = row_;
      row_ += layer_.label_token_stride;
    }
  }

  // Of the next kLanes tokens where they lie side by side, else null: then nothing has changed.
  HWY_INLINE const T* try_next_together() {
    if (token_ == page_end_) begin_page();
    const bool together = token_ + kLanes <= std::min(page_end_, task_.tokens) &&
                          layer_.label_token_stride == layer_.label_channels;
    if (!together) return nullptr;
    const T* const rows = row_;
    row_ += kLanes * layer_.label_token_stride;
    token_ += kLanes;
    return rows;
  }

 private:
  // Asks for labels kTokensAhead further on too: the processor's own prefetcher begins anew on each
  // page.
  HWY_INLINE void begin_page() {
    row_ = head_ + *page_ * layer_.label_page_stride;
    page_end_ += layer_.page_size;
    const std::int64_t pages_ahead = std::max<std::int64_t>(1, kTokensAhead / layer_.page_size);
    if (page_end_ + (pages_ahead - 1) * layer_.page_size < task_.tokens) {
      ask_for(head_ + page_[pages_ahead] * layer_.label_page_stride);
    }
    ++page_;
  }

  HWY_INLINE void ask_for(const T* labels) {
    constexpr auto kLine = kLineBytes / static_cast<std::int64_t>(sizeof(T));
    constexpr std::int64_t kLinesMax = 64;
    const std::int64_t end = layer_.page_size * layer_.label_token_stride;
    for (std::int64_t i = 0; i < std::min(end, kLinesMax * kLine); i += kLine) {
      __builtin_prefetch(labels + i, 0, 3);
    }
  }

  static constexpr std::int64_t kTokensAhead = 512;

  const SelectTask& task_;
  const KvLayerView& layer_;
  const T* head_;
  const T* row_ = nullptr;
  const std::int32_t* page_ = task_.pages;
  std::int64_t token_ = 0;
  std::int64_t page_end_ = 0;
};

#if HWY_TARGET == HWY_SCALAR
constexpr bool kLoadsTogether = false;
HWY_INLINE Floats in_token_order(Floats floats) {
  return floats;
}
template <typename T>
HWY_INLINE void load_dims_together(const T*, Floats (&)[kDimsInStep<T>]) {}
#else
constexpr bool kLoadsTogether = true;

// Labels of 16 bytes of kLanes tokens that lie side by side: whole vectors are loaded, and lane
// 4 × i + j has token i + j × kLanes / 4.
template <typename T>
HWY_INLINE void load_dims_together(const T* labels, Floats (&out)[kDimsInStep<T>]) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr int kElements = kDimsInStep<T> / 4;
  Words words[4];
  for (int i = 0; i < 4; ++i) {
    words[i] = hn::LoadU(WordTag(), reinterpret_cast<const std::uint32_t*>(labels) + i * kLanes);
  }
  transpose_words(words);
  STEMMA_UNROLL
  for (int word = 0; word < 4; ++word) {
    Floats wide[std::size_t{kElements}];
    widen_words(words[word], labels, wide);
    for (int element = 0; element < kElements; ++element) {
      out[word * kElements + element] = wide[element];
    }
  }
}

HWY_INLINE Floats in_token_order(Floats floats) {
  namespace hn = hwy::HWY_NAMESPACE;
  HWY_ALIGN std::int32_t from[static_cast<std::size_t>(kLanes)];
  constexpr auto kQuarter = static_cast<std::int32_t>(kLanes / 4);
  for (std::int32_t lane = 0; lane < kLanes; ++lane) {
    from[lane] = lane % kQuarter * 4 + lane / kQuarter;
  }
  return hn::TableLookupLanes(floats, hn::SetTableIndices(FloatTag(), from));
}
#endif

}  // namespace
}  // namespace stemma::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, once for each target
