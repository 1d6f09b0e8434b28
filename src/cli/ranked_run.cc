#include "cli/ranked_run.h"

#include <utility>

namespace stemma {

bool follows(const RankGroup* ranks_or_null) {
  return ranks_or_null != nullptr && ranks_or_null->rank() > 0;
}

Status follow(Result<ServedModelOptions> options,
              const Result<std::unique_ptr<DeviceBackend>>& device, RankGroup& ranks) {
  if (!options.ok() || !device.ok()) {
    told(&ranks, options.ok() ? device.error() : options.error());
    return {};
  }
  options->ranks = &ranks;
  options->backend = device->get();
  options->progress = {};
  const auto model = ServedModel::open(*options);
  return model.ok() ? (*model)->follow() : Status();
}

Error told(RankGroup* ranks_or_null, Error error) {
  if (ranks_or_null != nullptr) {
    ignore_error(agree(*ranks_or_null, error), "the caller goes on with the error itself");
  }
  return error;
}

}  // namespace stemma
