#include "prefix/prefix_cache_factory.h"

#include <utility>

#include "prefix/no_prefix_cache.h"
#include "prefix/radix_prefix_cache.h"

namespace stemma {

Result<std::unique_ptr<PrefixCache>> make_prefix_cache(std::string_view name,
                                                       const PrefixCacheOptions& options) {
  if (name != "radix" && name != "none") {
    return Error{ErrorCode::kNotFound, "cache: unknown kind \"" + std::string(name) +
                                           "\" (known: " + known_prefix_caches() + ")"};
  }
  // Options are checked alike for both, so that switching the cache off hides no mistake.
  STEMMA_RETURN_IF_ERROR(check_options(options));
  if (name == "none") return std::unique_ptr<PrefixCache>(std::make_unique<NoPrefixCache>(options));
  STEMMA_ASSIGN_OR_RETURN(auto cache, RadixPrefixCache::open(options));
  return std::unique_ptr<PrefixCache>(std::move(cache));
}

std::string known_prefix_caches() {
  return "radix, none";
}

}  // namespace stemma
