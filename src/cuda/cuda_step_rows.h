// CudaStepRows: what kernels read of a step's rows, on the device, at addresses that never change,
// so that a recorded graph finds the rows of whatever step it computes.
//
// Thread:     as the stream.
// Memory:     24 bytes a row on the device; twice that pinned: a step can be written while the copy
//             of the one before is still queued.
// Cost:       one copy a step, of the rows that it has.
// Not here:   page tables (CudaAttention has its own).
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cuda_device.h"
#include "device/cuda_pinned_turns.h"
#include "stemma/kv_batch.h"
#include "stemma/result.h"

namespace stemma {

// Addresses of the device.
struct StepPlaces {
  const std::int32_t* tokens = nullptr;          // [rows]
  const std::int32_t* positions = nullptr;       // [rows]
  const std::int32_t* slots = nullptr;           // [rows]
  const std::int32_t* windowed_slots = nullptr;  // [rows]
  const std::int32_t* logit_rows = nullptr;      // [outputs]
  const std::int32_t* adapters = nullptr;        // [rows]; -1: none
};

class CudaStepRows {
 public:
  // kOutOfMemory. Memory belongs to `stream`; both must outlive what it gives.
  static Result<CudaStepRows> create(CudaDevice& device, CudaStream& stream, std::int64_t rows_max);
  CudaStepRows() = default;

  // Queues the copy of `batch`, which may be gone when it returns. Rows and outputs behind its own,
  // up to `filled_rows`, harm nobody: token 0 at position 0 that is stored nowhere. A third batch
  // waits until the first one's copy is done.
  // REQUIRES: batch.rows() and filled_rows are at most rows_max; slots fit 31 bits.
  Status upload(CudaStream& stream, const KvBatch& batch, std::int64_t filled_rows);

  const StepPlaces& places() const noexcept { return places_; }

 private:
  std::int64_t rows_max_ = 0;
  PinnedTurns images_;
  CudaMemory memory_;
  StepPlaces places_;
};

}  // namespace stemma
