// Tile rows: how many rows are multiplied together by two vectors of columns. Each output is one
// accumulator fed in order, whatever the number of rows that are computed together (I13).
//
// Included by the kernel files after Highway, once for each SIMD target; never by anything else.
#if defined(STEMMA_ATTENTION_TILE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STEMMA_ATTENTION_TILE_ROWS_INL_H_
#undef STEMMA_ATTENTION_TILE_ROWS_INL_H_
#else
#define STEMMA_ATTENTION_TILE_ROWS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace stemma::HWY_NAMESPACE {
namespace {

constexpr bool kManyRegisters = HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON;

// With two vectors of columns: 24 accumulators, the columns and a broadcast of 32 registers, or 12
// of 16. Enough independent accumulators to hide the latency of a multiply-add.
constexpr int kTileRows = kManyRegisters ? 12 : 6;

// How many rows the next tile takes when `rows` are left.
constexpr std::int64_t tile_rows(std::int64_t rows) {
  if (rows >= kTileRows) return kTileRows;
  for (const std::int64_t size : {8, 4, 2}) {
    if (rows >= size && size < kTileRows) return size;
  }
  return 1;
}

}  // namespace
}  // namespace stemma::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, once for each target
