// Packing: rows of K and V of one partition, gathered through the page table and widened to f32
// panels that the multiplication reads in order.
//
//   keys    [ceil(keys / columns), head_dim, columns]   transposed: a column is a key
//   values  [head_dim / columns, kPartitionKeys, columns]        a column is a dimension
//
// Included by attention_cpu.cc after Highway, once for each SIMD target; never by anything else.
#if defined(STEMMA_ATTENTION_PACK_KV_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STEMMA_ATTENTION_PACK_KV_INL_H_
#undef STEMMA_ATTENTION_PACK_KV_INL_H_
#else
#define STEMMA_ATTENTION_PACK_KV_INL_H_
#endif

#include <hwy/highway.h>

#include "attention/attention_kernel.h"
#include "base/float16.h"
#include "device/load_f32-inl.h"
#include "device/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace stemma::HWY_NAMESPACE {
namespace {

constexpr std::int64_t kLanes = static_cast<std::int64_t>(
    hwy::HWY_NAMESPACE::MaxLanes(hwy::HWY_NAMESPACE::ScalableTag<float>()));
constexpr std::int64_t kPanelColumns = 2 * kLanes;
static_assert(kPanelColumnsMax % kPanelColumns == 0 && kPartitionKeys % kPanelColumns == 0);

// What stands for a key that does not exist: its scores are never used.
alignas(64) constexpr float kZeroRow[256] = {};

#if HWY_TARGET == HWY_SCALAR

template <typename T>
void pack_key_group(const T* const* rows, std::int64_t head_dim, float* panel) {
  const hwy::HWY_NAMESPACE::ScalableTag<float> d;
  for (std::int64_t i = 0; i < head_dim; ++i) {
    panel[i * kPanelColumns] = hwy::HWY_NAMESPACE::GetLane(load_f32(d, rows[0] + i));
  }
}

#else

using WordTag = hwy::HWY_NAMESPACE::ScalableTag<std::uint32_t>;
using Words = hwy::HWY_NAMESPACE::Vec<WordTag>;

// 16 bytes each of rows i, i + 4, i + 8, …, as many as a vector holds.
template <typename T>
HWY_INLINE Words load_every_fourth(const T* const* rows, std::int64_t from) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::Full128<std::uint32_t> d128;
  const auto quarter = [&](std::int64_t row) HWY_ATTR {
    return hn::LoadU(d128, reinterpret_cast<const std::uint32_t*>(rows[row] + from));
  };
#if HWY_TARGET == HWY_AVX3
  const hn::Full256<std::uint32_t> d256;
  return hn::Combine(WordTag(), hn::Combine(d256, quarter(12), quarter(8)),
                     hn::Combine(d256, quarter(4), quarter(0)));
#elif HWY_TARGET == HWY_AVX2
  return hn::Combine(WordTag(), quarter(4), quarter(0));
#else
  return quarter(0);
#endif
}

// Word w of every key, for w = 0 … 3: a 4 × 4 transposition in each 16 bytes.
HWY_INLINE void transpose_words(const Words (&in)[4], Words (&out)[4]) {
  namespace hn = hwy::HWY_NAMESPACE;
  const WordTag d;
  const hn::RepartitionToWide<WordTag> d64;
  const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, in[0], in[1]));
  const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, in[2], in[3]));
  const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, in[0], in[1]));
  const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, in[2], in[3]));
  out[0] = hn::BitCast(d, hn::InterleaveLower(d64, low01, low23));
  out[1] = hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23));
  out[2] = hn::BitCast(d, hn::InterleaveLower(d64, high01, high23));
  out[3] = hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23));
}

// The elements of one word of every key, as rows of the panel. The low half comes first in memory.
HWY_INLINE void store_words(Words words, const float*, float* to) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  hn::StoreU(hn::BitCast(d, words), d, to);
}

HWY_INLINE void store_words(Words words, const BFloat16*, float* to) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  const auto upper = hn::And(words, hn::Set(WordTag(), 0xFFFF0000u));
  hn::StoreU(hn::BitCast(d, hn::ShiftLeft<16>(words)), d, to);
  hn::StoreU(hn::BitCast(d, upper), d, to + kPanelColumns);
}

HWY_INLINE void store_words(Words words, const Float16*, float* to) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<WordTag> di;
  const hn::Rebind<std::uint16_t, WordTag> d16;
  const auto store_halves = [&](Words halves, float* at) HWY_ATTR {
    HWY_ALIGN Float16 narrow[static_cast<std::size_t>(kLanes)];
    hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di, halves)), d16,
               reinterpret_cast<std::uint16_t*>(narrow));
    hn::StoreU(load_f32(d, narrow), d, at);
  };
  store_halves(hn::And(words, hn::Set(WordTag(), 0xFFFFu)), to);
  store_halves(hn::ShiftRight<16>(words), to + kPanelColumns);
}

// kLanes keys: one half of a panel.
template <typename T>
void pack_key_group(const T* const* rows, std::int64_t head_dim, float* panel) {
  constexpr auto kElementsInWord = static_cast<std::int64_t>(sizeof(std::uint32_t) / sizeof(T));
  for (std::int64_t i = 0; i < head_dim; i += 4 * kElementsInWord) {
    Words in[4];
    Words out[4];
    STEMMA_UNROLL
    for (int fourth = 0; fourth < 4; ++fourth) in[fourth] = load_every_fourth(rows + fourth, i);
    transpose_words(in, out);
    STEMMA_UNROLL
    for (int word = 0; word < 4; ++word) {
      store_words(out[word], rows[0], panel + (i + word * kElementsInWord) * kPanelColumns);
    }
  }
}

#endif  // HWY_SCALAR

// REQUIRES: 1 <= keys <= kPartitionKeys; head_dim a multiple of 8.
template <typename T>
void pack_keys(const std::byte* head, const std::int64_t* offsets, std::int64_t keys,
               std::int64_t head_dim, float* panels) {
  const std::int64_t groups = round_up(keys, kPanelColumns) / kLanes;
  for (std::int64_t group = 0; group < groups; ++group) {
    const T* rows[static_cast<std::size_t>(kLanes)];
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const std::int64_t key = group * kLanes + lane;
      rows[lane] = reinterpret_cast<const T*>(
          key < keys ? head + offsets[key] : reinterpret_cast<const std::byte*>(kZeroRow));
    }
    float* const panel = panels + group / 2 * head_dim * kPanelColumns;
    pack_key_group(rows, head_dim, panel + group % 2 * kLanes);
  }
}

// Columns beyond head_dim are left as they are.
template <typename T>
void pack_values(const std::byte* head, const std::int64_t* offsets, std::int64_t keys,
                 std::int64_t head_dim, float* panels) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  const std::int64_t whole = round_down(head_dim, kLanes);
  for (std::int64_t key = 0; key < keys; ++key) {
    const T* const row = reinterpret_cast<const T*>(head + offsets[key]);
    float* to = panels + key * kPanelColumns;
    for (std::int64_t i = 0; i < whole; i += kLanes) {
      float* const panel = to + i / kPanelColumns * kPartitionKeys * kPanelColumns;
      hn::StoreU(load_f32(d, row + i), d, panel + i % kPanelColumns);
    }
    if (kLanes > 8 && whole < head_dim) {  // half a vector: head_dim is a multiple of 8
      const hn::Half<decltype(d)> half;
      float* const panel = to + whole / kPanelColumns * kPartitionKeys * kPanelColumns;
      hn::StoreU(load_f32(half, row + whole), half, panel + whole % kPanelColumns);
    }
  }
}

}  // namespace
}  // namespace stemma::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, once for each target
