#include "cli/device_flags.h"

#include "cuda/named_backend.h"

namespace stemma {

void DeviceFlags::add_to(Flags& command) {
  command.add("--device", device_, "cpu, cuda or cuda:N, the GPU of that number")
      .capture_default_str();
  command.add("--deterministic", deterministic_,
              "on a GPU: the same bits whatever is cached and whoever shares the batch, as a "
              "CPU gives them always; products are slower");
}

Result<std::unique_ptr<DeviceBackend>> DeviceFlags::open(const RankGroup* ranks_or_null) const {
  CudaRunnerOptions options;
  options.deterministic = deterministic_;
  return open_named_backend(device_, options, ranks_or_null);
}

}  // namespace stemma
