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
  if (order.policy() == EvictionPolicy::kTlru) {
    return std::make_unique<TlruPolicy>(
        TlruPolicy::Options{.pages = options.allocator.total_pages(),
                            .nodes_max = nodes_max,
                            .page_size = options.page_size});
  }
  if (order.policy() == EvictionPolicy::kS3Fifo) {
    return std::make_unique<S3FifoPolicy>(
        S3FifoPolicy::Options{.pages = options.allocator.total_pages(),
                              .nodes_max = nodes_max,
                              .page_size = options.page_size});
  }
  return std::make_unique<HazardPolicy>(
      HazardPolicy::Options{.pages = options.allocator.total_pages(),
                            .nodes_max = nodes_max,
                            .page_size = options.page_size,
                            .clock = options.clock == nullptr ? &monotonic : options.clock});
}

}  // namespace stemma
