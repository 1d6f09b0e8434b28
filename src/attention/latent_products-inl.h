// The two products of attention over latent rows. A partition's rows lie widened in scratch memory
// and serve both: as keys, of which one element after another meets vectors of queries, and as
// values, of which vectors meet one weight after another. Nothing is transposed but the weights,
// which come out of the first product as the second one reads them.
//
//   queries  [panels, head_dim, columns]      a column is a query; the last panel may be one vector
//   rows     [keys, kLatentRowFloats]
//   scores   [keys, queries]                  then weights
//   sums     [queries, value_dim]
//
// Each score and each sum is one accumulator fed in one order, whatever is computed beside it
// (I13).
//
// Included by latent_attention_cpu.cc after Highway, once for each SIMD target; by nothing else.
#if defined(STEMMA_ATTENTION_LATENT_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STEMMA_ATTENTION_LATENT_PRODUCTS_INL_H_
#undef STEMMA_ATTENTION_LATENT_PRODUCTS_INL_H_
#else
#define STEMMA_ATTENTION_LATENT_PRODUCTS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "attention/attention_kernel.h"
#include "attention/row_prefetch.h"
#include "attention/tile_rows-inl.h"
#include "attention/widen_rows-inl.h"
#include "device/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace stemma::HWY_NAMESPACE {
namespace {

// Dimensions of a score, or keys of a sum, between two requests for the next partition's lines.
constexpr std::int64_t kStep = 8;

// Vectors of queries that are scored together, and vectors of values that are summed together.
constexpr int kVectorsTogether = 2;

struct ScoreTile {
  const float* rows = nullptr;     // of the first key
  const float* queries = nullptr;  // one panel
  std::int64_t depth = 0;          // a multiple of kStep
  float* scores = nullptr;         // of the first key and query
  std::int64_t scores_stride = 0;  // from key to key
  std::int64_t lines = 0;          // asked for in each step
  std::int64_t widened = 0;        // vectors of the next rows in each step
};

template <typename T, int kKeys, int kVectors>
HWY_NOINLINE void score_tile(const ScoreTile& tile, RowWidener<T>& next, RowPrefetch& prefetch) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr FloatTag d;
  Floats sums[std::size_t{kKeys}][std::size_t{kVectors}];
  STEMMA_UNROLL
  for (int key = 0; key < kKeys; ++key) {
    STEMMA_UNROLL
    for (int v = 0; v < kVectors; ++v) sums[key][v] = hn::Zero(d);
  }
  PrefetchCursor cursor(prefetch);
  RowWidener<T> widener = next;
  const float* row = tile.rows;
  const float* q = tile.queries;
  for (std::int64_t begin = 0; begin < tile.depth; begin += kStep) {
    cursor.step(tile.lines);
    widener.step(tile.widened);
    for (std::int64_t i = 0; i < kStep; ++i, ++row, q += kVectors * kLanes) {
      Floats right[std::size_t{kVectors}];
      STEMMA_UNROLL
      for (int v = 0; v < kVectors; ++v) right[v] = hn::LoadU(d, q + v * kLanes);
      STEMMA_UNROLL
      for (int key = 0; key < kKeys; ++key) {
        const Floats left = hn::Set(d, row[key * kLatentRowFloats]);
        STEMMA_UNROLL
        for (int v = 0; v < kVectors; ++v) sums[key][v] = hn::MulAdd(left, right[v], sums[key][v]);
      }
    }
  }
  STEMMA_UNROLL
  for (int key = 0; key < kKeys; ++key) {
    STEMMA_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      hn::StoreU(sums[key][v], d, tile.scores + key * tile.scores_stride + v * kLanes);
    }
  }
  next = widener;
}

template <typename T, int kVectors>
void score_tile(std::int64_t keys, const ScoreTile& tile, RowWidener<T>& next,
                RowPrefetch& prefetch) {
  switch (keys) {
    case 1:
      return score_tile<T, 1, kVectors>(tile, next, prefetch);
    case 2:
      return score_tile<T, 2, kVectors>(tile, next, prefetch);
    case 4:
      return score_tile<T, 4, kVectors>(tile, next, prefetch);
    case 8:
      if constexpr (kTileRows > 8) return score_tile<T, 8, kVectors>(tile, next, prefetch);
      break;
    default:
      return score_tile<T, kTileRows, kVectors>(tile, next, prefetch);
  }
}

// One tile of queries and some vectors of their values: sums = kept × sums + added × partition.
struct SumTile {
  const float* weights = nullptr;   // of the first key and query
  std::int64_t weights_stride = 0;  // from key to key
  const float* rows = nullptr;      // of the first key, from the first value on
  std::int64_t keys = 0;            // all that these queries see
  float* sums = nullptr;            // of the first query, from the first value on
  std::int64_t sums_stride = 0;     // from query to query
  bool first = false;               // nothing to keep: sums are not read
  const float* kept = nullptr;      // a factor for each query
  const float* added = nullptr;     // another
  std::int64_t lines = 0;           // asked for in each step
};

template <int kQueries, int kVectors>
HWY_INLINE void fold_tile(const SumTile& tile,
                          const Floats (&sums)[std::size_t{kQueries}][std::size_t{kVectors}]) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr FloatTag d;
  STEMMA_UNROLL
  for (int query = 0; query < kQueries; ++query) {
    float* const to = tile.sums + query * tile.sums_stride;
    const Floats added = hn::Set(d, tile.added[query]);
    const Floats kept = hn::Set(d, tile.kept[query]);
    STEMMA_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const Floats before = tile.first ? hn::Zero(d) : hn::Mul(hn::LoadU(d, to + v * kLanes), kept);
      hn::StoreU(hn::MulAdd(sums[query][v], added, before), d, to + v * kLanes);
    }
  }
}

template <int kQueries, int kVectors>
HWY_NOINLINE void sum_tile(const SumTile& tile, RowPrefetch& prefetch) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr FloatTag d;
  Floats sums[std::size_t{kQueries}][std::size_t{kVectors}];
  STEMMA_UNROLL
  for (int query = 0; query < kQueries; ++query) {
    STEMMA_UNROLL
    for (int v = 0; v < kVectors; ++v) sums[query][v] = hn::Zero(d);
  }
  PrefetchCursor cursor(prefetch);
  const float* row = tile.rows;
  const float* weights = tile.weights;
  for (std::int64_t begin = 0; begin < tile.keys; begin += kStep) {
    cursor.step(tile.lines);
    const std::int64_t keys = std::min(kStep, tile.keys - begin);
    for (std::int64_t i = 0; i < keys; ++i) {
      Floats right[std::size_t{kVectors}];
      STEMMA_UNROLL
      for (int v = 0; v < kVectors; ++v) right[v] = hn::LoadU(d, row + v * kLanes);
      STEMMA_UNROLL
      for (int query = 0; query < kQueries; ++query) {
        const Floats left = hn::Set(d, weights[query]);
        STEMMA_UNROLL
        for (int v = 0; v < kVectors; ++v) {
          sums[query][v] = hn::MulAdd(left, right[v], sums[query][v]);
        }
      }
      row += kLatentRowFloats;
      weights += tile.weights_stride;
    }
  }
  fold_tile<kQueries, kVectors>(tile, sums);
}

template <int kVectors>
void sum_tile(std::int64_t queries, const SumTile& tile, RowPrefetch& prefetch) {
  switch (queries) {
    case 1:
      return sum_tile<1, kVectors>(tile, prefetch);
    case 2:
      return sum_tile<2, kVectors>(tile, prefetch);
    case 4:
      return sum_tile<4, kVectors>(tile, prefetch);
    case 8:
      if constexpr (kTileRows > 8) return sum_tile<8, kVectors>(tile, prefetch);
      break;
    default:
      return sum_tile<kTileRows, kVectors>(tile, prefetch);
  }
}

}  // namespace
}  // namespace stemma::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, once for each target
