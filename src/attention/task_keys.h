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

// Where the rows of those keys begin, in bytes from the layer's first.   [kPartitionKeys]
inline void locate_keys(const AttentionTask& task, std::int64_t partition, std::int64_t* offsets) {
  const KvLayerView& layer = *task.layer;
  const std::int64_t element_bytes = dtype_bytes(layer.dtype);
  const std::int64_t keys = keys_in(task, partition);
  const std::int64_t first = partition * kPartitionKeys;
  const std::int64_t token_bytes = layer.token_stride * element_bytes;
  std::int64_t page = first / layer.page_size;
  std::int64_t in_page = first % layer.page_size;
  for (std::int64_t key = 0; key < keys; ++page, in_page = 0) {
    std::int64_t offset =
        task.pages[page] * layer.page_stride * element_bytes + in_page * token_bytes;
    const std::int64_t end = std::min(keys, key + layer.page_size - in_page);
    for (; key < end; ++key, offset += token_bytes) offsets[key] = offset;
  }
}

}  // namespace stemma
