// ScratchCarver: one piece of memory given out as arrays, each at a cache line's begin.
//
// Thread:     one thread.
// Memory:     none of its own.
// Cost:       an addition an array.
// Not here:   what the arrays hold (attention_kernel, sparse_kernel).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "attention/attention_kernel.h"
#include "attention/row_prefetch.h"
#include "base/math.h"

namespace stemma {

// Takes one array after another from a piece of memory; without memory, only adds up their bytes.
class ScratchCarver {
 public:
  explicit ScratchCarver(std::byte* memory_or_null) : memory_or_null_(memory_or_null) {}

  template <typename T>
  T* take(std::int64_t count) {
    T* const begin =
        memory_or_null_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_or_null_ + used_bytes_);
    used_bytes_ += round_up(count * static_cast<std::int64_t>(sizeof(T)), kLineBytes);
    return begin;
  }

  std::int64_t used_bytes() const { return used_bytes_; }

 private:
  std::byte* memory_or_null_;
  std::int64_t used_bytes_ = 0;
};

// The most that one task has.
struct TaskSize {
  std::int64_t kv_heads = 0;
  std::int64_t queries = 0;  // of all its KV heads together
};

// One thread's, for tasks of at most that size.
inline AttentionScratch carve_attention_scratch(ScratchCarver& carver, std::int64_t head_dim,
                                                const TaskSize& size) {
  const std::int64_t queries = size.queries;
  AttentionScratch scratch;
  const std::int64_t padding = std::max(kQueryPadding, size.kv_heads * kPanelColumnsMax);
  scratch.queries = carver.take<float>((queries + padding) * packed_dim(head_dim));
  scratch.sums = carver.take<float>(queries * partial_floats(head_dim));
  scratch.keys = carver.take<float>(kPartitionKeys * widened_row(head_dim));
  scratch.values = carver.take<float>(kPartitionKeys * widened_row(head_dim));
  scratch.scores = carver.take<float>((queries + kQueryPadding) * kPartitionKeys);
  scratch.key_scores = carver.take<float>(kPartitionKeys * kPanelColumnsMax);
  scratch.partition_sums = carver.take<float>(queries * partial_floats(head_dim));
  scratch.offsets = carver.take<std::int64_t>(2 * kPartitionKeys);
  return scratch;
}

}  // namespace stemma
