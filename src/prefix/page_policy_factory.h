// Makes the page policy of an eviction order: the one place that knows them.
//
// Thread:     any; the policy then belongs to the engine thread.
// Memory:     that of the policy.
// Cost:       reserving it.
// Not here:   names (eviction_order).
#pragma once

#include <cstdint>
#include <memory>

#include "prefix/eviction_order.h"
#include "prefix/page_policy.h"
#include "prefix/prefix_cache_options.h"

namespace stemma {

// Null for an order that is keyed.
std::unique_ptr<PagePolicy> make_page_policy(const EvictionOrder& order,
                                             const PrefixCacheOptions& options,
                                             std::int64_t nodes_max);

}  // namespace stemma
