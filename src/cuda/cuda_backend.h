// CudaBackend: a GPU as what a model is computed on.
//
// Thread:     as what it makes.
// Memory:     that of what it makes.
// Cost:       load_model reads every weight once.
// Not here:   which programs have one (open_cuda_backend), the computation (cuda_runner).
#pragma once

#include <memory>

#include "cuda/cuda_runner.h"
#include "device/cuda_device.h"
#include "device/rank_group.h"
#include "model/device_backend.h"
#include "stemma/result.h"

namespace stemma {

// The device must outlive it.
std::unique_ptr<DeviceBackend> make_cuda_backend(CudaDevice& device,
                                                 const CudaRunnerOptions& options);

// The same over a device that it opens and keeps. Errors are those of CudaDevice::open.
Result<std::unique_ptr<DeviceBackend>> make_cuda_backend(int ordinal,
                                                         const CudaRunnerOptions& options);

// The same for a rank of several, each of which takes the GPU of its own number. kNotFound, with
// both numbers, where there are fewer GPUs than ranks.
Result<std::unique_ptr<DeviceBackend>> make_cuda_backend(const RankGroup& ranks,
                                                         const CudaRunnerOptions& options);

}  // namespace stemma
