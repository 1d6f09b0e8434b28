// The device that a name means: "cpu", "cuda" (the first GPU, or of several ranks each its own),
// "cuda:N". Of the library stemma_gpu, as open_cuda_backend.
//
// Thread:     as CudaBackend.
// Memory:     as CudaBackend.
// Cost:       none for "cpu"; opening a GPU takes a second.
// Not here:   flags (cli/device_flags), what a device does (model/device_backend).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "cuda/cuda_backend.h"
#include "device/rank_group.h"
#include "model/device_backend.h"
#include "stemma/result.h"

namespace stemma {

// The number of a GPU; nullopt: CPUs. kInvalidArgument for another name.
Result<std::optional<int>> parse_device(std::string_view name);

// nullptr: CPUs. kInvalidArgument for another name, and for one GPU that all ranks are to take;
// kUnsupported where the build has no such devices; kNotFound where the machine has not, or not
// enough.
Result<std::unique_ptr<DeviceBackend>> open_named_backend(const std::string& name,
                                                          const CudaRunnerOptions& options,
                                                          const RankGroup* ranks_or_null = nullptr);

}  // namespace stemma
