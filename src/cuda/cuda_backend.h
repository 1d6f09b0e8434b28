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
#include "model/device_backend.h"
#include "stemma/result.h"

namespace stemma {

// The device must outlive it.
std::unique_ptr<DeviceBackend> make_cuda_backend(CudaDevice& device,
                                                 const CudaRunnerOptions& options);

// The same over a device that it opens and keeps. Errors are those of CudaDevice::open.
Result<std::unique_ptr<DeviceBackend>> make_cuda_backend(int ordinal,
                                                         const CudaRunnerOptions& options);

}  // namespace stemma
