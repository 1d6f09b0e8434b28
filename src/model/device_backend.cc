#include "model/device_backend.h"

#include <utility>

#include "pool/kv_pool_factory.h"

namespace stemma {
namespace {

class CpuBackend final : public DeviceBackend {
 public:
  DeviceKind kind() const noexcept override { return DeviceKind::kCpu; }

  Result<std::unique_ptr<LoadedRunner>> load_model(const std::string& directory,
                                                   const ModelRunnerOptions& options,
                                                   ThreadPool& threads) override {
    STEMMA_ASSIGN_OR_RETURN(std::unique_ptr<LoadedRunner> runner,
                            ModelRunner::load(directory, options, threads));
    return runner;
  }

  Result<std::unique_ptr<KvPool>> make_pool(const KvShape& shape, KvLayout layout,
                                            ThreadPool& threads,
                                            const HeavyChannels& channels) override {
    return make_kv_pool(shape, layout, threads, channels);
  }
};

}  // namespace

DeviceBackend& cpu_backend() {
  static CpuBackend backend;
  return backend;
}

}  // namespace stemma
