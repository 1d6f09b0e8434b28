#include "stemma/runner.h"

namespace stemma {

Status Runner::queue(const KvBatch&, KvPools, const StepWish&) {
  return Error{ErrorCode::kUnsupported, "this runner queues no steps"};
}

Result<StepOutputs> Runner::wait() {
  return Error{ErrorCode::kUnsupported, "this runner queues no steps"};
}

Status Runner::copy_pages(KvPools pools, const PageCopies& copies) {
  if (copies.from.valid()) {
    STEMMA_RETURN_IF_ERROR(pools.full.copy_page(copies.from, copies.to));
  }
  if (!copies.windowed_from.valid()) return {};
  return pools.windowed->copy_page(copies.windowed_from, copies.windowed_to);
}

Result<std::optional<std::int64_t>> Runner::first_different_layer(KvPools pools,
                                                                  const PagePair& pages) {
  KvPool& pool = pages.windowed ? *pools.windowed : pools.full;
  return pool.first_different_layer(pages.a, pages.b);
}

}  // namespace stemma
