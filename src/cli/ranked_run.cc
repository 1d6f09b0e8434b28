#include "cli/ranked_run.h"

#include <utility>

namespace stemma {

bool follows(const RankGroup* ranks_or_null) {
  return ranks_or_null != nullptr && ranks_or_null->rank() > 0;
}

Status follow(Result<ServedModelOptions> options, RankGroup& ranks) {
  if (!options.ok()) {
    told(&ranks, options.error());
    return {};
  }
  options->ranks = &ranks;
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
