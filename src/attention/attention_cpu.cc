// The attention kernel. Written from the definition; the reference twin is reference_attention.cc.
//
// A partition of a KV head is packed once for all the queries that read it: K transposed, so that a
// vector holds one dimension of consecutive keys, V as it lies. Then, for each query by itself:
//
//   score[key]   = sum over dims, in order, of q[dim] × k[key][dim]          one lane a key
//   weight[key]  = 2^(score − max), max and sum over the partition's keys <= its position
//   value[dim]   = sum over those keys, in order, of weight[key] × v[key][dim]   one lane a dim
//
// and the partition's (value, max, sum) is folded into what the earlier ones gave. No step depends
// on how many queries were computed together, on the page size or on where pages lie (I13). Keys
// beyond the query's position are never multiplied into anything it keeps.
#include <algorithm>
#include <cstring>

#include "attention/attention_kernel.h"
#include "base/check.h"
#include "device/simd_targets.h"  // before Highway

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/attention_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "attention/multiply_panels-inl.h"
#include "attention/online_softmax-inl.h"
#include "attention/pack_kv-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stemma::HWY_NAMESPACE {
namespace {

constexpr float kLog2E = 1.44269504088896341f;

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
  work.columns = padded_head_dim(work.head_dim);
  work.partial = partial_floats(work.head_dim);
  work.element_bytes = dtype_bytes(task.layer->dtype);
  return work;
}

// One partition of one KV head, and what to fetch while it is computed.
struct Part {
  const std::byte* k = nullptr;  // row of (page 0, offset 0, head)
  const std::byte* v = nullptr;
  const std::int64_t* offsets = nullptr;
  std::int64_t first_key = 0;
  std::int64_t keys = 0;   // up to the last row's position
  std::int64_t query = 0;  // the head's first one in scratch
  const std::byte* next_k = nullptr;
  const std::int64_t* next_offsets = nullptr;
  std::int64_t next_keys = 0;
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

// Keys of a partition that the task's last row sees; 0 beyond its end.
std::int64_t keys_in(const Work& work, std::int64_t partition) {
  const AttentionTask& task = work.task;
  if (partition >= task.first_partition + task.partitions) return 0;
  const std::int64_t end = task.first_position + task.rows;
  return std::clamp<std::int64_t>(end - partition * kPartitionKeys, 0, kPartitionKeys);
}

// Where the rows of a partition's keys begin, in bytes from the layer's first.
void locate_keys(const Work& work, std::int64_t partition, std::int64_t* offsets) {
  const KvLayerView& layer = *work.task.layer;
  const std::int64_t keys = keys_in(work, partition);
  const std::int64_t first = partition * kPartitionKeys;
  const std::int64_t token_bytes = layer.token_stride * work.element_bytes;
  std::int64_t page = first / layer.page_size;
  std::int64_t in_page = first % layer.page_size;
  for (std::int64_t key = 0; key < keys; ++page, in_page = 0) {
    std::int64_t offset =
        work.task.pages[page] * layer.page_stride * work.element_bytes + in_page * token_bytes;
    const std::int64_t end = std::min(keys, key + layer.page_size - in_page);
    for (; key < end; ++key, offset += token_bytes) offsets[key] = offset;
  }
}

// Keys of the partition that a query sees; <= 0 if its row lies before it.
std::int64_t keys_seen(const Work& work, const Part& part, std::int64_t query) {
  const std::int64_t position = work.task.first_position + query / work.group;
  return std::min(part.keys, position + 1 - part.first_key);
}

RowPrefetch prefetch_rows(const Work& work, const std::byte* head, const std::int64_t* offsets,
                          std::int64_t keys) {
  RowPrefetch prefetch;
  prefetch.head = head;
  prefetch.offsets = offsets;
  prefetch.rows = keys;
  prefetch.row_bytes = work.head_dim * work.element_bytes;
  // A partition's multiplication has kPartitionKeys × head_dim / kPanelColumns steps of depth.
  prefetch.rows_per_step = ceil_div(kPanelColumns * kDepthStep, work.head_dim);
  return prefetch;
}

void score_keys(const Work& work, const Part& part, std::int64_t first_query) {
  PanelProduct product;
  product.a_stride = work.head_dim;
  product.b = work.scratch.keys;
  product.b_stride = work.head_dim * kPanelColumns;
  product.c_stride = kPartitionKeys;
  product.depth = work.head_dim;
  RowPrefetch prefetch = prefetch_rows(work, part.v, part.offsets, part.keys);
  for (std::int64_t query = first_query; query < work.queries;) {
    const std::int64_t rows = tile_rows(work.queries - query);
    product.a = work.scratch.queries + (part.query + query) * work.head_dim;
    product.c = work.scratch.scores + query * kPartitionKeys;
    product.panels = ceil_div(keys_seen(work, part, query + rows - 1), kPanelColumns);
    multiply(rows, product, prefetch);
    query += rows;
  }
}

// All of a tile's rows up to the keys that the first one sees, then the rest of each by itself.
void sum_values(const Work& work, const Part& part, std::int64_t first_query, float* sums) {
  PanelProduct product;
  product.a_stride = kPartitionKeys;
  product.b = work.scratch.values;
  product.b_stride = kPartitionKeys * kPanelColumns;
  product.c_stride = work.partial;
  product.panels = ceil_div(work.head_dim, kPanelColumns);
  RowPrefetch prefetch = prefetch_rows(work, part.next_k, part.next_offsets, part.next_keys);
  for (std::int64_t query = first_query; query < work.queries;) {
    const std::int64_t rows = tile_rows(work.queries - query);
    const std::int64_t common_keys = keys_seen(work, part, query);
    product.a = work.scratch.scores + query * kPartitionKeys;
    product.c = sums + query * work.partial;
    product.first_k = 0;
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

template <typename T>
void attend_part(const Work& work, const Part& part, float* sums) {
  const AttentionScratch& scratch = work.scratch;
  const std::int64_t rows_before =
      std::max<std::int64_t>(0, part.first_key - work.task.first_position);
  const std::int64_t first_query = rows_before * work.group;
  pack_keys<T>(part.k, part.offsets, part.keys, work.head_dim, scratch.keys);
  score_keys(work, part, first_query);
  for (std::int64_t query = first_query; query < work.queries; ++query) {
    float* const max_and_sum = sums + query * work.partial + work.columns;
    softmax_partition(scratch.scores + query * kPartitionKeys, keys_seen(work, part, query),
                      max_and_sum, max_and_sum + 1);
  }
  pack_values<T>(part.v, part.offsets, part.keys, work.head_dim, scratch.values);
  sum_values(work, part, first_query, sums);
  if (work.task.partials_or_null != nullptr) return;
  for (std::int64_t query = first_query; query < work.queries; ++query) {
    merge_sums(scratch.sums + (part.query + query) * work.partial, sums + query * work.partial,
               work.columns);
  }
}

void divide_sums(const float* sums, std::int64_t head_dim, float* out) {
  const float total = sums[padded_head_dim(head_dim) + 1];
  for (std::int64_t i = 0; i < head_dim; ++i) out[i] = sums[i] / total;
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
  const std::int64_t head_bytes = layer.head_stride * work.element_bytes;
  const std::byte* const k =
      static_cast<const std::byte*>(layer.k) + task.first_kv_head * head_bytes;
  const std::byte* const v =
      static_cast<const std::byte*>(layer.v) + task.first_kv_head * head_bytes;
  std::int64_t* offsets = work.scratch.offsets;
  std::int64_t* next_offsets = offsets + kPartitionKeys;
  locate_keys(work, task.first_partition, offsets);
  for (std::int64_t i = 0; i < task.partitions; ++i) {
    const std::int64_t partition = task.first_partition + i;
    locate_keys(work, partition + 1, next_offsets);
    for (std::int64_t head = 0; head < task.kv_heads; ++head) {
      const bool last_head = head + 1 == task.kv_heads;
      Part part;
      part.k = k + head * head_bytes;
      part.v = v + head * head_bytes;
      part.offsets = offsets;
      part.first_key = partition * kPartitionKeys;
      part.keys = keys_in(work, partition);
      part.query = head * work.queries;
      part.next_k = last_head ? k : part.k + head_bytes;
      part.next_offsets = last_head ? next_offsets : offsets;
      part.next_keys = last_head ? keys_in(work, partition + 1) : part.keys;
      attend_part<T>(work, part,
                     task.partials_or_null != nullptr
                         ? task.partials_or_null + i * work.queries * work.partial
                         : work.scratch.partition_sums);
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

void merge_partitions(const MergeTask& task) {
  const std::int64_t head_dim = task.shape->head_dim;
  const std::int64_t columns = padded_head_dim(head_dim);
  const std::int64_t partial = partial_floats(head_dim);
  for (std::int64_t query = 0; query < task.queries; ++query) {
    clear_sums(task.sums, columns);
    for (std::int64_t partition = 0; partition < task.partitions; ++partition) {
      merge_sums(task.sums, task.partials + (partition * task.queries + query) * partial, columns);
    }
    divide_sums(task.sums, head_dim, task.out + query * head_dim);
  }
}

}  // namespace stemma::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stemma {

HWY_EXPORT(attend);
HWY_EXPORT(merge_partitions);

AttentionKernels attention_kernels() {
  return {&HWY_DYNAMIC_DISPATCH(attend), &HWY_DYNAMIC_DISPATCH(merge_partitions)};
}

}  // namespace stemma
#endif  // HWY_ONCE
