#include "cuda/cuda_graphs.h"

#include <algorithm>

#include "base/math.h"

namespace stemma {
namespace {

constexpr std::int64_t kLargestBucket = 256;

Result<CudaGraph> record(CudaStream& stream, FunctionRef<Status()> queue_step) {
  STEMMA_RETURN_IF_ERROR(stream.begin_recording());
  const Status queued = queue_step();
  Result<CudaGraph> graph = stream.end_recording();  // whatever became of the step
  STEMMA_RETURN_IF_ERROR(queued);
  return graph;
}

}  // namespace

CudaGraphs::CudaGraphs(std::int64_t rows_max)
    : entries_(static_cast<std::size_t>(std::min(rows_max, kLargestBucket)) + 1) {}

std::int64_t CudaGraphs::bucket_of(std::int64_t rows) const {
  const auto largest = static_cast<std::int64_t>(entries_.size()) - 1;
  if (rows < 1 || rows > largest) return 0;
  std::int64_t bucket = 1;
  while (bucket < rows && bucket < 8) bucket *= 2;
  if (bucket < rows) bucket = round_up<std::int64_t>(rows, 8);
  return std::min(bucket, largest);
}

Status CudaGraphs::run(CudaStream& stream, std::int64_t bucket, FunctionRef<Status()> queue_step) {
  Entry& entry = entries_[static_cast<std::size_t>(bucket)];
  // What is loaded or set up when it is used first cannot be recorded.
  if (entry.seen && (!entry.graph.empty() || !full_)) {
    const Status replayed = replay(stream, entry, queue_step);
    if (replayed.ok() || replayed.error().code != ErrorCode::kOutOfMemory) return replayed;
    entry.graph = {};
    full_ = true;
  }
  STEMMA_RETURN_IF_ERROR(queue_step());
  entry.seen = true;
  return {};
}

// kOutOfMemory: nothing was queued.
Status CudaGraphs::replay(CudaStream& stream, Entry& entry, FunctionRef<Status()> queue_step) {
  if (entry.graph.empty()) {
    STEMMA_ASSIGN_OR_RETURN(entry.graph, record(stream, queue_step));
  }
  return stream.replay(entry.graph);
}

void CudaGraphs::clear() {
  for (Entry& entry : entries_) entry = {};
  full_ = false;
}

}  // namespace stemma
