// The attention kernel. Written from the definition; the reference twin is reference_attention.cc.
//
// A partition of a KV head is packed once for all the queries that read it: K transposed, so that a
// vector holds one dimension of consecutive keys, V as it lies. Then, for each query by itself:
//
//   score[key]   = sum over dims, in order, of q[dim] × k[key][dim]          one lane a key
//                  capped where the model does that; −∞ before the query's window
//   weight[key]  = 2^(score − max), max and sum over the partition's keys <= its position
//   value[dim]   = sum over those keys, in order, of weight[key] × v[key][dim]   one lane a dim
//
// and the partition's (value, max, sum) is folded into what the earlier ones gave. No step depends
// on how many queries were computed together, on the page size or on where pages lie (I13). Keys
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
#include "attention/multiply_panels-inl.h"
#include "attention/online_softmax-inl.h"
#include "attention/pack_kv-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stemma::HWY_NAMESPACE {
namespace {

// One task with the sizes that all its steps need.
struct Work {
  const AttentionTask& task;
  const AttentionScratch& scratch;
  std::int64_t group = 0;    // query heads of one KV head
  std::int64_t queries = 0;  // of one KV head: rows × group
  std::int64_t head_dim = 0;
  std::int64_t columns = 0;  // padded head_dim
  std::int64_t partial = 0;  // floats of one query's sums
  std::int64_t element_bytes = 0;
};

Work work_of(const AttentionTask& task, const AttentionScratch& scratch) {
  Work work{task, scratch};
  work.group = task.shape->query_heads / task.shape->kv_heads;
  work.queries = task.rows * work.group;
  work.head_dim = task.shape->head_dim;
  work.columns = padded_columns(work.head_dim);
  work.partial = partial_floats(work.head_dim);
  work.element_bytes = dtype_bytes(task.layer->dtype);
  return work;
}

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

// Queries of a task ordered [kv head, row, query head], times scale × log2 e.
void scale_queries(const Work& work) {
  const AttentionTask& task = work.task;
  const float scale = task.shape->scale * kLog2E;
  const std::int64_t row_floats = task.shape->query_heads * work.head_dim;
  const std::int64_t group_floats = work.group * work.head_dim;
  float* to = work.scratch.queries;
  for (std::int64_t head = 0; head < task.kv_heads; ++head) {
    for (std::int64_t row = 0; row < task.rows; ++row, to += group_floats) {
      const float* const from =
          task.q + row * row_floats + (task.first_kv_head + head) * group_floats;
      for (std::int64_t i = 0; i < group_floats; ++i) to[i] = from[i] * scale;
    }
  }
}

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

// The slice of keys from `first_key` of the part on, for one head.
void score_slice(const Work& work, const Part& part, std::int64_t head, std::int64_t first_key,
                 RowPrefetch& prefetch) {
  PanelProduct product;
  product.a_stride = work.head_dim;
  product.b = work.scratch.keys;
  product.b_stride = work.head_dim * kPanelColumns;
  product.c_stride = kPartitionKeys;
  product.depth = work.head_dim;
  for (std::int64_t query = first_query(work, part); query < work.queries;) {
    const std::int64_t rows = tile_rows(work.queries - query);
    const std::int64_t keys = keys_seen(work, part, query + rows - 1) - first_key;
    product.a = work.scratch.queries + (head * work.queries + query) * work.head_dim;
    product.c = scores_of(work, head * work.queries + query) + first_key;
    product.panels = ceil_div(std::clamp<std::int64_t>(keys, 0, kSliceColumns), kPanelColumns);
    multiply(rows, product, prefetch);
    query += rows;
  }
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

// Scores of one head become weights. Meanwhile memory brings one stretch of rows.
void weigh_keys(const Work& work, const Part& part, std::int64_t head, RowPrefetch& prefetch) {
  const std::int64_t lines = kDecodeKeys * part.row_bytes / kLineBytes / work.queries;
  PrefetchCursor cursor(prefetch);
  const std::int64_t end = end_query(work, part);
  for (std::int64_t query = first_query(work, part); query < end; ++query) {
    const std::int64_t place = head * work.queries + query;
    adjust_scores(work, part, query, scores_of(work, place));
    float* const max_and_sum = part.sums + place * work.partial + work.columns;
    softmax_partition(scores_of(work, place), keys_seen(work, part, query), max_and_sum,
                      max_and_sum + 1, cursor, lines);
  }
}

// Many queries: a head's K and V are packed for all of them.
template <typename T>
void attend_tile(const Work& work, const Part& part, std::int64_t head) {
  const std::byte* const k = part.k + head * part.head_bytes;
  const std::byte* const v = part.v + head * part.head_bytes;
  RowPrefetch prefetch_v = {v, part.offsets, part.keys, part.row_bytes};
  for (std::int64_t key = 0; key < part.keys; key += kSliceColumns) {
    const RowSource source = {k, part.offsets + key, work.head_dim};
    pack_keys<T>(source, part.keys - key, work.scratch.keys, prefetch_v);
    score_slice(work, part, head, key, prefetch_v);
  }
  weigh_keys(work, part, head, prefetch_v);
  const bool last_head = head + 1 == work.task.kv_heads;
  RowPrefetch prefetch_k = {last_head ? part.k : k + part.head_bytes,
                            last_head ? part.next_offsets : part.offsets,
                            last_head ? part.next_keys : part.keys, part.row_bytes};
  const RowSource source = {v, part.offsets, work.head_dim};
  for (std::int64_t column = 0; column < work.head_dim; column += kSliceColumns) {
    pack_values<T>(source, part.keys, column, work.scratch.values, prefetch_k);
    sum_slice(work, part, head, column, prefetch_k);
  }
}

// One stretch of keys, all heads, after another: a stretch is asked for while the one before it is
// computed, V's first stretch with K's last, and the next partition's first with V's last.
template <typename T>
void score_decode_row(const Work& work, const Part& part, RowPrefetch& prefetch) {
  for (std::int64_t key = 0; key < part.keys; key += kDecodeKeys) {
    const KeyRows rows(part.k, part.offsets + key, part.keys - key);
    for (std::int64_t head = 0; head < work.task.kv_heads;) {
      const HeadKeys keys = {
          rows,          head * part.head_bytes, part.head_bytes,
          work.head_dim, work.queries,           work.task.keys_or_null != nullptr};
      head += score_heads<T>(keys, work.task.kv_heads - head,
                             work.scratch.queries + head * work.queries * work.head_dim,
                             scores_of(work, head * work.queries) + key, prefetch);
    }
  }
}

template <typename T>
void sum_decode_row(const Work& work, const Part& part, RowPrefetch& prefetch) {
  for (std::int64_t key = 0; key < part.keys; key += kDecodeKeys) {
    for (std::int64_t head = 0; head < work.task.kv_heads; ++head) {
      DecodeKeys keys = {{part.v + head * part.head_bytes, part.offsets + key, work.head_dim}};
      keys.keys = std::min(kDecodeKeys, part.keys - key);
      keys.first = key == 0;
      keys.queries = work.queries;
      sum_row<T>(keys, scores_of(work, head * work.queries) + key,
                 part.sums + head * work.queries * work.partial, prefetch);
    }
  }
}

template <typename T>
void attend_decode_row(const Work& work, const Part& part) {
  const std::int64_t row_bytes = (work.task.kv_heads - 1) * part.head_bytes + part.row_bytes;
  const std::int64_t first_rows = std::min(part.keys, kDecodeKeys);
  const std::int64_t later_rows = part.keys - first_rows;
  const RowPrefetch first_v = {part.v, part.offsets, first_rows, row_bytes};
  const RowPrefetch next_k = {part.k, part.next_offsets, std::min(part.next_keys, kDecodeKeys),
                              row_bytes};
  RowPrefetch prefetch = {part.k, part.offsets + first_rows, later_rows, row_bytes, &first_v};
  score_decode_row<T>(work, part, prefetch);
  prefetch = {part.v, part.offsets + first_rows, later_rows, row_bytes, &next_k};
  for (std::int64_t head = 0; head < work.task.kv_heads; ++head) {
    weigh_keys(work, part, head, prefetch);
  }
  sum_decode_row<T>(work, part, prefetch);
}

bool decodes(const Work& work) {
  return work.task.rows == 1 && work.queries <= kDecodeQueries;
}

// Nothing was computed during which a task's first stretch of K could have been asked for.
void ask_for_first_stretch(const Work& work, const Part& part) {
  RowPrefetch rows = {part.k, part.offsets, std::min(part.keys, kDecodeKeys),
                      (work.task.kv_heads - 1) * part.head_bytes + part.row_bytes};
  PrefetchCursor(rows).step(rows.rows * ceil_div(rows.row_bytes, kLineBytes));
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
      merge_sums(work.scratch.sums + place, part.sums + place, work.columns);
    }
  }
}

void divide_sums(const float* sums, std::int64_t value_dim, float* out) {
  const float total = sums[padded_columns(value_dim) + 1];
  for (std::int64_t i = 0; i < value_dim; ++i) out[i] = sums[i] / total;
}

void write_rows(const Work& work) {
  const AttentionTask& task = work.task;
  const std::int64_t row_floats = task.shape->query_heads * work.head_dim;
  for (std::int64_t head = 0; head < task.kv_heads; ++head) {
    for (std::int64_t query = 0; query < work.queries; ++query) {
      const std::int64_t query_head = (task.first_kv_head + head) * work.group + query % work.group;
      divide_sums(work.scratch.sums + (head * work.queries + query) * work.partial, work.head_dim,
                  task.out + query / work.group * row_floats + query_head * work.head_dim);
    }
  }
}

template <typename T>
void attend_as(const Work& work) {
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
    } else {
      part.sums = work.scratch.partition_sums;
      attend_part<T>(work, part);
      merge_part(work, part);
    }
    std::swap(offsets, next_offsets);
  }
}

}  // namespace

void attend(const AttentionTask& task, const AttentionScratch& scratch) {
  const Work work = work_of(task, scratch);
  scale_queries(work);
  for (std::int64_t query = 0; query < task.kv_heads * work.queries; ++query) {
    clear_sums(scratch.sums + query * work.partial, work.columns);
  }
  switch (task.layer->dtype) {
    case DType::kF32:
      attend_as<float>(work);
      break;
    case DType::kF16:
      attend_as<Float16>(work);
      break;
    case DType::kBF16:
      attend_as<BFloat16>(work);
      break;
  }
  if (task.partials_or_null == nullptr) write_rows(work);
}

void merge_sections(const MergeTask& task) {
  const std::int64_t value_dim = task.shape->value_dim();
  const std::int64_t columns = padded_columns(value_dim);
  clear_sums(task.sums, columns);
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
