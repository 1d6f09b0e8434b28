// Multiplication: a few rows by packed panels, c = a · b. Each output is one accumulator fed
// k = 0, 1, … in that order, whatever the number of rows or panels that are computed together
// (I13).
//
// Included by the kernel files after Highway, once for each SIMD target; never by anything else.
#if defined(STEMMA_ATTENTION_MULTIPLY_PANELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STEMMA_ATTENTION_MULTIPLY_PANELS_INL_H_
#undef STEMMA_ATTENTION_MULTIPLY_PANELS_INL_H_
#else
#define STEMMA_ATTENTION_MULTIPLY_PANELS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "attention/attention_kernel.h"
#include "attention/pack_kv-inl.h"
#include "attention/row_prefetch.h"
#include "device/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace stemma::HWY_NAMESPACE {
namespace {

struct PanelProduct {
  const float* a = nullptr;  // [rows, depth], a_stride apart
  std::int64_t a_stride = 0;
  const float* b = nullptr;  // [panels, depth, kPanelColumns], panels b_stride apart
  std::int64_t b_stride = 0;
  float* c = nullptr;  // [rows, panels × kPanelColumns], c_stride apart
  std::int64_t c_stride = 0;
  std::int64_t panels = 0;
  std::int64_t first_k = 0;  // c continues from there; from 0 it begins at 0
  bool continues = false;    // from 0 too
  std::int64_t depth = 0;
};

constexpr std::int64_t kDepthStep = 8;  // between prefetches
// Half of a partition's lines, if their elements have 16 bits; the rest is asked for while packing.
constexpr std::int64_t kMultiplyLines = std::max<std::int64_t>(1, kLanes / 4);

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr int kTileRows = 12;  // 24 accumulators, 2 vectors of b and a broadcast of 32 registers
#else
constexpr int kTileRows = 6;  // 12, 2 and 1 of 16
#endif

// Enough independent accumulators to hide the latency of a multiply-add, no more than the
// registers hold.
constexpr int panels_together(int rows) {
  return 2 * rows < kTileRows ? kSlicePanels : 1;
}

template <int kRows, int kPanels>
HWY_INLINE void multiply_tile(const PanelProduct& product, std::int64_t panel,
                              RowPrefetch& prefetch) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kVectors = 2 * kPanels;
  const float* const b = product.b + panel * product.b_stride;
  float* const c = product.c + panel * kPanelColumns;
  const bool begins = product.first_k == 0 && !product.continues;
  V sums[std::size_t{kRows}][std::size_t{kVectors}];
  STEMMA_UNROLL
  for (int row = 0; row < kRows; ++row) {
    STEMMA_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      sums[row][v] = begins ? hn::Zero(d) : hn::LoadU(d, c + row * product.c_stride + v * kLanes);
    }
  }
  PrefetchCursor cursor(prefetch);
  for (std::int64_t k0 = product.first_k; k0 < product.depth; k0 += kDepthStep) {
    cursor.step(kPanels * kMultiplyLines);
    const std::int64_t k_end = std::min(product.depth, k0 + kDepthStep);
    for (std::int64_t k = k0; k < k_end; ++k) {
      V right[std::size_t{kVectors}];
      STEMMA_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        right[v] = hn::LoadU(d, b + v / 2 * product.b_stride + k * kPanelColumns + v % 2 * kLanes);
      }
      STEMMA_UNROLL
      for (int row = 0; row < kRows; ++row) {
        const V left = hn::Set(d, product.a[row * product.a_stride + k]);
        STEMMA_UNROLL
        for (int v = 0; v < kVectors; ++v) sums[row][v] = hn::MulAdd(left, right[v], sums[row][v]);
      }
    }
  }
  STEMMA_UNROLL
  for (int row = 0; row < kRows; ++row) {
    STEMMA_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      hn::StoreU(sums[row][v], d, c + row * product.c_stride + v * kLanes);
    }
  }
}

template <int kRows>
HWY_NOINLINE void multiply_rows(const PanelProduct& product, RowPrefetch& prefetch) {
  constexpr int kTogether = panels_together(kRows);
  std::int64_t panel = 0;
  for (; panel + kTogether <= product.panels; panel += kTogether) {
    multiply_tile<kRows, kTogether>(product, panel, prefetch);
  }
  if constexpr (kTogether > 1) {
    for (; panel < product.panels; ++panel) multiply_tile<kRows, 1>(product, panel, prefetch);
  }
}

// How many rows the next tile takes when `rows` are left.
constexpr std::int64_t tile_rows(std::int64_t rows) {
  if (rows >= kTileRows) return kTileRows;
  for (const std::int64_t size : {8, 4, 2}) {
    if (rows >= size && size < kTileRows) return size;
  }
  return 1;
}

// `product` with as many rows as tile_rows may return.
inline void multiply(std::int64_t rows, const PanelProduct& product, RowPrefetch& prefetch) {
  switch (rows) {
    case 1:
      return multiply_rows<1>(product, prefetch);
    case 2:
      return multiply_rows<2>(product, prefetch);
    case 4:
      return multiply_rows<4>(product, prefetch);
    case 8:
      if constexpr (kTileRows > 8) return multiply_rows<8>(product, prefetch);
      break;
    default:
      return multiply_rows<kTileRows>(product, prefetch);
  }
}

}  // namespace
}  // namespace stemma::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, once for each target
