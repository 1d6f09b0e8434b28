// What a walk over an item leaves of a row at the end of each partition: what the item has of the
// row's partitions so far, folded left to right, in the row's sum; of a row that has no other item,
// the output.
//
// Included by *_cuda.cu alone.
//
// Thread:     code of kernels.
// Memory:     sums of the device, that nobody else uses.
// Cost:       a load, a fused multiply-add and a store of every sum; no load in an item's first
//             partition.
// Not here:   sums of partitions (attention_products_cuda), sums of several items (merge_sums).
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "attention/attention_products_cuda.h"
#include "attention/attention_rows_cuda.h"
#include "attention/attention_work_cuda.h"
#include "device/cuda_dialect.h"

namespace stemma {

struct PartitionEnd {
  Pair pair;
  std::int64_t sum;
  Fold folding;
  float inverse;  // of the sum of the weights so far
  bool fresh;     // there is nothing to fold with
  bool last;      // of the item
  bool alone;     // of a row of one sum
};

// The partition that ends with `tile` is folded into what was kept of those before.
STEMMA_ON_DEVICE PartitionEnd end_partition(const AttentionParams& params,
                                            const AttentionItem& item, std::int32_t tile,
                                            const Pair& pair, const Kept& partition, Kept& kept) {
  const AttentionRow& row = row_of(params, pair.row);
  PartitionEnd end;
  end.pair = pair;
  end.sum = sum_of(params, item, row, pair);
  end.fresh = is_first_partition(item, tile);
  end.last = tile + 1 == item.end_tile;
  end.alone = row.sums == 1;
  end.folding = fold_of(kept.largest, partition.largest);
  kept = end.fresh ? partition
                   : Kept{end.folding.largest, fold(end.folding, kept.weights, partition.weights)};
  end.inverse = inverse_of(kept.weights);
  return end;
}

// Where a lane's columns lie, two neighbours at a time: in each eight, as a product leaves them; of
// products of even and of odd columns four in each sixteen.
template <bool kInFours>
STEMMA_ON_DEVICE int first_of_lane() {
  return lane_index() % 4 * (kInFours ? 4 : 2);
}
template <bool kInFours>
STEMMA_ON_DEVICE constexpr int columns_behind(int i) {
  return kInFours ? i / 2 * 16 + i % 2 * 2 : 8 * i;
}
template <bool kInFours, std::size_t kEights>
STEMMA_ON_DEVICE Two<float> two_of(const float (&o)[kEights][4], int i, int half) {
  if constexpr (kInFours) {
    const int from = 2 * half + i % 2;
    return {o[i / 2 * 2][from], o[i / 2 * 2 + 1][from]};
  } else {
    return {o[i][2 * half], o[i][2 * half + 1]};
  }
}

// The lane's twos from `to` on, of the columns that there are.
template <bool kInFours, typename T, std::size_t kCount>
STEMMA_ON_DEVICE void store_twos(T* to, int columns, const Two<float> (&two)[kCount]) {
  STEMMA_UNROLLED
  for (int i = 0; i < int{kCount}; ++i) {
    const int behind = columns_behind<kInFours>(i);
    if (behind >= columns) break;
    if constexpr (std::is_same_v<T, float>) {
      store_two(to + behind, two[i]);
    } else {
      *reinterpret_cast<std::uint32_t*>(to + behind) = narrow_pair<T>(two[i].first, two[i].second);
    }
  }
}
// Outputs of the row from `column` on.
template <bool kInFours, std::size_t kCount>
STEMMA_ON_DEVICE void end_outputs(const AttentionParams& params, const PartitionEnd& end,
                                  int column, Two<float> (&two)[kCount]) {
  STEMMA_UNROLLED
  for (Two<float>& one : two) {
    one = {output_of(one.first, end.inverse), output_of(one.second, end.inverse)};
  }
  const std::int64_t row =
      static_cast<std::int64_t>(end.pair.row) * params.query_heads + end.pair.head;
  const std::int64_t at = row * params.value_dim + column;
  const int columns = params.value_dim - column;
  switch (params.row_dtype) {
    case DType::kF32:
      return store_twos<kInFours>(static_cast<float*>(params.out) + at, columns, two);
    case DType::kF16:
      return store_twos<kInFours>(static_cast<Float16*>(params.out) + at, columns, two);
    default:
      return store_twos<kInFours>(static_cast<BFloat16*>(params.out) + at, columns, two);
  }
}

// The lane's columns among 8 kEights of the row from `first_column` on; `o` has two of each eight,
// or where they are kInFours, the even ones of each sixteen and then the odd ones. Loads of eight
// are on their way at once: behind a store none would begin.
template <bool kInFours = false, std::size_t kEights>
STEMMA_ON_DEVICE void end_columns(const AttentionParams& params, const PartitionEnd& end,
                                  const float (&o)[kEights][4], int half, int first_column) {
  constexpr int kAtOnce = kEights < 8 ? int{kEights} : 8;
  static_assert(kEights % kAtOnce == 0 && kAtOnce % 2 == 0);
  STEMMA_UNROLLED
  for (int begin = 0; begin < int{kEights}; begin += kAtOnce) {
    const int column = first_column + 8 * begin + first_of_lane<kInFours>();
    const int columns = params.value_dim - column;
    float* const values = params.sum_values + end.sum * params.value_dim + column;
    Two<float> two[std::size_t{kAtOnce}] = {};
    STEMMA_UNROLLED
    for (int i = 0; i < kAtOnce; ++i) {
      const int behind = columns_behind<kInFours>(i);
      if (!end.fresh && behind < columns) two[i] = load_two(values + behind);
    }
    STEMMA_UNROLLED
    for (int i = 0; i < kAtOnce; ++i) {
      const Two<float> now = two_of<kInFours>(o, begin + i, half);
      two[i] = end.fresh ? now
                         : Two<float>{fold(end.folding, two[i].first, now.first),
                                      fold(end.folding, two[i].second, now.second)};
    }
    if (end.last && end.alone) {
      end_outputs<kInFours>(params, end, column, two);
    } else {
      store_twos<kInFours>(values, columns, two);
    }
  }
}

// What the sum's values are to be merged with, by one lane.
STEMMA_ON_DEVICE void end_scalars(const AttentionParams& params, const PartitionEnd& end,
                                  const Kept& kept) {
  if (!end.last || end.alone || lane_index() % 4 != 0) return;
  params.sum_weights[2 * end.sum] = kept.largest;
  params.sum_weights[2 * end.sum + 1] = kept.weights;
}

}  // namespace stemma
