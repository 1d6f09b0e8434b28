// DeviceBackend: what a model is computed on: it loads a runner and makes the pools that the runner
// reads and writes.
//
// Thread:     as what it makes.
// Memory:     that of what it makes.
// Cost:       load_model reads every weight once.
// Not here:   backends of devices that need a library of their own.
#pragma once

#include <memory>
#include <string>

#include "base/thread_pool.h"
#include "model/loaded_runner.h"
#include "model/model_runner.h"
#include "pool/heavy_channels.h"
#include "stemma/device.h"
#include "stemma/kv_pool.h"
#include "stemma/result.h"

namespace stemma {

class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;

  virtual DeviceKind kind() const noexcept = 0;

  // Errors are one line that names the file and the field, or the flag that it cannot do. What it
  // gives, and all pools, must not outlive this.
  virtual Result<std::unique_ptr<LoadedRunner>> load_model(const std::string& directory,
                                                           const ModelRunnerOptions& options,
                                                           ThreadPool& threads) = 0;
  // A zeroed pool; `channels` are for pools of KvKind::kDoubleSparse.
  virtual Result<std::unique_ptr<KvPool>> make_pool(const KvShape& shape, KvLayout layout,
                                                    ThreadPool& threads,
                                                    const HeavyChannels& channels) = 0;
};

// The one that computes on CPUs. Lives as long as the program.
DeviceBackend& cpu_backend();

}  // namespace stemma
