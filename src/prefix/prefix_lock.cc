// A lock is a hold on a node: made by match and insert, ended exactly once, here.
#include "base/check.h"
#include "stemma/prefix_cache.h"

namespace stemma {

std::int64_t PrefixLock::copy_pages(std::int64_t first_page, std::span<PageId> out) const {
  STEMMA_CHECK(valid(), "pages are read through a lock that holds them (I2)");
  return cache_->copy_pages(node_, tokens_, first_page, out);
}

std::int64_t PrefixLock::copy_page_keys(std::int64_t first_page, std::span<PageKey> out) const {
  STEMMA_CHECK(valid(), "keys are read through a lock that holds their pages");
  return cache_->copy_page_keys(node_, tokens_, first_page, out);
}

void PrefixLock::reset() noexcept {
  if (cache_ != nullptr) cache_->unlock(node_, tokens_, namespace_id_);
  cache_ = nullptr;
  node_ = nullptr;
  tokens_ = 0;
  namespace_id_ = NamespaceId();
}

}  // namespace stemma
