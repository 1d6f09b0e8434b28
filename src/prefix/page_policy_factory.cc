#include "prefix/page_policy_factory.h"

#include "prefix/hazard_policy.h"
#include "prefix/s3fifo_policy.h"
#include "prefix/tlru_policy.h"

namespace stemma {

std::unique_ptr<PagePolicy> make_page_policy(const EvictionOrder& order,
                                             const PrefixCacheOptions& options,
                                             std::int64_t nodes_max) {
  static const MonotonicClock monotonic;
  if (order.keyed()) return nullptr;
  const PagePolicyOptions policy = {.pages = options.allocator.total_pages(),
                                    .nodes_max = nodes_max,
                                    .page_size = options.page_size,
                                    .clock = options.clock == nullptr ? &monotonic : options.clock};
  if (order.policy() == EvictionPolicy::kTlru) return std::make_unique<TlruPolicy>(policy);
  if (order.policy() == EvictionPolicy::kS3Fifo) return std::make_unique<S3FifoPolicy>(policy);
  return std::make_unique<HazardPolicy>(policy);
}

}  // namespace stemma
