// Gathered rows on a GPU: the parts that ranks gave, one behind the other, become whole rows.
//
// A rank has neighbouring columns of every row (model/shard): those from columns × rank / ranks on.
//
// Thread:     as CudaStream.
// Memory:     none; addresses are the device's.
// Cost:       one copy of the rows within the device; bound by the launch for few rows.
// Not here:   how parts come here (device/cuda_ranks), whose they are (cuda_rank_rows).
#pragma once

#include <cstdint>

#include "device/cuda_device.h"
#include "stemma/result.h"

namespace stemma {

struct GatheredRows {
  const void* parts = nullptr;  // of each rank [rows, its columns], part_bytes apart
  void* whole = nullptr;        // [rows, columns], aligned to 16 bytes
  std::int64_t part_bytes = 0;  // a multiple of 16
  std::int64_t rows = 0;
  std::int64_t columns = 0;        // of all ranks
  std::int64_t element_bytes = 0;  // 2 or 4
  int ranks = 1;
};

// kInvalidArgument for extents that it cannot do.
Status join_gathered_rows(CudaStream& stream, const GatheredRows& params);

}  // namespace stemma
