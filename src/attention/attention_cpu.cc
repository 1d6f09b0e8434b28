// The attention kernel. Written from the definition; the reference twin is reference_attention.cc.
//
// A row of K is spread over vectors of lanes (row_vectors-inl.h). For each query by itself:
//
//   score[key]   = the sum over lanes, in a fixed tree, of the sum over the row's vectors, in
//   order,
//                  of q[vector][lane] × k[key][vector][lane]
//                  capped where the model does that; −∞ before the query's window
//   weight[key]  = 2^(score − max), max and sum over the partition's keys <= its position
//   value[dim]   = sum over those keys, in order, of weight[key] × v[key][dim]   one lane a dim
//
// K and V are read as they lie (decode_scores-inl.h, decode_sums-inl.h); but of many queries K is
// widened once and met by all of them (tile_scores-inl.h). Of a scaled dtype k and v are codes: a
// finished score is multiplied by its key's scale, a weight, once summed, by its value's.
//
// The partition's (value, max, sum) is folded into what the earlier ones gave. No step depends on
// how many queries were computed together, on the page size or on where pages lie (I13). Keys
// beyond the query's position are never multiplied into anything it keeps.
#include <algorithm>
#include <cstring>
#include <limits>

#include "attention/attention_kernel.h"
#include "attention/task_keys.h"
#include "device/simd_targets.h"  // before Highway

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/attention_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "attention/decode_scores-inl.h"
#include "attention/decode_sums-inl.h"
#include "attention/key_scales-inl.h"
#include "attention/online_softmax-inl.h"
#include "attention/part-inl.h"
#include "attention/row_vectors-inl.h"
#include "attention/task_queries-inl.h"
#include "attention/tile_rows-inl.h"
#include "attention/tile_scores-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stemma::HWY_NAMESPACE {
namespace {

float* scores_of(const Work& work, std::int64_t query) {
  return work.scratch.scores + query * kPartitionKeys;
}

// Scores of a panel of one head's queries, those from `vector` on, up to the last key that one of
// them sees.
template <int kVectors>
void score_panel(const Work& work, const Part& part, const PartRows& rows, std::int64_t head,
                 std::int64_t vector) {
  const std::int64_t first = vector * kLanes;
  const std::int64_t end = std::min(work.queries, first + kVectors * kLanes);
  const std::int64_t seen = keys_seen(work, part, end - 1);
  ScoreTile tile;
  tile.row_stride = widened_row(work.head_dim);
  tile.row_vectors = work.packed / kLanes;
  tile.panel = scaled_queries(work, head) + first * work.packed;
  tile.scores_stride = kPanelColumnsMax;
  tile.asked_bytes = head * part.head_bytes;
  tile.asked_lines = vector == 0 ? ceil_div(part.row_bytes, kLineBytes) : 0;
  for (std::int64_t key = 0; key < seen;) {
    const std::int64_t keys = tile_keys(seen - key);
    tile.rows = work.scratch.keys + key * tile.row_stride;
    tile.scores = work.scratch.key_scores + key * kPanelColumnsMax;
    tile.asked_or_null = rows.v + key;
    score_tile<kVectors>(keys, tile);
    key += keys;
  }
  for (std::int64_t key = 0; key < seen; key += kLanes) {
    turn_scores(work.scratch.key_scores, kPanelColumnsMax, key, end - first,
                scores_of(work, head * work.queries + first));
  }
}

void score_queries(const Work& work, const Part& part, const PartRows& rows, std::int64_t head) {
  std::int64_t vector = 0;
  for (; vector + kPanelVectors <= work.query_vectors; vector += kPanelVectors) {
    score_panel<kPanelVectors>(work, part, rows, head, vector);
  }
  if (vector < work.query_vectors) score_panel<1>(work, part, rows, head, vector);
}

// A few queries of one head that follow each other, from `query` on.
struct SumTile {
  std::int64_t head = 0;
  std::int64_t query = 0;
  std::int64_t queries = 0;
};

struct KeyRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool first = false;  // sums begin there, and not where they are
};

// V of one head as it is read, and K of the next head, or of the next partition's first.
struct HeadRows {
  const std::byte* const* v = nullptr;
  std::int64_t v_bytes = 0;  // from a row's begin
  const std::byte* const* next_k = nullptr;
  std::int64_t next_k_bytes = 0;
};

// Adds up V of some keys for all queries of a tile. The head's first tile asks for what is read
// next.
template <typename T>
void sum_keys(const Work& work, const Part& part, const HeadRows& rows, const SumTile& tile,
              const KeyRange& range) {
  if (range.begin >= range.end) return;
  ValueKeys keys;
  keys.begins = rows.v + range.begin;
  keys.first_time = rows.next_k + range.begin;
  keys.again = rows.v + range.begin + kAskAgainKeys;
  keys.keys = range.end - range.begin;
  keys.first = range.first;
  keys.head_bytes = rows.v_bytes;
  keys.first_time_bytes = rows.next_k_bytes;
  keys.again_bytes = rows.v_bytes;
  keys.head_dim = work.head_dim;
  keys.queries = tile.queries;
  const std::int64_t place = tile.head * work.queries + tile.query;
  const float* const weights = scores_of(work, place) + range.begin;
  float* const sums = part.sums + place * work.partial;
  if (tile.query == first_query(work, part)) {
    sum_row<T, ValueAsks::kNear>(keys, weights, sums);
  } else {
    sum_row<T, ValueAsks::kNothing>(keys, weights, sums);
  }
}

// Of a few rows with windows: what each sees before all of them see the same, what all see, and the
// rest of each. A key outside a row's window never meets its sums, whatever its value.
template <typename T>
void sum_windows(const Work& work, const Part& part, const HeadRows& rows, const SumTile& tile) {
  const std::int64_t last = tile.query + tile.queries - 1;
  const std::int64_t common_begin = keys_unseen(work, part, last);
  const std::int64_t common_end = std::max(common_begin, keys_seen(work, part, tile.query));
  const auto one = [&](std::int64_t query) { return SumTile{tile.head, query, 1}; };
  for (std::int64_t query = tile.query; query <= last; ++query) {
    float* const sums = part.sums + (tile.head * work.queries + query) * work.partial;
    std::fill_n(sums, work.columns, 0.0f);
    const std::int64_t seen = keys_seen(work, part, query);
    sum_keys<T>(work, part, rows, one(query),
                {keys_unseen(work, part, query), std::min(common_begin, seen)});
  }
  sum_keys<T>(work, part, rows, tile, {common_begin, common_end});
  for (std::int64_t query = tile.query; query <= last; ++query) {
    const std::int64_t begin = std::max(common_end, keys_unseen(work, part, query));
    sum_keys<T>(work, part, rows, one(query), {begin, keys_seen(work, part, query)});
  }
}

// One head: all of a tile's queries up to the keys that the first one sees, then the rest of each
// by itself.
template <typename T>
void sum_queries(const Work& work, const Part& part, const HeadRows& rows, std::int64_t head) {
  const std::int64_t end = end_query(work, part);
  for (std::int64_t query = first_query(work, part); query < end;) {
    const SumTile tile = {head, query, tile_rows(end - query)};
    query += tile.queries;
    if (work.task.shape->window_tokens > 0) {
      sum_windows<T>(work, part, rows, tile);
      continue;
    }
    const std::int64_t common = keys_seen(work, part, tile.query);
    sum_keys<T>(work, part, rows, tile, {0, common, true});
    for (std::int64_t one = tile.query; one < query; ++one) {
      sum_keys<T>(work, part, rows, {head, one, 1}, {common, keys_seen(work, part, one)});
    }
  }
}

// Whether scores weigh otherwise than as they are: capped, or of keys before the query's window.
bool adjusts(const Work& work, const Part& part, std::int64_t query) {
  return work.task.shape->score_cap > 0 || keys_unseen(work, part, query) > 0;
}

void adjust_scores(const Work& work, const Part& part, std::int64_t query, float* scores) {
  const AttentionShape& shape = *work.task.shape;
  if (shape.score_cap > 0) cap_scores(scores, shape.score_cap * kLog2E);
  const std::int64_t unseen = keys_unseen(work, part, query);
  std::fill_n(scores, unseen, -std::numeric_limits<float>::infinity());
}

// Those of one head of the task; the next partition's are asked for.
void gather_scales(const Work& work, const Part& part, std::int64_t head, SideScales& scales) {
  const AttentionTask& task = work.task;
  const std::int64_t first = (task.first_kv_head + head) * task.layer->scale_head_stride;
  const std::int64_t partition = part.first_key / kPartitionKeys;
  KeyScales::ask_for(task, partition + 1, task.layer->k_scales + first, head == 0);
  KeyScales::ask_for(task, partition + 1, task.layer->v_scales + first, head == 0);
  scales.k.gather(task, partition, task.layer->k_scales + first, work.factors.k_scale);
  scales.v.gather(task, partition, task.layer->v_scales + first, work.factors.v_scale);
}

// Scores of one head become weights.
template <bool kScaled>
void weigh_keys_of(const Work& work, const Part& part, std::int64_t head) {
  const std::int64_t end = end_query(work, part);
  SideScales scales;
  if (kScaled) gather_scales(work, part, head, scales);
  const ScoreScales of_scores = {scales.k.begin(), scales.v.begin()};
  for (std::int64_t query = first_query(work, part); query < end; ++query) {
    const std::int64_t place = head * work.queries + query;
    float* const scores = scores_of(work, place);
    const std::int64_t keys = keys_seen(work, part, query);
    float* const max_and_sum = part.sums + place * work.partial + work.columns;
    if (!adjusts(work, part, query)) {
      softmax_partition<kScaled, kScaled>(scores, keys, of_scores, max_and_sum);
      continue;
    }
    if (kScaled) scales.k.apply(scores, keys);
    adjust_scores(work, part, query, scores);
    softmax_partition<false, kScaled>(scores, keys, of_scores, max_and_sum);
  }
}

void weigh_keys(const Work& work, const Part& part, std::int64_t head) {
  if (work.scaled) return weigh_keys_of<true>(work, part, head);
  weigh_keys_of<false>(work, part, head);
}

// Many queries: a head's K is widened for all of them, and its V, if widening it costs much.
template <typename T>
void attend_tile(const Work& work, const Part& part, const PartRows& rows, std::int64_t head) {
  const std::int64_t head_bytes = head * part.head_bytes;
  const bool last_head = head + 1 == work.task.kv_heads;
  widen_keys<T>(rows.k, head_bytes, work.head_dim, part.keys, work.scratch.keys);
  score_queries(work, part, rows, head);
  weigh_keys(work, part, head);
  HeadRows values = {rows.v, head_bytes, last_head ? rows.next_k : rows.k,
                     last_head ? 0 : head_bytes + part.head_bytes};
  if constexpr (sizeof(T) == 1) {
    // What is asked for with each line of f32 lies four times as far in rows of codes: those of the
    // heads after the next one are among it.
    widen_values<T>(rows.v, head_bytes, work.head_dim, part.keys, work.scratch.values);
    values.v = rows.widened_v;
    values.v_bytes = 0;
    sum_queries<float>(work, part, values, head);
  } else {
    sum_queries<T>(work, part, values, head);
  }
}

// Of a row of all heads of the task.
std::int64_t row_bytes_of(const Work& work, const Part& part) {
  return (work.task.kv_heads - 1) * part.head_bytes + part.row_bytes;
}

// One stretch of keys, all heads, after another.
template <typename T>
void score_decode_row(const Work& work, const Part& part, const DecodeRows& rows) {
  const DecodePace pace = DecodePace::of(work.queries);
  HeadKeys keys;
  keys.next_head_bytes = part.head_bytes;
  keys.head_dim = work.head_dim;
  keys.queries = work.queries;
  for (std::int64_t key = 0; key < part.keys; key += pace.keys) {
    keys.begins = rows.begins + key;
    keys.later = rows.later + key;
    keys.first_time = rows.first_time;
    keys.keys = std::min(pace.keys, part.keys - key);
    for (std::int64_t head = 0; head < work.task.kv_heads;) {
      keys.head_bytes = head * part.head_bytes;
      head += score_heads<T>(keys, work.task.kv_heads - head, scaled_queries(work, head),
                             scores_of(work, head * work.queries) + key);
    }
  }
}

// A head's queries, some at a time; the first ones ask for what is read later.
template <typename T>
void sum_decode_head(const Work& work, const Part& part, std::int64_t head, std::int64_t key,
                     ValueKeys& keys) {
  keys.head_bytes = head * part.head_bytes;
  keys.first_time_bytes = keys.head_bytes;
  keys.again_bytes = keys.head_bytes;
  for (std::int64_t query = 0; query < work.queries; query += keys.queries) {
    keys.queries = std::min<std::int64_t>(kDecodeSumQueries, work.queries - query);
    const std::int64_t place = head * work.queries + query;
    const float* const weights = scores_of(work, place) + key;
    float* const sums = part.sums + place * work.partial;
    if (query == 0) {
      sum_row<T, ValueAsks::kFar>(keys, weights, sums);
    } else {
      sum_row<T, ValueAsks::kNothing>(keys, weights, sums);
    }
  }
}

// From the first key in the row's window on: the row that stands for those before it would weigh 0,
// and 0 times infinity is no number.
template <typename T>
void sum_decode_row(const Work& work, const Part& part, const DecodeRows& rows) {
  const DecodePace pace = DecodePace::of(work.queries);
  const std::int64_t first = keys_unseen(work, part, 0);
  ValueKeys keys;
  keys.head_dim = work.head_dim;
  for (std::int64_t key = first; key < part.keys; key += pace.keys) {
    keys.begins = rows.begins + key;
    keys.first_time = rows.later + rows.first_time + key;
    keys.again = rows.later + key;
    keys.keys = std::min(pace.keys, part.keys - key);
    keys.first = key == first;
    for (std::int64_t head = 0; head < work.task.kv_heads; ++head) {
      sum_decode_head<T>(work, part, head, key, keys);
    }
  }
}

template <typename T>
void attend_decode_row(const Work& work, const Part& part) {
  const DecodeRows::Source k_rows = {part.k, part.offsets, part.keys};
  const DecodeRows::Source v_rows = {part.v, part.offsets, part.keys};
  const DecodePace pace = DecodePace::of(work.queries);
  const DecodeRows k(k_rows, v_rows, pace);
  const DecodeRows v(v_rows, {part.k, part.next_offsets, part.next_keys}, pace);
  score_decode_row<T>(work, part, k);
  for (std::int64_t head = 0; head < work.task.kv_heads; ++head) {
    weigh_keys(work, part, head);
  }
  sum_decode_row<T>(work, part, v);
}

// Nothing was computed during which a task's first stretch of K could have been asked for.
void ask_for_first_stretch(const Work& work, const Part& part) {
  RowPrefetch rows = {part.k, part.offsets, std::min(part.keys, kAheadKeysMax),
                      row_bytes_of(work, part)};
  PrefetchCursor(rows).step(rows.rows * ceil_div(rows.row_bytes, kLineBytes));
}

// The rest of the factor of codes, of sums that others merge.
void finish_sums(const Work& work, const Part& part) {
  const std::int64_t end = end_query(work, part);
  for (std::int64_t head = 0; head < work.task.kv_heads; ++head) {
    for (std::int64_t query = first_query(work, part); query < end; ++query) {
      multiply_sums(part.sums + (head * work.queries + query) * work.partial, work.columns,
                    work.factors.sum);
    }
  }
}

template <typename T>
void attend_part(const Work& work, const Part& part) {
  if (decodes(work)) {
    attend_decode_row<T>(work, part);
  } else {
    const PartRows rows(work, part);
    for (std::int64_t head = 0; head < work.task.kv_heads; ++head) {
      attend_tile<T>(work, part, rows, head);
    }
  }
}

void merge_part(const Work& work, const Part& part) {
  const std::int64_t end = end_query(work, part);
  for (std::int64_t head = 0; head < work.task.kv_heads; ++head) {
    for (std::int64_t query = first_query(work, part); query < end; ++query) {
      const std::int64_t place = (head * work.queries + query) * work.partial;
      merge_sums(work.scratch.sums + place, part.sums + place, work.columns, work.factors.sum);
    }
  }
}

template <typename T>
void attend_partitions(const Work& work) {
  const AttentionTask& task = work.task;
  const KvLayerView& layer = *task.layer;
  Part part;
  part.head_bytes = layer.head_stride * work.element_bytes;
  part.row_bytes = work.head_dim * work.element_bytes;
  part.k = static_cast<const std::byte*>(layer.k) + task.first_kv_head * part.head_bytes;
  part.v = static_cast<const std::byte*>(layer.v) + task.first_kv_head * part.head_bytes;
  std::int64_t* offsets = work.scratch.offsets;
  std::int64_t* next_offsets = offsets + kPartitionKeys;
  locate_keys(task, task.first_partition, offsets);
  for (std::int64_t i = 0; i < task.partitions; ++i) {
    const std::int64_t partition = task.first_partition + i;
    locate_keys(task, partition + 1, next_offsets);
    part.offsets = offsets;
    part.next_offsets = next_offsets;
    part.first_key = partition * kPartitionKeys;
    part.keys = keys_in(task, partition);
    part.next_keys = keys_in(task, partition + 1);
    if (i == 0 && decodes(work)) ask_for_first_stretch(work, part);
    if (task.partials_or_null != nullptr) {
      part.sums = task.partials_or_null + i * work.queries * work.partial;
      attend_part<T>(work, part);
      if (work.factors.sum != 1) finish_sums(work, part);
    } else {
      part.sums = work.scratch.partition_sums;
      attend_part<T>(work, part);
      merge_part(work, part);
    }
    std::swap(offsets, next_offsets);
  }
}

template <typename T>
void attend_as(const AttentionTask& task, const AttentionScratch& scratch) {
  const Work work = work_of<T>(task, scratch);
  scale_queries<T>(work);
  begin_sums(work);
  attend_partitions<T>(work);
  if (task.partials_or_null == nullptr) end_sums(work);
}

}  // namespace

void attend(const AttentionTask& task, const AttentionScratch& scratch) {
  switch (task.layer->dtype) {
    case DType::kF32:
      return attend_as<float>(task, scratch);
    case DType::kF16:
      return attend_as<Float16>(task, scratch);
    case DType::kBF16:
      return attend_as<BFloat16>(task, scratch);
    case DType::kFp8E4M3:
      return attend_as<Float8E4M3>(task, scratch);
    case DType::kFp8E5M2:
      return attend_as<Float8E5M2>(task, scratch);
    case DType::kInt8:
      return attend_as<std::int8_t>(task, scratch);
  }
}

void merge_sections(const MergeTask& task) {
  const std::int64_t value_dim = task.shape->value_dim();
  const std::int64_t columns = padded_columns(value_dim);
  if (task.before_or_null == nullptr) {
    clear_sums(task.sums, columns);
  } else {
    std::copy_n(task.before_or_null, partial_floats(value_dim), task.sums);
  }
  for (std::int64_t section = 0; section < task.sections; ++section) {
    merge_sums(task.sums, task.partials + section * task.partials_stride, columns);
  }
  divide_sums(task.sums, value_dim, task.out);
}

}  // namespace stemma::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stemma {

HWY_EXPORT(attend);
HWY_EXPORT(merge_sections);

AttentionKernels attention_kernels() {
  return {&HWY_DYNAMIC_DISPATCH(attend), &HWY_DYNAMIC_DISPATCH(merge_sections)};
}

}  // namespace stemma
#endif  // HWY_ONCE
