#include "server/recent_namespaces.h"

#include <algorithm>

namespace stemma {

std::vector<RecentNamespaces::Sibling> RecentNamespaces::note(const std::string& tenant,
                                                              const CacheFields& fields, bool all) {
  const Pair own = {fields.salt, fields.extra_key};
  std::vector<Sibling> siblings;
  const std::lock_guard lock(mutex_);
  std::deque<Pair>& pairs = by_tenant_[tenant];
  for (const Pair& pair : pairs) {
    const bool same_salt = pair.salt == own.salt;
    if (pair == own || (!same_salt && !all)) continue;
    const bool same_key = pair.extra_key == own.extra_key;
    siblings.push_back({pair.salt, pair.extra_key,
                        same_salt  ? "extra_key"
                        : same_key ? "cache_salt"
                                   : "cache_salt, extra_key"});
  }
  std::erase(pairs, own);
  pairs.push_front(own);
  if (pairs.size() > kKept) pairs.pop_back();
  return siblings;
}

}  // namespace stemma
