// The flags of what a model is computed on, for every command that runs one.
//
// Thread:     the main thread.
// Memory:     a few strings.
// Cost:       none.
// Not here:   what they open (model/device_backend, cuda/open_cuda_backend).
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "device/rank_group.h"
#include "model/device_backend.h"
#include "stemma/result.h"

namespace stemma {

class DeviceFlags {
 public:
  void add_to(CLI::App& command);
  // The device that was said, of several ranks this one's; nullptr: CPUs. kInvalidArgument names
  // the flag, kUnsupported says that the build has no such devices, kNotFound that the machine has
  // not, or not enough.
  Result<std::unique_ptr<DeviceBackend>> open(const RankGroup* ranks_or_null) const;

 private:
  bool is_cpu() const noexcept { return device_ == "cpu"; }

  std::string device_ = "cpu";
  bool deterministic_ = false;
};

}  // namespace stemma
