// Key scales: those of the keys of a partition, of pools whose dtype is scaled. A score is
// multiplied by the scale of its K once, when the sum over the codes is finished; a weight by that
// of its V, when the softmax is, before it meets the codes. Both by vectors of keys, the same for
// every way of computing a query (I13).
//
// Included by the kernel files after Highway, once for each SIMD target; never by anything else.
#if defined(STEMMA_ATTENTION_KEY_SCALES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STEMMA_ATTENTION_KEY_SCALES_INL_H_
#undef STEMMA_ATTENTION_KEY_SCALES_INL_H_
#else
#define STEMMA_ATTENTION_KEY_SCALES_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "attention/attention_kernel.h"
#include "attention/row_prefetch.h"
#include "attention/task_keys.h"
#include "attention/widen_words-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stemma::HWY_NAMESPACE {
namespace {

// One side's scales of one partition and KV head, times a factor (CodeFactors); 0 behind the last
// key. Those of keys before the first row's window, which may have no page, are that of the first
// key in it, as their rows are (locate_keys).
class KeyScales {
 public:
  // `scales`: those of the head in page 0. REQUIRES: the task walks all keys, not a list.
  void gather(const AttentionTask& task, std::int64_t partition, const float* scales,
              float factor) {
    namespace hn = hwy::HWY_NAMESPACE;
    constexpr FloatTag d;
    const auto factors = hn::Set(d, factor);
    std::int64_t last = 0;
    visit_runs(task, partition, scales,
               [&](std::int64_t key, std::int64_t end, const float* from) HWY_ATTR {
                 for (; key + kLanes <= end; key += kLanes, from += kLanes) {
                   hn::StoreU(hn::Mul(hn::LoadU(d, from), factors), d, scales_ + key);
                 }
                 for (; key < end; ++key) scales_[key] = *from++ * factor;
                 last = end;
               });
    const std::int64_t unseen = keys_without_page(task, partition);
    if (unseen < last) std::fill_n(scales_, unseen, scales_[unseen]);
    std::fill(scales_ + last, scales_ + round_up(last, kLanes), 0.0f);
  }

  // Asks for the cache lines of a partition's scales. Heads share lines where pages are small: only
  // those that begin here are asked for, and for the first head the one before.
  static void ask_for(const AttentionTask& task, std::int64_t partition, const float* scales,
                      bool first_head) {
    visit_runs(task, partition, scales, [&](std::int64_t key, std::int64_t end, const float* from) {
      const auto* const begin = reinterpret_cast<const std::byte*>(from);
      const std::int64_t bytes = (end - key) * kScaleBytes;
      const auto in_line =
          static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(begin) % kLineBytes);
      for (std::int64_t i = first_head || in_line == 0 ? -in_line : kLineBytes - in_line; i < bytes;
           i += kLineBytes) {
        __builtin_prefetch(begin + i, 0, 3);
      }
    });
  }

  // Of the first `keys` keys, and of some behind them.
  HWY_INLINE void apply(float* HWY_RESTRICT to, std::int64_t keys) const {
    namespace hn = hwy::HWY_NAMESPACE;
    constexpr FloatTag d;
    for (std::int64_t i = 0; i < keys; i += kLanes) {
      hn::StoreU(hn::Mul(hn::LoadU(d, to + i), hn::Load(d, scales_ + i)), d, to + i);
    }
  }

  const float* begin() const { return scales_; }
  float of(std::int64_t key) const { return scales_[key]; }

 private:
  static std::int64_t keys_without_page(const AttentionTask& task, std::int64_t partition) {
    const std::int64_t seen = task.shape->first_seen(task.first_position);
    return std::clamp<std::int64_t>(seen - partition * kPartitionKeys, 0, keys_in(task, partition));
  }

  // Calls visit(first key, end, where their scales lie) for each page's keys of the partition.
  template <typename Visit>
  static HWY_INLINE void visit_runs(const AttentionTask& task, std::int64_t partition,
                                    const float* scales, Visit visit) {
    const KvLayerView& layer = *task.layer;
    const std::int64_t keys = keys_in(task, partition);
    std::int64_t key = keys_without_page(task, partition);
    const std::int64_t first = partition * kPartitionKeys + key;
    std::int64_t page = first / layer.page_size;
    std::int64_t in_page = first % layer.page_size;
    for (; key < keys; ++page, in_page = 0) {
      const std::int64_t end = std::min(keys, key + layer.page_size - in_page);
      visit(key, end, scales + task.pages[page] * layer.scale_page_stride + in_page);
      key = end;
    }
  }

  HWY_ALIGN float scales_[static_cast<std::size_t>(kPartitionKeys)];
};

// Of K and of V.
struct SideScales {
  KeyScales k;
  KeyScales v;
};

}  // namespace
}  // namespace stemma::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, once for each target
