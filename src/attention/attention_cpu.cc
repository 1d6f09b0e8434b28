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
// Few queries read K and V as they lie (decode_scores-inl.h, decode_sums-inl.h); for many a
// partition's rows are widened once and met by all of them (tile_scores-inl.h,
// multiply_panels-inl.h). Of a scaled dtype k and v are codes: a finished score is multiplied by
// its key's scale, a weight, once summed, by its value's.
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
#include "attention/multiply_panels-inl.h"
#include "attention/online_softmax-inl.h"
#include "attention/pack_kv-inl.h"
#include "attention/row_vectors-inl.h"
#include "attention/task_queries-inl.h"
#include "attention/tile_scores-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stemma::HWY_NAMESPACE {
namespace {

// One partition, for all KV heads of the task. Queries are counted over all heads: those of head h
// begin at h × queries.
struct Part {
  const std::byte* k = nullptr;  // row of (page 0, offset 0, the task's first head)
  const std::byte* v = nullptr;
  const std::int64_t* offsets = nullptr;
  const std::int64_t* next_offsets = nullptr;  // of the next partition
  std::int64_t first_key = 0;
  std::int64_t keys = 0;  // up to the last row's position
  std::int64_t next_keys = 0;
  std::int64_t head_bytes = 0;  // from one head's row to the next one's
  std::int64_t row_bytes = 0;   // of one head
  float* sums = nullptr;        // what the partition gives   [kv_heads × queries, partial]
};

// Keys of the partition that a query of a head sees; <= 0 if its row lies before it.
std::int64_t keys_seen(const Work& work, const Part& part, std::int64_t query) {
  const std::int64_t position = work.task.first_position + query / work.group;
  return std::min(part.keys, position + 1 - part.first_key);
}

// A head's first query that reaches the partition.
std::int64_t first_query(const Work& work, const Part& part) {
  return work.group * std::max<std::int64_t>(0, part.first_key - work.task.first_position);
}

// A head's first query whose window lies behind the partition.
std::int64_t end_query(const Work& work, const Part& part) {
  const std::int64_t window = work.task.shape->window_tokens;
  if (window == 0) return work.queries;
  const std::int64_t rows = part.first_key + part.keys + window - 1 - work.task.first_position;
  return std::clamp<std::int64_t>(rows * work.group, 0, work.queries);
}

// Keys of the partition that lie before a query's window.
std::int64_t keys_unseen(const Work& work, const Part& part, std::int64_t query) {
  const std::int64_t position = work.task.first_position + query / work.group;
  return std::clamp<std::int64_t>(work.task.shape->first_seen(position) - part.first_key, 0,
                                  part.keys);
}

float* scores_of(const Work& work, std::int64_t query) {
  return work.scratch.scores + query * kPartitionKeys;
}

// Lines of V that are asked for with each few leaves, so that half of them are while keys are
// scored: the other half was while they were widened.
std::int64_t score_lines(const Work& work, const Part& part) {
  const std::int64_t lines = part.keys * ceil_div(part.row_bytes, 2 * kLineBytes);
  const std::int64_t tiles = ceil_div<std::int64_t>(part.keys, kScoreKeys) *
                             ceil_div<std::int64_t>(work.query_vectors, kPanelVectors);
  return ceil_div(lines, tiles * kLanes / kLeavesTogether);
}

// Scores of a panel of one head's queries, those from `vector` on, up to the last key that one of
// them sees.
template <int kVectors>
void score_panel(const Work& work, const Part& part, std::int64_t head, std::int64_t vector,
                 RowPrefetch& prefetch) {
  const std::int64_t first = vector * kLanes;
  const std::int64_t end = std::min(work.queries, first + kVectors * kLanes);
  const std::int64_t seen = keys_seen(work, part, end - 1);
  ScoreTile tile;
  tile.row_stride = widened_row(work.head_dim);
  tile.row_vectors = work.packed / kLanes;
  tile.panel = scaled_queries(work, head) + first * work.packed;
  tile.scores_stride = kPanelColumnsMax;
  tile.lines = score_lines(work, part);
  for (std::int64_t key = 0; key < seen;) {
    const std::int64_t keys = tile_keys(seen - key);
    tile.rows = work.scratch.keys + key * tile.row_stride;
    tile.scores = work.scratch.key_scores + key * kPanelColumnsMax;
    score_tile<kVectors>(keys, tile, prefetch);
    key += keys;
  }
  for (std::int64_t key = 0; key < seen; key += kLanes) {
    turn_scores(work.scratch.key_scores, kPanelColumnsMax, key, end - first,
                scores_of(work, head * work.queries + first));
  }
}

void score_queries(const Work& work, const Part& part, std::int64_t head, RowPrefetch& prefetch) {
  std::int64_t vector = 0;
  for (; vector + kPanelVectors <= work.query_vectors; vector += kPanelVectors) {
    score_panel<kPanelVectors>(work, part, head, vector, prefetch);
  }
  if (vector < work.query_vectors) score_panel<1>(work, part, head, vector, prefetch);
}

// Of a few rows with windows: what each sees before all of them see the same, what all see, and the
// rest of each. A key outside a row's window never meets its sums, whatever its value.
void sum_windows(const Work& work, const Part& part, std::int64_t query, std::int64_t rows,
                 PanelProduct product, RowPrefetch& prefetch) {
  const std::int64_t common_begin = keys_unseen(work, part, query + rows - 1);
  const std::int64_t common_end = std::max(common_begin, keys_seen(work, part, query));
  const auto sum_alone = [&](std::int64_t begin, std::int64_t end, std::int64_t row) {
    PanelProduct one = product;
    one.a += row * product.a_stride;
    one.c += row * product.c_stride;
    one.first_k = begin;
    one.depth = end;
    if (begin < end) multiply(1, one, prefetch);
  };
  product.continues = true;
  for (std::int64_t row = 0; row < rows; ++row) {
    std::fill_n(product.c + row * product.c_stride, product.panels * kPanelColumns, 0.0f);
    const std::int64_t seen = keys_seen(work, part, query + row);
    sum_alone(keys_unseen(work, part, query + row), std::min(common_begin, seen), row);
  }
  product.first_k = common_begin;
  product.depth = common_end;
  if (common_begin < common_end) multiply(rows, product, prefetch);
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t seen = keys_seen(work, part, query + row);
    sum_alone(std::max(common_end, keys_unseen(work, part, query + row)), seen, row);
  }
}

// The slice of dimensions from `first_column` on, for one head: all of a tile's rows up to the keys
// that the first one sees, then the rest of each by itself.
void sum_slice(const Work& work, const Part& part, std::int64_t head, std::int64_t first_column,
               RowPrefetch& prefetch) {
  PanelProduct product;
  product.a_stride = kPartitionKeys;
  product.b = work.scratch.values;
  product.b_stride = kPartitionKeys * kPanelColumns;
  product.c_stride = work.partial;
  product.panels = ceil_div(std::min(kSliceColumns, work.head_dim - first_column), kPanelColumns);
  const std::int64_t end = end_query(work, part);
  for (std::int64_t query = first_query(work, part); query < end;) {
    const std::int64_t rows = tile_rows(end - query);
    const std::int64_t common_keys = keys_seen(work, part, query);
    product.a = scores_of(work, head * work.queries + query);
    product.c = part.sums + (head * work.queries + query) * work.partial + first_column;
    product.first_k = 0;
    if (work.task.shape->window_tokens > 0) {
      sum_windows(work, part, query, rows, product, prefetch);
      query += rows;
      continue;
    }
    product.depth = common_keys;
    multiply(rows, product, prefetch);
    product.first_k = common_keys;
    for (std::int64_t row = 0; row < rows; ++row) {
      product.depth = keys_seen(work, part, query + row);
      if (product.depth > common_keys) multiply(1, product, prefetch);
      product.a += product.a_stride;
      product.c += product.c_stride;
    }
    query += rows;
  }
}

// Scores that weigh otherwise than as they are: capped, or of keys before the query's window.
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
void weigh_keys(const Work& work, const Part& part, std::int64_t head) {
  const std::int64_t end = end_query(work, part);
  SideScales scales;
  if (work.scaled) gather_scales(work, part, head, scales);
  for (std::int64_t query = first_query(work, part); query < end; ++query) {
    const std::int64_t place = head * work.queries + query;
    float* const scores = scores_of(work, place);
    const std::int64_t keys = keys_seen(work, part, query);
    if (work.scaled) scales.k.apply(scores, keys);
    adjust_scores(work, part, query, scores);
    float* const max_and_sum = part.sums + place * work.partial + work.columns;
    softmax_partition(scores, keys, max_and_sum, max_and_sum + 1);
    if (work.scaled) scales.v.apply(scores, keys);
  }
}

// Processors drop some of what is asked for while memory is busy: rows that are about to be read
// are asked for once more.
void ask_again(RowPrefetch rows) {
  const std::int64_t lines =
      round_up(rows.rows, std::int64_t{2}) * ceil_div(rows.row_bytes, kLineBytes);
  PrefetchCursor(rows).step(lines);
}

// Many queries: a head's K and V are widened for all of them.
template <typename T>
void attend_tile(const Work& work, const Part& part, std::int64_t head) {
  const std::byte* const k = part.k + head * part.head_bytes;
  const std::byte* const v = part.v + head * part.head_bytes;
  const RowPrefetch rows_v = {v, part.offsets, part.keys, part.row_bytes};
  RowPrefetch prefetch_v = rows_v;
  widen_keys<T>({k, part.offsets, work.head_dim}, part.keys, work.scratch.keys, prefetch_v);
  score_queries(work, part, head, prefetch_v);
  ask_again(rows_v);
  weigh_keys(work, part, head);
  const bool last_head = head + 1 == work.task.kv_heads;
  const RowPrefetch rows_k = {last_head ? part.k : k + part.head_bytes,
                              last_head ? part.next_offsets : part.offsets,
                              last_head ? part.next_keys : part.keys, part.row_bytes};
  RowPrefetch prefetch_k = rows_k;
  const RowSource source = {v, part.offsets, work.head_dim};
  for (std::int64_t column = 0; column < work.head_dim; column += kSliceColumns) {
    pack_values<T>(source, part.keys, column, work.scratch.values, prefetch_k);
    if (column + kSliceColumns >= work.head_dim) ask_again(rows_k);
    sum_slice(work, part, head, column, prefetch_k);
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

template <typename T>
void sum_decode_row(const Work& work, const Part& part, const DecodeRows& rows) {
  const DecodePace pace = DecodePace::of(work.queries);
  ValueKeys keys;
  keys.head_dim = work.head_dim;
  keys.queries = work.queries;
  for (std::int64_t key = 0; key < part.keys; key += pace.keys) {
    keys.begins = rows.begins + key;
    keys.later = rows.later + key;
    keys.first_time = rows.first_time;
    keys.keys = std::min(pace.keys, part.keys - key);
    keys.first = key == 0;
    for (std::int64_t head = 0; head < work.task.kv_heads; ++head) {
      keys.head_bytes = head * part.head_bytes;
      sum_row<T>(keys, scores_of(work, head * work.queries) + key,
                 part.sums + head * work.queries * work.partial);
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
    for (std::int64_t head = 0; head < work.task.kv_heads; ++head) attend_tile<T>(work, part, head);
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
