#include "cuda/cuda_backend.h"

#include <string>
#include <utility>

#include "pool/cuda_pool.h"

namespace stemma {
namespace {

class CudaBackend final : public DeviceBackend {
 public:
  CudaBackend(CudaDevice& device, const CudaRunnerOptions& options)
      : device_(device), options_(options) {}
  CudaBackend(std::unique_ptr<CudaDevice> device, const CudaRunnerOptions& options)
      : owned_(std::move(device)), device_(*owned_), options_(options) {}

  DeviceKind kind() const noexcept override { return DeviceKind::kCuda; }

  Result<std::unique_ptr<LoadedRunner>> load_model(const std::string& directory,
                                                   const ModelRunnerOptions& options,
                                                   ThreadPool& threads) override {
    STEMMA_ASSIGN_OR_RETURN(std::unique_ptr<LoadedRunner> runner,
                            CudaRunner::load(device_, directory, options, options_, threads));
    return runner;
  }

  Result<std::unique_ptr<KvPool>> make_pool(const KvShape& shape, KvLayout layout, ThreadPool&,
                                            const HeavyChannels& channels) override {
    STEMMA_ASSIGN_OR_RETURN(std::unique_ptr<KvPool> pool,
                            CudaPool::create(device_, shape, layout, channels));
    return pool;
  }

 private:
  std::unique_ptr<CudaDevice> owned_;  // nullptr: somebody else's
  CudaDevice& device_;
  CudaRunnerOptions options_;
};

}  // namespace

std::unique_ptr<DeviceBackend> make_cuda_backend(CudaDevice& device,
                                                 const CudaRunnerOptions& options) {
  return std::make_unique<CudaBackend>(device, options);
}

Result<std::unique_ptr<DeviceBackend>> make_cuda_backend(int ordinal,
                                                         const CudaRunnerOptions& options) {
  STEMMA_ASSIGN_OR_RETURN(std::unique_ptr<CudaDevice> device, CudaDevice::open(ordinal));
  std::unique_ptr<DeviceBackend> backend =
      std::make_unique<CudaBackend>(std::move(device), options);
  return backend;
}

Result<std::unique_ptr<DeviceBackend>> make_cuda_backend(const RankGroup& ranks,
                                                         const CudaRunnerOptions& options) {
  const int devices = CudaDevice::count();
  if (devices < ranks.ranks()) {
    return Error{ErrorCode::kNotFound, "--tensor-parallel " + std::to_string(ranks.ranks()) +
                                           ": every rank takes a GPU of its own, and there are " +
                                           std::to_string(devices)};
  }
  return make_cuda_backend(ranks.rank(), options);
}

}  // namespace stemma
