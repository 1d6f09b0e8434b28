// The attention kernel for latent rows. Written from the definition; the reference twin is
// reference_attention.cc.
//
// All query heads share one row a key, which is K and, but for its last columns, V. A row is read
// once for many queries, so it is the multiplications that bound it. A partition's rows are widened
// once to f32 for all queries of a task; then, for each query by itself:
//
//   score[key]   = sum over dims, in order, of k[key][dim] × q[dim]             one lane a query
//   weight[key]  = 2^(score − max), max and sum over the partition's keys <= its position
//   value[dim]   = sum over those keys, in order, of weight[key] × k[key][dim]  one lane a dim
//
// (of a scaled dtype k is codes: a finished score is multiplied by its key's scale, and so is a
// weight, once summed), and the partition's (value, max, sum) is folded into what the earlier ones
// of its section gave;
// sections are merged left to right. No step depends on how many queries were computed together, on
// the page size or on where pages lie (I13). Keys beyond the query's position are never multiplied
// into anything it keeps.
#include <algorithm>

#include "attention/attention_kernel.h"
#include "attention/task_keys.h"
#include "device/simd_targets.h"  // before Highway

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/latent_attention_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "attention/key_scales-inl.h"
#include "attention/latent_products-inl.h"
#include "attention/latent_softmax-inl.h"
#include "attention/widen_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stemma::HWY_NAMESPACE {
namespace {

// One task with the sizes that all its steps need. Its queries are counted [row, head].
struct Work {
  const AttentionTask& task;
  const AttentionScratch& scratch;
  QueryState state;
  std::int64_t heads = 0;  // of the task
  std::int64_t first_head = 0;
  std::int64_t queries = 0;        // rows × heads
  std::int64_t query_vectors = 0;  // that hold them
  std::int64_t head_dim = 0;
  std::int64_t value_vectors = 0;  // that hold a query's values
  std::int64_t partial = 0;        // floats of one query's sums
  std::int64_t scores_stride = 0;  // from key to key
};

Work work_of(const AttentionTask& task, const AttentionScratch& scratch) {
  const AttentionShape& shape = *task.shape;
  const std::int64_t group = shape.query_heads / shape.kv_heads;
  const std::int64_t queries = task.rows * task.kv_heads * group;
  Work work{task, scratch, QueryState(scratch.states, padded_queries(queries))};
  work.heads = task.kv_heads * group;
  work.first_head = task.first_kv_head * group;
  work.queries = queries;
  work.query_vectors = ceil_div(queries, kLanes);
  work.head_dim = shape.head_dim;
  work.value_vectors = ceil_div(shape.latent_dim, kLanes);
  work.partial = partial_floats(shape.latent_dim);
  work.scores_stride = latent_scores_stride(queries);
  return work;
}

// One partition.
struct Part {
  const std::byte* first_row = nullptr;  // of (page 0, offset 0)
  const std::int64_t* offsets = nullptr;
  std::int64_t first_key = 0;
  std::int64_t keys = 0;   // up to the last row's position
  bool first = false;      // sums begin here
  float* sums = nullptr;   // what it is folded into   [queries, partial]
  std::int64_t lines = 0;  // of the next partition, asked for in each step of the products
};

// Queries times scale × log2 e, transposed into panels. Lanes beyond the last one stay 0.
void pack_queries(const Work& work) {
  const AttentionTask& task = work.task;
  const AttentionShape& shape = *task.shape;
  const float scale = shape.scale * kLog2E * code_factors(task.layer->dtype).query;
  float* const to = work.scratch.queries;
  std::fill_n(to, work.query_vectors * kLanes * work.head_dim, 0.0f);
  for (std::int64_t query = 0; query < work.queries; ++query) {
    const std::int64_t row = query / work.heads;
    const std::int64_t head = work.first_head + query % work.heads;
    const float* const from = task.q + (row * shape.query_heads + head) * work.head_dim;
    const std::int64_t vector = query / kLanes;
    const std::int64_t first_vector = round_down(vector, std::int64_t{kVectorsTogether});
    const std::int64_t columns =
        std::min<std::int64_t>(kVectorsTogether, work.query_vectors - first_vector) * kLanes;
    float* const column =
        to + first_vector * kLanes * work.head_dim + query - first_vector * kLanes;
    for (std::int64_t dim = 0; dim < work.head_dim; ++dim)
      column[dim * columns] = from[dim] * scale;
  }
}

// Keys of the partition that a query sees; <= 0 if its row lies before it.
std::int64_t keys_seen(const Work& work, const Part& part, std::int64_t query) {
  const std::int64_t position = work.task.first_position + query / work.heads;
  return std::min(part.keys, position + 1 - part.first_key);
}

// The first query that reaches the partition.
std::int64_t first_query(const Work& work, const Part& part) {
  return work.heads * std::max<std::int64_t>(0, part.first_key - work.task.first_position);
}

// Whether every query sees all keys of the partition.
bool all_see_all(const Work& work, const Part& part) {
  return keys_seen(work, part, 0) == part.keys;
}

float* row_of(const Work& work, std::int64_t key) {
  return work.scratch.rows + key * kLatentRowFloats;
}

// Rows of `keys` keys from `key` on, still to be widened.
template <typename T>
RowWidener<T> widener_of(const Work& work, const Part& part, std::int64_t key, std::int64_t keys) {
  return RowWidener<T>({part.first_row, part.offsets + key, work.head_dim}, keys,
                       row_of(work, key));
}

// Scores of all queries, for a few keys at a time, while the rows of the next few are widened.
template <typename T>
void score_part(const Work& work, const Part& part, RowPrefetch& prefetch) {
  ScoreTile tile;
  tile.depth = work.head_dim;
  tile.scores_stride = work.scores_stride;
  tile.lines = part.lines;
  const std::int64_t panels = ceil_div(work.query_vectors, std::int64_t{kVectorsTogether});
  std::int64_t keys = tile_rows(part.keys);
  widener_of<T>(work, part, 0, keys).finish();
  for (std::int64_t key = 0; key < part.keys;) {
    const std::int64_t next_key = key + keys;
    const std::int64_t next_keys = next_key < part.keys ? tile_rows(part.keys - next_key) : 0;
    RowWidener<T> next = widener_of<T>(work, part, next_key, next_keys);
    tile.rows = row_of(work, key);
    tile.widened = ceil_div(next.vectors(), panels * (work.head_dim / kStep));
    for (std::int64_t vector = 0; vector < work.query_vectors; vector += kVectorsTogether) {
      tile.queries = work.scratch.queries + vector * kLanes * work.head_dim;
      tile.scores = work.scratch.scores + key * work.scores_stride + vector * kLanes;
      if (vector + kVectorsTogether <= work.query_vectors) {
        score_tile<T, kVectorsTogether>(keys, tile, next, prefetch);
      } else {
        score_tile<T, 1>(keys, tile, next, prefetch);
      }
    }
    next.finish();
    key = next_key;
    keys = next_keys;
  }
}

template <bool kSome, bool kScaled>
void weigh_vectors(const Work& work, const Part& part, const RowScales& scales) {
  for (std::int64_t vector = 0; vector < work.query_vectors; ++vector) {
    weigh_queries<kSome, kScaled>(work.scratch.scores, work.scores_stride, part.keys, scales,
                                  work.state, vector * kLanes);
  }
}

// Scores become weights.
void weigh_part(const Work& work, const Part& part) {
  const bool all = all_see_all(work, part);
  if (!all) {
    for (std::int64_t query = 0; query < work.query_vectors * kLanes; ++query) {
      const std::int64_t seen = keys_seen(work, part, std::min(query, work.queries - 1));
      work.state.keys_seen[query] = static_cast<float>(std::max<std::int64_t>(0, seen));
    }
  }
  RowScales scales;
  if (!is_scaled(work.task.layer->dtype)) {
    return all ? weigh_vectors<false, false>(work, part, scales)
               : weigh_vectors<true, false>(work, part, scales);
  }
  const std::int64_t partition = part.first_key / kPartitionKeys;
  KeyScales::ask_for(work.task, partition + 1, work.task.layer->k_scales, true);
  const CodeFactors factors = code_factors(work.task.layer->dtype);
  scales.sides.k.gather(work.task, partition, work.task.layer->k_scales, factors.k_scale);
  scales.sides.v.gather(work.task, partition, work.task.layer->v_scales, factors.v_scale);
  scales.sum_factor = factors.sum;
  return all ? weigh_vectors<false, true>(work, part, scales)
             : weigh_vectors<true, true>(work, part, scales);
}

// The vectors of values from `vector` on, of all queries. Where not all see all keys, a tile has
// queries of one row only.
void sum_slice(const Work& work, const Part& part, std::int64_t vector, RowPrefetch& prefetch) {
  const bool all = all_see_all(work, part);
  SumTile tile;
  tile.weights_stride = work.scores_stride;
  tile.rows = work.scratch.rows + vector * kLanes;
  tile.sums_stride = work.partial;
  tile.first = part.first;
  tile.lines = part.lines;
  for (std::int64_t query = first_query(work, part); query < work.queries;) {
    const std::int64_t left = all ? work.queries - query : work.heads - query % work.heads;
    const std::int64_t queries = tile_rows(left);
    tile.keys = keys_seen(work, part, query);
    tile.weights = work.scratch.scores + query;
    tile.sums = part.sums + query * work.partial + vector * kLanes;
    tile.kept = work.state.kept + query;
    tile.added = work.state.added + query;
    if (vector + kVectorsTogether <= work.value_vectors) {
      sum_tile<kVectorsTogether>(queries, tile, prefetch);
    } else {
      sum_tile<1>(queries, tile, prefetch);
    }
    query += queries;
  }
}

// How many lines each step of the products asks for, so that all are asked for in time.
std::int64_t lines_in_step(const Work& work, std::int64_t keys, const RowPrefetch& next) {
  const std::int64_t lines = next.rows * ceil_div(next.row_bytes, kLineBytes);
  const std::int64_t key_tiles = ceil_div<std::int64_t>(keys, kTileRows);
  const std::int64_t query_tiles = ceil_div<std::int64_t>(work.queries, kTileRows);
  const std::int64_t score_steps = key_tiles *
                                   ceil_div<std::int64_t>(work.query_vectors, kVectorsTogether) *
                                   (work.head_dim / kStep);
  const std::int64_t sum_steps = query_tiles *
                                 ceil_div<std::int64_t>(work.value_vectors, kVectorsTogether) *
                                 ceil_div(keys, kStep);
  return ceil_div(lines, score_steps + sum_steps);
}

template <typename T>
void attend_part(const Work& work, const Part& part, RowPrefetch& prefetch) {
  score_part<T>(work, part, prefetch);
  weigh_part(work, part);
  for (std::int64_t vector = 0; vector < work.value_vectors; vector += kVectorsTogether) {
    sum_slice(work, part, vector, prefetch);
  }
}

// The end of a section: its sums get the largest score and the sum of the weights behind them, and
// are merged into the task's, unless whoever splits the walk does that.
void end_section(const Work& work, const Part& part, std::int64_t first) {
  const std::int64_t columns = padded_columns(work.task.shape->latent_dim);
  for (std::int64_t query = first; query < work.queries; ++query) {
    float* const sums = part.sums + query * work.partial;
    sums[columns] = work.state.largest[query];
    sums[columns + 1] = work.state.totals[query];
    if (work.task.partials_or_null != nullptr) continue;
    merge_sums(work.scratch.sums + query * work.partial, sums, columns);
  }
}

void write_rows(const Work& work) {
  const AttentionTask& task = work.task;
  const AttentionShape& shape = *task.shape;
  for (std::int64_t query = 0; query < work.queries; ++query) {
    const float* const sums = work.scratch.sums + query * work.partial;
    const float total = sums[padded_columns(shape.latent_dim) + 1];
    const std::int64_t head = work.first_head + query % work.heads;
    float* const out =
        task.out + (query / work.heads * shape.query_heads + head) * shape.latent_dim;
    for (std::int64_t i = 0; i < shape.latent_dim; ++i) out[i] = sums[i] / total;
  }
}

template <typename T>
void attend_as(const Work& work) {
  const AttentionTask& task = work.task;
  const std::int64_t section = section_partitions(*task.shape);
  std::int64_t* offsets = work.scratch.offsets;
  std::int64_t* next_offsets = offsets + kPartitionKeys;
  Part part;
  part.first_row = static_cast<const std::byte*>(task.layer->k);
  std::int64_t section_query = 0;  // the first one that reaches the section
  locate_keys(task, task.first_partition, offsets);
  for (std::int64_t i = 0; i < task.partitions; ++i) {
    const std::int64_t partition = task.first_partition + i;
    locate_keys(task, partition + 1, next_offsets);
    part.offsets = offsets;
    part.first_key = partition * kPartitionKeys;
    part.keys = keys_in(task, partition);
    RowPrefetch next = {part.first_row, next_offsets, keys_in(task, partition + 1),
                        work.head_dim * static_cast<std::int64_t>(sizeof(T))};
    part.lines = lines_in_step(work, part.keys, next);
    part.first = i % section == 0;
    if (part.first) {
      section_query = first_query(work, part);
      part.sums = task.partials_or_null == nullptr
                      ? work.scratch.partition_sums
                      : task.partials_or_null + i / section * work.queries * work.partial;
      work.state.clear(padded_queries(work.queries));
    }
    attend_part<T>(work, part, next);
    if (i % section == section - 1 || i == task.partitions - 1) {
      end_section(work, part, section_query);
    }
    std::swap(offsets, next_offsets);
  }
}

}  // namespace

void attend_latent(const AttentionTask& task, const AttentionScratch& scratch) {
  const Work work = work_of(task, scratch);
  pack_queries(work);
  for (std::int64_t query = 0; query < work.queries; ++query) {
    clear_sums(scratch.sums + query * work.partial, padded_columns(task.shape->latent_dim));
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
    case DType::kFp8E4M3:
      attend_as<Float8E4M3>(work);
      break;
    case DType::kFp8E5M2:
      attend_as<Float8E5M2>(work);
      break;
    case DType::kInt8:
      attend_as<std::int8_t>(work);
      break;
  }
  if (task.partials_or_null == nullptr) write_rows(work);
}

}  // namespace stemma::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stemma {

HWY_EXPORT(attend_latent);

AttentionKernels latent_attention_kernels() {
  return {&HWY_DYNAMIC_DISPATCH(attend_latent), attention_kernels().merge};
}

}  // namespace stemma
#endif  // HWY_ONCE
