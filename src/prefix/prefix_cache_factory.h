// Makes a prefix cache by name: the one place that knows the kinds.
//
// Thread:     any; the cache then belongs to the engine thread.
// Memory:     that of the cache.
// Cost:       reserving it.
// Not here:   eviction orders by name (eviction_order).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "prefix/prefix_cache_options.h"
#include "stemma/prefix_cache.h"
#include "stemma/result.h"

namespace stemma {

// "radix" or "none". An unknown name, of a cache or of an eviction order, is an error that lists
// the known ones; so is an option out of its range.
Result<std::unique_ptr<PrefixCache>> make_prefix_cache(std::string_view name,
                                                       const PrefixCacheOptions& options);

// "radix, none".
std::string known_prefix_caches();

}  // namespace stemma
