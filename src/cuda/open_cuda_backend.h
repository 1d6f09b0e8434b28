// The GPU of a program: what `--device cuda` computes on. A library of its own (stemma_gpu), so
// that only programs that can use a GPU link CUDA.
//
// Thread:     as CudaBackend.
// Memory:     as CudaBackend.
// Cost:       opening the device takes a second.
// Not here:   the backend itself (cuda_backend).
#pragma once

#include <memory>

#include "cuda/cuda_backend.h"
#include "stemma/result.h"

namespace stemma {

// kUnsupported where the build has no CUDA, kNotFound where the machine has no such GPU.
Result<std::unique_ptr<DeviceBackend>> open_cuda_backend(int ordinal,
                                                         const CudaRunnerOptions& options);
// That of a rank of several, each of which takes the GPU of its own number; kNotFound too where
// there are fewer GPUs than ranks.
Result<std::unique_ptr<DeviceBackend>> open_cuda_backend(const RankGroup& ranks,
                                                         const CudaRunnerOptions& options);

}  // namespace stemma
