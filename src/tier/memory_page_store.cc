#include "tier/memory_page_store.h"

#include <algorithm>

#include "tier/page_frame.h"

namespace stemma {

// From the last key to the first: what continues a page is to be older than the page.
Result<std::int64_t> MemoryPageStore::lookup(std::span<const PageKey> keys, std::int64_t) {
  const std::lock_guard lock(mutex_);
  const auto missing = std::find_if(keys.begin(), keys.end(),
                                    [&](const PageKey& key) { return !pages_.contains(key); });
  for (auto key = missing; key != keys.begin();) touch(pages_.at(*--key));
  return missing - keys.begin();
}

void MemoryPageStore::read(std::span<PageRead> reads, std::int64_t) {
  const std::lock_guard lock(mutex_);
  for (PageRead& read : reads) {
    const auto found = pages_.find(read.key);
    const bool fits = found != pages_.end() && found->second.frame.size() == read.frame.size();
    read.verdict = fits ? PageVerdict::kDone : PageVerdict::kMissing;
    if (fits) std::copy(found->second.frame.begin(), found->second.frame.end(), read.frame.begin());
  }
}

void MemoryPageStore::write(std::span<PageWrite> writes, std::int64_t) {
  const std::lock_guard lock(mutex_);
  for (PageWrite& write : writes) {
    write.verdict = PageVerdict::kDone;
    if (pages_.contains(write.key)) continue;
    const auto bytes = static_cast<std::int64_t>(write.frame.size());
    if (!make_room(bytes)) {
      write.verdict = PageVerdict::kRefused;
      continue;
    }
    bytes_ += bytes;
    pages_[write.key] = {.frame = {write.frame.begin(), write.frame.end()},
                         .use = uses_.insert(uses_.end(), write.key)};
  }
}

void MemoryPageStore::remove(std::span<const PageRemoval> removals, std::int64_t) {
  const std::lock_guard lock(mutex_);
  for (const PageRemoval& removal : removals) {
    const auto found = pages_.find(removal.key);
    if (found == pages_.end() || !std::ranges::equal(found->second.frame, removal.frame)) continue;
    bytes_ -= static_cast<std::int64_t>(found->second.frame.size());
    uses_.erase(found->second.use);
    pages_.erase(found);
  }
}

PurgeOutcome MemoryPageStore::purge(std::span<const NamespaceFamily> namespaces,
                                    std::int64_t deadline_us) {
  return purge_behind(namespaces, 0, deadline_us);
}

PurgeOutcome MemoryPageStore::purge_behind(std::span<const NamespaceFamily> namespaces,
                                           std::int64_t pages_before, std::int64_t) {
  const std::lock_guard lock(mutex_);
  const bool all = namespaces.empty() && pages_before == 0;
  const std::size_t before = pages_.size();
  std::erase_if(pages_, [&](const auto& entry) {
    const Stored& stored = entry.second;
    if (!all && !peek_is_behind(stored.frame, namespaces, pages_before)) return false;
    bytes_ -= static_cast<std::int64_t>(stored.frame.size());
    uses_.erase(stored.use);
    return true;
  });
  return {.pages = static_cast<std::int64_t>(before - pages_.size())};
}

PageStoreUsage MemoryPageStore::usage() const {
  const std::lock_guard lock(mutex_);
  return {
      .pages = static_cast<std::int64_t>(pages_.size()), .bytes = bytes_, .bytes_max = bytes_max_};
}

void MemoryPageStore::touch(Stored& stored) {
  uses_.splice(uses_.end(), uses_, stored.use);
}

// For what never fits nothing goes.
bool MemoryPageStore::make_room(std::int64_t bytes) {
  if (bytes > bytes_max_) return false;
  while (bytes_ + bytes > bytes_max_) {
    const auto coldest = pages_.find(uses_.front());
    bytes_ -= static_cast<std::int64_t>(coldest->second.frame.size());
    pages_.erase(coldest);
    uses_.pop_front();
  }
  return true;
}

}  // namespace stemma
