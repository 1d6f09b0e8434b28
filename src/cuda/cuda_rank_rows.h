// CudaRankRows: rows on a GPU of which every rank computes some columns, put together on all of
// them, as RankRows of the CPU does (docs/decisions/0012).
//
// Thread:     as the stream.                           Invariants: I13 (docs/INVARIANTS.md).
// Memory:     on the device the parts of all ranks and one more of this rank, of the largest rows
//             that a step gathers; what CudaRanks need.
// Cost:       each gather moves every value once between ranks, and once within the device where
//             there is more than one row.
// Not here:   how GPUs exchange bytes (device/cuda_ranks), the computation (cuda_transformer).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "device/cuda_device.h"
#include "device/cuda_ranks.h"
#include "device/rank_group.h"
#include "device/weight_type.h"
#include "model/config.h"
#include "model/shard.h"
#include "stemma/result.h"

namespace stemma {

// What it is made for; device, stream and group must outlive it.
struct CudaRankRowsParts {
  const ModelConfig& config;  // of the whole model
  WeightType type;            // of its matrices
  std::int64_t rows_max;
  std::int64_t outputs_max;
  CudaDevice& device;
  CudaStream& stream;
  RankGroup& group;
  bool staged;           // over the RankGroup, even where there is NCCL
  CudaRanksMaker maker;  // nullptr: that of NCCL
};

class CudaRankRows {
  struct Key {};

 public:
  // kOutOfMemory.
  static Result<std::unique_ptr<CudaRankRows>> create(const CudaRankRowsParts& parts);
  CudaRankRows(Key, const CudaRankRowsParts& parts);  // for create

  const Shard& shard() const noexcept { return shard_; }
  CudaRanks& ranks() noexcept { return *ranks_; }
  // How many of `columns` are this rank's.
  std::int64_t own_columns(std::int64_t columns) const { return shard_.range(columns).outputs; }

  // Room for this rank's columns of rows that will be gathered, until they are.
  std::byte* own() const noexcept { return own_.bytes(); }

  // Rows of `columns` values of `element_bytes` each.
  struct Extent {
    std::int64_t rows = 0;
    std::int64_t columns = 0;  // of all ranks
    std::int64_t element_bytes = 0;
  };
  // Queues: the rows of `own`, of this rank's columns, and those of all other ranks become `whole`
  // on all of them. All ranks call it with the same extent. Errors are those of all_gather.
  Status gather(const Extent& extent, void* whole);

 private:
  Status allocate(const CudaRankRowsParts& parts);
  std::int64_t part_bytes(const Extent& extent) const;
  std::int64_t largest_part_bytes(const CudaRankRowsParts& parts) const;

  CudaStream& stream_;
  Shard shard_;
  CudaMemory own_;
  CudaMemory all_;  // the parts of all ranks
  std::unique_ptr<CudaRanks> ranks_;
};

// kUnsupported, naming what of `config` ranks on GPUs do not compute together.
Status check_cut(const ModelConfig& config, const Shard& shard);

}  // namespace stemma
