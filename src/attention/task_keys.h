// Task keys: which keys of a partition a task reads, and where their rows begin.
//
// Thread:     pure functions of their arguments.
// Memory:     the caller's.
// Cost:       an addition a key.
// Not here:   what is read there (attention_cpu.cc, latent_attention_cpu.cc).
#pragma once

#include <algorithm>
#include <cstdint>

#include "attention/attention_kernel.h"

namespace stemma {

// Keys of a partition that the task's last row sees; 0 beyond the task's last partition.
inline std::int64_t keys_in(const AttentionTask& task, std::int64_t partition) {
  if (partition >= task.first_partition + task.partitions) return 0;
  const std::int64_t end = task.first_position + task.rows;
  return std::clamp<std::int64_t>(end - partition * kPartitionKeys, 0, kPartitionKeys);
}

// Where the rows of the keys of a task's list begin, those of one partition of the list.
inline void locate_listed_keys(const AttentionTask& task, std::int64_t partition,
                               std::int64_t* offsets) {
  const KvLayerView& layer = *task.layer;
  const std::int64_t element_bytes = dtype_bytes(layer.dtype);
  const std::int64_t token_bytes = layer.token_stride * element_bytes;
  const std::int64_t page_bytes = layer.page_stride * element_bytes;
  const auto page_size = static_cast<std::uint32_t>(layer.page_size);
  const std::int32_t* const list = task.keys_or_null + partition * kPartitionKeys;
  const std::int64_t keys = keys_in(task, partition);
  for (std::int64_t i = 0; i < keys; ++i) {
    const auto key = static_cast<std::uint32_t>(list[i]);
    offsets[i] = task.pages[key / page_size] * page_bytes + key % page_size * token_bytes;
  }
}

// Where the rows of those keys begin, in bytes from the layer's first. Those before the window of
// the task's first row may have no page: the first row in it stands for them, and what is computed
// from it weighs nothing.   [kPartitionKeys]
inline void locate_keys(const AttentionTask& task, std::int64_t partition, std::int64_t* offsets) {
  if (task.keys_or_null != nullptr) return locate_listed_keys(task, partition, offsets);
  const KvLayerView& layer = *task.layer;
  const std::int64_t element_bytes = dtype_bytes(layer.dtype);
  const std::int64_t keys = keys_in(task, partition);
  const std::int64_t partition_begin = partition * kPartitionKeys;
  const std::int64_t seen = task.shape->first_seen(task.first_position);
  const std::int64_t first = std::max(partition_begin, std::min(seen, partition_begin + keys));
  const std::int64_t token_bytes = layer.token_stride * element_bytes;
  std::int64_t page = first / layer.page_size;
  std::int64_t in_page = first % layer.page_size;
  const std::int64_t unseen = first - partition_begin;
  for (std::int64_t key = unseen; key < keys; ++page, in_page = 0) {
    std::int64_t offset =
        task.pages[page] * layer.page_stride * element_bytes + in_page * token_bytes;
    const std::int64_t end = std::min(keys, key + layer.page_size - in_page);
    for (; key < end; ++key, offset += token_bytes) offsets[key] = offset;
  }
  if (unseen < keys) std::fill_n(offsets, unseen, offsets[unseen]);
}

}  // namespace stemma
