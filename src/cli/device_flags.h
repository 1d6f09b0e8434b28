// The flags of what a model is computed on, for every command that runs one.
//
// Thread:     the main thread.
// Memory:     a few strings.
// Cost:       none.
// Not here:   what they open (model/device_backend, cuda/named_backend).
#pragma once

#include <memory>
#include <string>

#include "cli/flags.h"
#include "device/rank_group.h"
#include "model/device_backend.h"
#include "stemma/result.h"

namespace stemma {

class DeviceFlags {
 public:
  void add_to(Flags& command);
  // The device that was said, of several ranks this one's; nullptr: CPUs. Errors are those of
  // open_named_backend.
  Result<std::unique_ptr<DeviceBackend>> open(const RankGroup* ranks_or_null) const;

 private:
  std::string device_ = "cpu";
  bool deterministic_ = false;
};

}  // namespace stemma
