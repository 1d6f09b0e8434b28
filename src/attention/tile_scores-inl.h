// Scores of many queries: a query in each lane, a key's elements one after another. Each score is
// the same chains and the same tree as in row_vectors-inl.h, lane after lane of them instead of
// side by side, so that its bits are those that decode gives (I13).
//
// The tree is walked leaf by leaf, in the order in which it can be folded at once: a leaf is one
// lane's chain for a whole tile of keys and queries, and what waits for its other half rests in the
// nearest cache.
//
// Included by attention_cpu.cc after Highway, once for each SIMD target; never by anything else.
#if defined(STEMMA_ATTENTION_TILE_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STEMMA_ATTENTION_TILE_SCORES_INL_H_
#undef STEMMA_ATTENTION_TILE_SCORES_INL_H_
#else
#define STEMMA_ATTENTION_TILE_SCORES_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "attention/attention_kernel.h"
#include "attention/decode_scores-inl.h"
#include "attention/row_prefetch.h"
#include "attention/row_vectors-inl.h"
#include "attention/tile_rows-inl.h"
#include "attention/transpose_words-inl.h"
#include "device/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace stemma::HWY_NAMESPACE {
namespace {

// Levels of the tree: log2 kLanes.
constexpr int levels_of(std::int64_t lanes) {
  return lanes == 1 ? 0 : 1 + levels_of(lanes / 2);
}
constexpr int kTreeLevels = levels_of(kLanes);

// The lane that each leaf is: its bits in reverse, so that half a vector is the first distance.
struct LeafLanes {
  constexpr LeafLanes() {
    for (std::int64_t leaf = 0; leaf < kLanes; ++leaf) {
      std::int64_t lane = 0;
      for (std::int64_t bit = 1; bit < kLanes; bit *= 2) lane = lane * 2 + (leaf & bit ? 1 : 0);
      lanes[leaf] = lane;
    }
  }
  std::int64_t lanes[static_cast<std::size_t>(kLanes)] = {};
};
constexpr LeafLanes kLeafLanes;

// Vectors of queries that are scored together, where there are as many.
constexpr int kPanelVectors = 2;

// Where a query stands in panels [leaves, vectors of a row, columns], the last of which may have
// columns for one vector of queries only.
struct QueryColumn {
  std::int64_t begin = 0;    // of the query's first element
  std::int64_t columns = 0;  // from one element to the next

  // The row of a panel in which the element at `place` of packed order stands.
  std::int64_t row_of(std::int64_t place, std::int64_t packed) const {
    return kLeafLanes.lanes[place % kLanes] * (packed / kLanes) + place / kLanes;
  }
};

inline QueryColumn column_of(std::int64_t query, std::int64_t query_vectors, std::int64_t packed) {
  const std::int64_t first = query / kLanes / kPanelVectors * kPanelVectors;
  const std::int64_t vectors = std::min<std::int64_t>(kPanelVectors, query_vectors - first);
  return {first * kLanes * packed + query - first * kLanes, vectors * kLanes};
}

// Rows that are about to be read are asked for once more, so many keys ahead: processors drop some
// of what is asked for while memory is busy.
constexpr std::int64_t kAskAgainKeys = 8;

// One panel and a few keys.
struct ScoreTile {
  const float* rows = nullptr;  // widened, in packed order, row_stride apart
  std::int64_t row_stride = 0;
  std::int64_t row_vectors = 0;
  const float* panel = nullptr;
  float* scores = nullptr;  // [keys, columns], scores_stride apart
  std::int64_t scores_stride = 0;
  // Rows that are asked for meanwhile, as many as there are keys, from byte asked_bytes on; null:
  // none.
  const std::byte* const* asked_or_null = nullptr;
  std::int64_t asked_bytes = 0;
  std::int64_t asked_lines = 0;  // of each
};

// Leaves that are walked together, so that they are folded in registers, and the most keys of a
// tile: all their sums fill the registers that products have.
constexpr int kLeavesTogether = kManyRegisters ? 2 : 1;
constexpr int kScoreKeys = kTileRows / kLeavesTogether;

// How many keys the next tile takes when `keys` are left.
constexpr std::int64_t tile_keys(std::int64_t keys) {
  if (keys >= kScoreKeys) return kScoreKeys;
  for (const std::int64_t size : {8, 4, 2}) {
    if (keys >= size && size < kScoreKeys) return size;
  }
  return 1;
}

// Sums of kLeavesTogether leaves.
template <int kKeys, int kVectors>
using LeafSums = Floats[std::size_t{kLeavesTogether}][std::size_t{kKeys}][std::size_t{kVectors}];

template <int kKeys, int kVectors>
HWY_INLINE void sum_leaves(const ScoreTile& tile, std::int64_t leaf,
                           LeafSums<kKeys, kVectors>& sums) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr FloatTag d;
  STEMMA_UNROLL
  for (auto& of_leaf : sums) {
    STEMMA_UNROLL
    for (auto& of_key : of_leaf) {
      STEMMA_UNROLL
      for (Floats& sum : of_key) sum = hn::Zero(d);
    }
  }
  const std::int64_t leaf_floats = tile.row_vectors * kVectors * kLanes;
  const float* q = tile.panel + leaf * leaf_floats;
  const float* element = tile.rows + kLeafLanes.lanes[leaf];
  for (std::int64_t i = 0; i < tile.row_vectors; ++i, element += kLanes, q += kVectors * kLanes) {
    STEMMA_UNROLL
    for (int j = 0; j < kLeavesTogether; ++j) {
      Floats right[std::size_t{kVectors}];
      STEMMA_UNROLL
      for (int v = 0; v < kVectors; ++v) right[v] = hn::LoadU(d, q + j * leaf_floats + v * kLanes);
      STEMMA_UNROLL
      for (int key = 0; key < kKeys; ++key) {
        const Floats left = hn::Set(d, element[key * tile.row_stride + kLeafLanes.lanes[j]]);
        STEMMA_UNROLL
        for (int v = 0; v < kVectors; ++v) {
          sums[j][key][v] = hn::MulAdd(left, right[v], sums[j][key][v]);
        }
      }
    }
  }
  STEMMA_UNROLL
  for (int step = 1; step < kLeavesTogether; step *= 2) {
    STEMMA_UNROLL
    for (int j = 0; j < kLeavesTogether; j += 2 * step) {
      STEMMA_UNROLL
      for (int key = 0; key < kKeys; ++key) {
        STEMMA_UNROLL
        for (int v = 0; v < kVectors; ++v) {
          sums[j][key][v] = hn::Add(sums[j][key][v], sums[j + step][key][v]);
        }
      }
    }
  }
}

template <int kKeys, int kVectors>
HWY_NOINLINE void score_tile(const ScoreTile& tile) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr FloatTag d;
  constexpr std::int64_t kSums = kKeys * kVectors;
  HWY_ALIGN float waiting[static_cast<std::size_t>(std::max(kTreeLevels, 1) * kSums * kLanes)];
  constexpr std::int64_t kGroups = kLanes / kLeavesTogether;
  for (std::int64_t group = 0; group < kGroups; ++group) {
    for (std::int64_t line = group; line < tile.asked_lines; line += kGroups) {
      STEMMA_UNROLL
      for (int key = 0; key < kKeys; ++key) {
        __builtin_prefetch(tile.asked_or_null[key] + tile.asked_bytes + line * kLineBytes, 0, 2);
      }
    }
    LeafSums<kKeys, kVectors> leaves;
    sum_leaves<kKeys, kVectors>(tile, group * kLeavesTogether, leaves);
    auto& sums = leaves[0];
    // Every one bit at the end of `group` is a half that was waiting for this one.
    float* level = waiting;
    for (std::int64_t bits = group; (bits & 1) != 0; bits /= 2, level += kSums * kLanes) {
      STEMMA_UNROLL
      for (int key = 0; key < kKeys; ++key) {
        STEMMA_UNROLL
        for (int v = 0; v < kVectors; ++v) {
          const Floats first = hn::Load(d, level + (key * kVectors + v) * kLanes);
          sums[key][v] = hn::Add(first, sums[key][v]);
        }
      }
    }
    const bool root = group + 1 == kGroups;
    float* const to = root ? tile.scores : level;
    const std::int64_t stride = root ? tile.scores_stride : kVectors * kLanes;
    STEMMA_UNROLL
    for (int key = 0; key < kKeys; ++key) {
      STEMMA_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        hn::StoreU(sums[key][v], d, to + key * stride + v * kLanes);
      }
    }
  }
}

template <int kVectors>
void score_tile(std::int64_t keys, const ScoreTile& tile) {
  switch (keys) {
    case 1:
      return score_tile<1, kVectors>(tile);
    case 2:
      if constexpr (kScoreKeys > 2) return score_tile<2, kVectors>(tile);
      break;
    case 4:
      if constexpr (kScoreKeys > 4) return score_tile<4, kVectors>(tile);
      break;
    case 8:
      if constexpr (kScoreKeys > 8) return score_tile<8, kVectors>(tile);
      break;
    default:
      break;
  }
  score_tile<kScoreKeys, kVectors>(tile);
}

// Rows of K, widened and in packed order: from byte head_bytes of the rows on. Each is asked for
// once more before.   [keys, widened_row]
template <typename T>
void widen_keys(const std::byte* const* rows, std::int64_t head_bytes, std::int64_t head_dim,
                std::int64_t keys, float* to) {
  namespace hn = hwy::HWY_NAMESPACE;
  using Row = RowVectors<T>;
  const std::int64_t packed = Row::packed(head_dim);
  const std::int64_t whole = round_down(head_dim, Row::kDims);
  for (std::int64_t key = 0; key < keys; ++key, to += widened_row(head_dim)) {
    const T* const row = reinterpret_cast<const T*>(rows[key] + head_bytes);
    const T* const again = reinterpret_cast<const T*>(rows[key + kAskAgainKeys] + head_bytes);
    Floats vectors[std::size_t{Row::kVectors}];
    const auto put = [&](std::int64_t dim) HWY_ATTR {
      STEMMA_UNROLL
      for (int v = 0; v < Row::kVectors; ++v) {
        hn::StoreU(vectors[v], FloatTag(), to + dim + v * kLanes);
      }
    };
    std::int64_t dim = 0;
    for (; dim < whole; dim += Row::kDims) {
      __builtin_prefetch(again + dim, 0, 2);
      Row::load(row + dim, vectors);
      put(dim);
    }
    if (dim < head_dim) {
      Row::load_some(row + dim, head_dim - dim, vectors);
      put(dim);
      dim += Row::kDims;
    }
    std::fill(to + dim, to + packed, 0.0f);
  }
}

// Rows of V, widened, dimensions in their own order.   [keys, widened_row]
template <typename T>
void widen_values(const std::byte* const* rows, std::int64_t head_bytes, std::int64_t head_dim,
                  std::int64_t keys, float* to) {
  namespace hn = hwy::HWY_NAMESPACE;
  const std::int64_t whole = round_down(head_dim, kLanes);
  for (std::int64_t key = 0; key < keys; ++key, to += widened_row(head_dim)) {
    const T* const row = reinterpret_cast<const T*>(rows[key] + head_bytes);
    for (std::int64_t dim = 0; dim < whole; dim += kLanes) {
      hn::StoreU(load_f32(FloatTag(), row + dim), FloatTag(), to + dim);
    }
    if (kLanes > 8 && whole < head_dim) {  // half a vector: head_dim is a multiple of 8
      const hn::Half<FloatTag> half;
      hn::StoreU(load_f32(half, row + whole), half, to + whole);
    }
  }
}

// scores[query][key] = key_scores[key][query], for kLanes keys from `key` on and whole steps of
// queries.
HWY_INLINE void turn_scores(const float* key_scores, std::int64_t stride, std::int64_t key,
                            std::int64_t queries, float* scores) {
  namespace hn = hwy::HWY_NAMESPACE;
  const float* rows[static_cast<std::size_t>(kLanes)];
  for (std::int64_t lane = 0; lane < kLanes; ++lane)
    rows[lane] = key_scores + (key + lane) * stride;
  for (std::int64_t query = 0; query < queries; query += 4) {
    Words words[4];
    load_words(rows, query, words);
    STEMMA_UNROLL
    for (std::int64_t i = 0; i < 4; ++i) {
      if (query + i < queries) {
        hn::StoreU(hn::BitCast(FloatTag(), words[i]), FloatTag(),
                   scores + (query + i) * kPartitionKeys + key);
      }
    }
  }
}

}  // namespace
}  // namespace stemma::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, once for each target
