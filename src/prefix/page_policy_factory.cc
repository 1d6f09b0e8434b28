#include "prefix/page_policy_factory.h"

#include "prefix/hazard_policy.h"

namespace stemma {

std::unique_ptr<PagePolicy> make_page_policy(const EvictionOrder& order,
                                             const PrefixCacheOptions& options,
                                             std::int64_t nodes_max) {
  static const MonotonicClock monotonic;
  if (order.keyed()) return nullptr;
  return std::make_unique<HazardPolicy>(
      HazardPolicy::Options{.pages = options.allocator.total_pages(),
                            .nodes_max = nodes_max,
                            .page_size = options.page_size,
                            .clock = options.clock == nullptr ? &monotonic : options.clock});
}

}  // namespace stemma
