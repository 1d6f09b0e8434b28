// CudaClock: how long calls take that are queued one behind another, for benchmarks.
//
// Thread:     as the stream.
// Memory:     two events.
// Cost:       waits until the device is done with the calls.
// Not here:   what bounds them (the benchmarks).
#pragma once

#include <cstdint>

#include "base/function_ref.h"
#include "device/cuda_device.h"
#include "stemma/result.h"

namespace stemma {

class CudaClock {
 public:
  // The device must outlive it.
  static Result<CudaClock> create(CudaDevice& device) {
    CudaClock clock;
    STEMMA_ASSIGN_OR_RETURN(clock.start_, device.make_timer());
    STEMMA_ASSIGN_OR_RETURN(clock.end_, device.make_timer());
    return clock;
  }

  // Seconds of one of `calls` calls on `stream`, of which each is told its number. One like the
  // last goes before them and does not count: the device has work while the first are queued.
  Result<double> seconds(CudaStream& stream, int calls, FunctionRef<Status(int)> call) {
    STEMMA_RETURN_IF_ERROR(call(calls - 1));
    STEMMA_RETURN_IF_ERROR(stream.record(start_));
    for (int i = 0; i < calls; ++i) STEMMA_RETURN_IF_ERROR(call(i));
    STEMMA_RETURN_IF_ERROR(stream.record(end_));
    STEMMA_RETURN_IF_ERROR(end_.wait());
    STEMMA_ASSIGN_OR_RETURN(const double ms, end_.milliseconds_since(start_));
    return ms * 1e-3 / calls;
  }

 private:
  CudaEvent start_;
  CudaEvent end_;
};

}  // namespace stemma
