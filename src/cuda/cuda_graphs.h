// CudaGraphs: decode steps recorded once for each number of rows worth telling apart (a bucket),
// and queued as one thing from then on. Where there is no memory for another graph, steps of that
// bucket are queued as they are.
//
// Thread:     as the stream.
// Memory:     the runtime's, about a hundred bytes for each thing queued in a step and bucket.
// Cost:       the first step of a bucket is queued as it is, the second recorded too.
// Not here:   what a step queues (cuda_transformer), what fills a bucket up (cuda_step_rows).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/function_ref.h"
#include "device/cuda_device.h"
#include "stemma/result.h"

namespace stemma {

class CudaGraphs {
 public:
  // `rows_max`: of a step; 0: nothing is recorded.
  explicit CudaGraphs(std::int64_t rows_max);

  // The rows that a step of `rows` is filled up to, so that few graphs do: 1, 2, 4, 8, then
  // multiples of 8 up to 256, and at most rows_max; 0 for a step that is not recorded.
  std::int64_t bucket_of(std::int64_t rows) const;

  // Queues what `queue_step` queues, which depends on `bucket` alone and may be recorded, and that
  // again without being queued. Errors are those of queue_step and of recording.
  // REQUIRES: bucket_of gave `bucket`.
  Status run(CudaStream& stream, std::int64_t bucket, FunctionRef<Status()> queue_step);

  // Forgets what was recorded; what is queued of it is computed still.
  void clear();

 private:
  struct Entry {
    CudaGraph graph;  // empty: not recorded yet
    bool seen = false;
  };

  static Status replay(CudaStream& stream, Entry& entry, FunctionRef<Status()> queue_step);

  std::vector<Entry> entries_;  // by bucket
  bool full_ = false;           // there is no memory for another graph
};

}  // namespace stemma
