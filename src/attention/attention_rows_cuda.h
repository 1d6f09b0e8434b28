// Where the kernels of attention find what they read and write: the pairs of an item, the rows of
// its keys, queries, sums and outputs.
//
// Included by *_cuda.cu alone.
//
// Thread:     code of kernels.
// Memory:     of the device.
// Cost:       a few instructions each.
// Not here:   tiles in shared memory (attention_tiles_cuda).
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/attention_work_cuda.h"
#include "device/cuda_dialect.h"

namespace stemma {

inline constexpr int kPieceBytes = 16;

// ---- Where things are.

STEMMA_ON_DEVICE const AttentionHeader& header_of(const AttentionParams& params) {
  return *reinterpret_cast<const AttentionHeader*>(params.image);
}
template <typename T>
STEMMA_ON_DEVICE const T* array_of(const AttentionParams& params, std::int32_t at) {
  return reinterpret_cast<const T*>(params.image + static_cast<std::int64_t>(at) * kPieceBytes);
}

// The items of a list, and those of kChosenPairs of the wave.
struct ItemSpan {
  const AttentionItem* items;
  std::int32_t count;
};
STEMMA_ON_DEVICE ItemSpan items_of(const AttentionParams& params, int list) {
  const AttentionHeader& header = header_of(params);
  return {array_of<AttentionItem>(params, header.items_at[list]), header.items[list]};
}
STEMMA_ON_DEVICE ItemSpan chosen_items_of(const AttentionParams& params) {
  const AttentionHeader& header = header_of(params);
  if (params.wave * params.wave_choices >= header.choices) return {nullptr, 0};
  const auto* const begins = array_of<std::int32_t>(params, header.waves_at) + params.wave;
  return {array_of<AttentionItem>(params, header.items_at[kChosenPairs]) + begins[0],
          begins[1] - begins[0]};
}

// Choices that the wave has.
STEMMA_ON_DEVICE std::int32_t choices_of(const AttentionParams& params) {
  const std::int32_t left = header_of(params).choices - params.wave * params.wave_choices;
  return left < params.wave_choices ? left : params.wave_choices;
}
STEMMA_ON_DEVICE ChoosingRow choosing_row_of(const AttentionParams& params, std::int32_t choice) {
  return array_of<ChoosingRow>(
      params, header_of(params).choices_at)[params.wave * params.wave_choices + choice];
}

// The row of the batch and the query head of a pair of an item; row −1: the item has no such pair.
struct Pair {
  std::int32_t row;
  std::int32_t head;
};
STEMMA_ON_DEVICE Pair pair_of(const AttentionParams& params, const AttentionItem& item,
                              std::int32_t kv_head, std::int32_t i) {
  if (i >= item.pairs) return {-1, 0};
  const std::int32_t group = params.query_heads / params.kv_heads;
  const std::int32_t pair = item.first_pair + i;
  std::int32_t row = item.first_row + pair / group;
  if (item.run != 0) row = array_of<std::int32_t>(params, header_of(params).shared_rows_at)[row];
  return {row, kv_head * group + pair % group};
}
STEMMA_ON_DEVICE const AttentionRow& row_of(const AttentionParams& params, std::int32_t row) {
  return array_of<AttentionRow>(params, header_of(params).rows_at)[row];
}
// The sum that an item's last partition of the row leaves; row `sum` of params.sum_values.
STEMMA_ON_DEVICE std::int64_t sum_of(const AttentionParams& params, const AttentionItem& item,
                                     const AttentionRow& row, const Pair& pair) {
  const std::int32_t begin = item.first_tile / kCudaPartitionTiles;
  const std::int32_t place = begin > row.split_at ? begin - row.split_at : 0;
  return static_cast<std::int64_t>(row.first_sum + place) * params.query_heads + pair.head;
}
// Whether a tile of an item is in its first partition: there are no sums to go on from.
STEMMA_ON_DEVICE bool is_first_partition(const AttentionItem& item, int tile) {
  return tile / kCudaPartitionTiles == item.first_tile / kCudaPartitionTiles;
}
// −1, before every key, where there is no pair.
STEMMA_ON_DEVICE std::int32_t position_of(const AttentionParams& params, const Pair& pair) {
  return pair.row < 0 ? -1 : row_of(params, pair.row).position;
}

// Where a key's rows lie; page −1: there is no such key.
struct KeyPlace {
  std::int32_t page;
  std::int32_t within;
  std::int32_t kv_head;
};
STEMMA_ON_DEVICE const std::int32_t* table_of(const AttentionParams& params) {
  return array_of<std::int32_t>(params, header_of(params).table_at);
}
// Where the table has the number of a key's page, and the key's place within that. REQUIRES: there
// is such a key.
struct KeyEntry {
  std::int32_t index;
  std::int32_t within;
};
STEMMA_ON_DEVICE KeyEntry entry_of(const AttentionParams& params, const AttentionItem& item,
                                   std::int32_t key) {
  const auto size = static_cast<std::uint32_t>(params.page_size);
  const std::uint32_t page = static_cast<std::uint32_t>(key) / size;
  return {item.table_begin + static_cast<std::int32_t>(page),
          static_cast<std::int32_t>(static_cast<std::uint32_t>(key) - page * size)};
}
STEMMA_ON_DEVICE KeyPlace place_of(const AttentionParams& params, const AttentionItem& item,
                                   std::int32_t kv_head, std::int32_t key) {
  if (key >= item.keys) return {-1, 0, kv_head};
  const KeyEntry entry = entry_of(params, item, key);
  return {table_of(params)[entry.index], entry.within, kv_head};
}
// The same of a key of a choice.
STEMMA_ON_DEVICE KeyPlace chosen_place_of(const AttentionParams& params, const AttentionItem& item,
                                          std::int32_t kv_head, std::int32_t key) {
  if (key >= item.keys) return {-1, 0, kv_head};
  const std::int64_t choice = item.choice - params.wave * params.wave_choices;
  const std::int32_t slot =
      params.chosen[(choice * params.kv_heads + kv_head) * params.chosen_max + key];
  const auto size = static_cast<std::uint32_t>(params.page_size);
  const std::uint32_t page = static_cast<std::uint32_t>(slot) / size;
  return {static_cast<std::int32_t>(page),
          static_cast<std::int32_t>(static_cast<std::uint32_t>(slot) - page * size), kv_head};
}
// From k or v, in bytes; below 0: no such key.
STEMMA_ON_DEVICE std::int64_t offset_of(const AttentionParams& params, const KeyPlace& place) {
  if (place.page < 0) return -1;
  return place.page * params.page_stride + place.within * params.token_stride +
         place.kv_head * params.head_stride;
}

// Where a key's scales lie in k_scales and in v_scales; below 0: no such key.
STEMMA_ON_DEVICE std::int64_t scale_at(const AttentionParams& params, const KeyPlace& place) {
  if (place.page < 0) return -1;
  return place.page * params.scale_page_stride + place.within +
         place.kv_head * params.scale_head_stride;
}
// What a key's codes are multiplied by; 0 where there is no such key.
struct RowScales {
  float key;
  float value;
};
STEMMA_ON_DEVICE RowScales scales_of(const AttentionParams& params, const KeyPlace& place) {
  const std::int64_t at = scale_at(params, place);
  if (at < 0) return {0, 0};
  return {params.k_scales[at], params.v_scales[at]};
}

// ---- Queries and outputs, in the type that the caller has them.

STEMMA_ON_DEVICE float query_element(const AttentionParams& params, std::int64_t i) {
  switch (params.row_dtype) {
    case DType::kF32:
      return static_cast<const float*>(params.q)[i];
    case DType::kF16:
      return widen(static_cast<const Float16*>(params.q)[i]);
    default:
      return widen(static_cast<const BFloat16*>(params.q)[i]);
  }
}
template <typename T>
inline constexpr DType kDTypeOf = DType::kBF16;
template <>
inline constexpr DType kDTypeOf<Float16> = DType::kF16;

// Two neighbouring values of a sum, from an even one on.
STEMMA_ON_DEVICE Two<float> load_two(const float* from) {
  return *reinterpret_cast<const Two<float>*>(from);
}
STEMMA_ON_DEVICE void store_two(float* to, const Two<float>& two) {
  *reinterpret_cast<Two<float>*>(to) = two;
}

// Two neighbouring outputs, from an even one on.
STEMMA_ON_DEVICE void store_outputs(const AttentionParams& params, const Pair& pair, int column,
                                    float first, float second) {
  const std::int64_t at =
      (static_cast<std::int64_t>(pair.row) * params.query_heads + pair.head) * params.value_dim +
      column;
  switch (params.row_dtype) {
    case DType::kF32:
      static_cast<float*>(params.out)[at] = first;
      static_cast<float*>(params.out)[at + 1] = second;
      return;
    case DType::kF16:
      static_cast<std::uint32_t*>(params.out)[at / 2] = narrow_pair<Float16>(first, second);
      return;
    default:
      static_cast<std::uint32_t*>(params.out)[at / 2] = narrow_pair<BFloat16>(first, second);
      return;
  }
}

}  // namespace stemma
