// What a task's queries are and where their sums come from and go to: all of a task but the walk
// over its keys.
//
// Included by attention_cpu.cc after Highway, once for each SIMD target; never by anything else.
#if defined(STEMMA_ATTENTION_TASK_QUERIES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STEMMA_ATTENTION_TASK_QUERIES_INL_H_
#undef STEMMA_ATTENTION_TASK_QUERIES_INL_H_
#else
#define STEMMA_ATTENTION_TASK_QUERIES_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "attention/attention_kernel.h"
#include "attention/decode_scores-inl.h"
#include "attention/online_softmax-inl.h"
#include "attention/row_vectors-inl.h"
#include "attention/tile_scores-inl.h"
#include "attention/widen_words-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stemma::HWY_NAMESPACE {
namespace {

// One task with the sizes that all its steps need.
struct Work {
  const AttentionTask& task;
  const AttentionScratch& scratch;
  std::int64_t group = 0;          // query heads of one KV head
  std::int64_t queries = 0;        // of one KV head: rows × group
  std::int64_t query_vectors = 0;  // that hold them, a query in each lane
  std::int64_t head_dim = 0;
  std::int64_t packed = 0;   // head_dim, padded for the scores
  std::int64_t columns = 0;  // head_dim, padded for the sums
  std::int64_t partial = 0;  // floats of one query's sums
  std::int64_t element_bytes = 0;
  bool scaled = false;
  CodeFactors factors = {};
};

// T: an element of K.
template <typename T>
Work work_of(const AttentionTask& task, const AttentionScratch& scratch) {
  Work work{task, scratch};
  work.group = task.shape->query_heads / task.shape->kv_heads;
  work.queries = task.rows * work.group;
  work.query_vectors = ceil_div(work.queries, kLanes);
  work.head_dim = task.shape->head_dim;
  work.packed = RowVectors<T>::packed(work.head_dim);
  work.columns = padded_columns(work.head_dim);
  work.partial = partial_floats(work.head_dim);
  work.element_bytes = dtype_bytes(task.layer->dtype);
  work.scaled = is_scaled(task.layer->dtype);
  work.factors = code_factors(task.layer->dtype);
  return work;
}

// Whether there are so few queries, which all see the same, that K and V are read as they lie.
inline bool decodes(const Work& work) {
  const bool see_the_same = work.task.rows == 1 || work.task.rows_or_null != nullptr;
  return see_the_same && work.queries <= kDecodeQueries;
}

// Which row of q and out a query belongs to. Queries are counted [row, query head].
inline std::int64_t row_of(const Work& work, std::int64_t query) {
  const std::int64_t row = query / work.group;
  return work.task.rows_or_null == nullptr ? row : work.task.rows_or_null[row];
}

// Which query head of the model it is.
inline std::int64_t query_head_of(const Work& work, std::int64_t head, std::int64_t query) {
  return (work.task.first_kv_head + head) * work.group + query % work.group;
}

// A query of a head of the task.   [head_dim]
inline const float* query_of(const Work& work, std::int64_t head, std::int64_t query) {
  const std::int64_t heads = work.task.shape->query_heads;
  return work.task.q +
         (row_of(work, query) * heads + query_head_of(work, head, query)) * work.head_dim;
}

// Where a head's queries begin once they are scaled.
inline float* scaled_queries(const Work& work, std::int64_t head) {
  return decodes(work) ? work.scratch.queries + head * work.queries * work.packed
                       : work.scratch.queries + head * work.query_vectors * kLanes * work.packed;
}

// Queries times scale × log2 e, one after another.   [queries, packed head_dim]
template <typename T>
void scale_few_queries(const Work& work, std::int64_t head, float scale) {
  float* to = scaled_queries(work, head);
  for (std::int64_t query = 0; query < work.queries; ++query, to += work.packed) {
    const float* const from = query_of(work, head, query);
    for (std::int64_t i = 0; i < work.head_dim; ++i) {
      to[RowVectors<T>::place_of(i)] = from[i] * scale;
    }
  }
}

// The same in panels, a query in each lane (tile_scores-inl.h).
template <typename T>
void scale_many_queries(const Work& work, std::int64_t head, float scale) {
  float* const panels = scaled_queries(work, head);
  for (std::int64_t query = 0; query < work.queries; ++query) {
    const QueryColumn column = column_of(query, work.query_vectors, work.packed);
    const float* const from = query_of(work, head, query);
    for (std::int64_t i = 0; i < work.head_dim; ++i) {
      const std::int64_t place = RowVectors<T>::place_of(i);
      panels[column.begin + column.row_of(place, work.packed) * column.columns] = from[i] * scale;
    }
  }
}

// Lanes and dimensions that stand for nothing are 0.
template <typename T>
void scale_queries(const Work& work) {
  const float scale = work.task.shape->scale * kLog2E * work.factors.query;
  const std::int64_t heads = work.task.kv_heads;
  std::fill(work.scratch.queries, scaled_queries(work, heads), 0.0f);
  for (std::int64_t head = 0; head < heads; ++head) {
    if (decodes(work)) {
      scale_few_queries<T>(work, head, scale);
    } else {
      scale_many_queries<T>(work, head, scale);
    }
  }
}

inline void divide_sums(const float* sums, std::int64_t value_dim, float* out) {
  const float total = sums[padded_columns(value_dim) + 1];
  for (std::int64_t i = 0; i < value_dim; ++i) out[i] = sums[i] / total;
}

// Where the sums of a query lie among those that are kept from task to task.
inline std::int64_t kept_place(const Work& work, std::int64_t head, std::int64_t query) {
  const std::int64_t heads = work.task.shape->query_heads;
  return (query / work.group * heads + query_head_of(work, head, query)) * work.partial;
}

// Calls visit(head, query, sums) for each query of each head.
template <typename Visit>
void for_sums(const Work& work, Visit visit) {
  float* sums = work.scratch.sums;
  for (std::int64_t head = 0; head < work.task.kv_heads; ++head) {
    for (std::int64_t query = 0; query < work.queries; ++query, sums += work.partial) {
      visit(head, query, sums);
    }
  }
}

inline void begin_sums(const Work& work) {
  const float* const before = work.task.before_or_null;
  for_sums(work, [&](std::int64_t head, std::int64_t query, float* sums) {
    if (before == nullptr) {
      clear_sums(sums, work.columns);
    } else {
      std::copy_n(before + kept_place(work, head, query), work.partial, sums);
    }
  });
}

inline void end_sums(const Work& work) {
  const AttentionTask& task = work.task;
  for_sums(work, [&](std::int64_t head, std::int64_t query, float* sums) {
    if (task.after_or_null != nullptr) {
      std::copy_n(sums, work.partial, task.after_or_null + kept_place(work, head, query));
      return;
    }
    const std::int64_t heads = task.shape->query_heads;
    const std::int64_t place = row_of(work, query) * heads + query_head_of(work, head, query);
    divide_sums(sums, work.head_dim, task.out + place * work.head_dim);
  });
}

}  // namespace
}  // namespace stemma::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, once for each target
