// Part: one partition of a task's keys, which of them each query sees, and where their rows begin.
//
// Included by attention_cpu.cc after Highway, once for each SIMD target; never by anything else.
#if defined(STEMMA_ATTENTION_PART_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STEMMA_ATTENTION_PART_INL_H_
#undef STEMMA_ATTENTION_PART_INL_H_
#else
#define STEMMA_ATTENTION_PART_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "attention/attention_kernel.h"
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
inline std::int64_t keys_seen(const Work& work, const Part& part, std::int64_t query) {
  const std::int64_t position = work.task.first_position + query / work.group;
  return std::min(part.keys, position + 1 - part.first_key);
}

// A head's first query that reaches the partition.
inline std::int64_t first_query(const Work& work, const Part& part) {
  return work.group * std::max<std::int64_t>(0, part.first_key - work.task.first_position);
}

// A head's first query whose window lies behind the partition.
inline std::int64_t end_query(const Work& work, const Part& part) {
  const std::int64_t window = work.task.shape->window_tokens;
  if (window == 0) return work.queries;
  const std::int64_t rows = part.first_key + part.keys + window - 1 - work.task.first_position;
  return std::clamp<std::int64_t>(rows * work.group, 0, work.queries);
}

// Keys of the partition that lie before a query's window.
inline std::int64_t keys_unseen(const Work& work, const Part& part, std::int64_t query) {
  const std::int64_t position = work.task.first_position + query / work.group;
  return std::clamp<std::int64_t>(work.task.shape->first_seen(position) - part.first_key, 0,
                                  part.keys);
}

// Where the rows of a partition begin, for tiles, and those of the next partition's K; behind the
// last one, that of this. A key that does not exist has the row of the last one that does.
struct PartRows {
  PartRows(const Work& work, const Part& part) {
    fill(part.k, part.offsets, part.keys, k);
    fill(part.v, part.offsets, part.keys, v);
    const bool ends = part.next_keys == 0;
    fill(part.k, ends ? part.offsets : part.next_offsets, ends ? part.keys : part.next_keys,
         next_k);
    for (std::int64_t key = 0; key < kPlaces; ++key) {
      const std::int64_t row = std::min(key, kPartitionKeys - 1);
      widened_v[key] = reinterpret_cast<const std::byte*>(work.scratch.values +
                                                          row * widened_row(work.head_dim));
    }
  }

  static constexpr std::int64_t kPlaces = kPartitionKeys + kAskAgainKeys;
  const std::byte* k[static_cast<std::size_t>(kPlaces)];
  const std::byte* v[static_cast<std::size_t>(kPlaces)];
  const std::byte* next_k[static_cast<std::size_t>(kPlaces)];
  const std::byte* widened_v[static_cast<std::size_t>(kPlaces)];

 private:
  static void fill(const std::byte* first, const std::int64_t* offsets, std::int64_t keys,
                   const std::byte** to) {
    for (std::int64_t key = 0; key < kPlaces; ++key) {
      to[key] = first + offsets[std::min(key, keys - 1)];
    }
  }
};

}  // namespace
}  // namespace stemma::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, once for each target
