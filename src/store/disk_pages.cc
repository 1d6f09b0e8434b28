#include "store/disk_pages.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace stemma {

namespace {

// Descriptions without pages that are kept.
constexpr std::size_t kNamespacesMax = 4096;

}  // namespace

DiskPages::Page* DiskPages::find_or_null(const PageKey& key) {
  const auto found = pages_.find(key);
  return found == pages_.end() ? nullptr : &found->second;
}

std::int64_t DiskPages::pages_of_size(std::int64_t slot_bytes) const {
  const auto found = sizes_.find(slot_bytes);
  return found == sizes_.end() ? 0 : found->second.pages;
}

void DiskPages::insert(const IndexedPage& page, std::int64_t slot_bytes, Warmth warmth) {
  const auto [at, inserted] = pages_.try_emplace(page.key);
  STEMMA_CHECK(inserted, "a key has one page");
  Namespace& owner = namespaces_[page.namespace_digest];
  owner.digest = page.namespace_digest;
  ++owner.pages;
  at->second = {.key = page.key,
                .slot = page.slot,
                .slot_bytes = slot_bytes,
                .generation = page.generation,
                .stored_at_s = page.stored_at_s,
                .ordinal = page.ordinal,
                .unread = page.unread,
                .stamp = next_stamp_++,
                .owner = &owner,
                .warmth = warmth};
  ++sizes_[slot_bytes].pages;
  add_to_slab(at->second);
  link(at->second);
}

void DiskPages::touch(Page& page) {
  set_current(*page.owner);
  unlink(page);
  page.warmth = Warmth::kUsed;
  link(page);
}

void DiskPages::erase(Page& page) {
  unlink(page);
  take_from_slab(page);
  --sizes_[page.slot_bytes].pages;
  Namespace& owner = *page.owner;
  if (--owner.pages == 0 && owner.description.empty()) {
    namespaces_.erase(NamespaceDigest(owner.digest));
  }
  pages_.erase(PageKey(page.key));
}

DiskPages::Page* DiskPages::coldest_or_null(std::int64_t slot_bytes) {
  pass_over_some(slot_bytes, pages_of_size(slot_bytes));
  const auto found = sizes_.find(slot_bytes);
  if (found == sizes_.end()) return nullptr;
  for (const Queue& queue : found->second.queues) {
    if (queue.coldest != nullptr) return queue.coldest;
  }
  return nullptr;
}

// A page of a namespace that was named since the opening goes behind those of the others.
bool DiskPages::pass_over_some(std::int64_t slot_bytes, std::int64_t pages_max) {
  const auto found = sizes_.find(slot_bytes);
  if (found == sizes_.end()) return false;
  const Queue& loaded = found->second.queues[static_cast<std::size_t>(Warmth::kLoaded)];
  const auto more = [&] { return loaded.coldest != nullptr && loaded.coldest->owner->current; };
  for (std::int64_t i = 0; i < pages_max && more(); ++i) {
    Page& page = *loaded.coldest;
    unlink(page);
    page.warmth = Warmth::kOld;
    link(page);
  }
  return more();
}

DiskPages::Namespace& DiskPages::make_current(const NamespaceDigest& digest) {
  Namespace& named = namespaces_[digest];
  named.digest = digest;
  set_current(named);
  return named;
}

void DiskPages::set_current(Namespace& named) {
  if (std::exchange(named.current, true)) return;
  for (const auto& [slab, pages] : named.pages_of_slab) slabs_.at(slab).current_pages += pages;
}

DiskPages::Namespace* DiskPages::describe_or_null(const NamespaceDigest& digest,
                                                  std::string_view description) {
  if (!namespaces_.contains(digest) && namespaces_.size() >= kNamespacesMax) return nullptr;
  Namespace& named = make_current(digest);
  description = description.substr(0, kDescriptionBytesMax);
  if (named.description != description) {
    named.description = description;
    named.description_stored = false;
  }
  return &named;
}

bool DiskPages::slab_is_in_use(std::int32_t slab) const {
  const auto found = slabs_.find(slab);
  return found != slabs_.end() && found->second.current_pages > 0;
}

std::vector<DiskPages::Page*> DiskPages::pages_of_slab(std::int32_t slab) {
  std::vector<Page*> found;
  const auto held = slabs_.find(slab);
  if (held == slabs_.end()) return found;
  found.reserve(static_cast<std::size_t>(held->second.pages));
  for (Page* const page : held->second.by_slot) {
    if (page != nullptr) found.push_back(page);
  }
  return found;
}

DiskPages::Page* DiskPages::find_in_slot_or_null(SlotRef slot) {
  const auto held = slabs_.find(slot.slab);
  const auto at = static_cast<std::size_t>(slot.slot);
  if (held == slabs_.end() || at >= held->second.by_slot.size()) return nullptr;
  return held->second.by_slot[at];
}

// A family is how its digests begin, which are in order.
std::set<std::int32_t> DiskPages::slabs_of(std::span<const NamespaceFamily> families) const {
  std::set<std::int32_t> slabs;
  if (families.empty()) {
    for (const auto& [number, slab] : slabs_) slabs.insert(number);
  }
  for (const NamespaceFamily& family : families) {
    NamespaceDigest least;
    std::ranges::copy(family.bytes, least.bytes.begin());
    for (auto named = namespaces_.lower_bound(least);
         named != namespaces_.end() && family_of(named->first) == family; ++named) {
      for (const auto& [number, pages] : named->second.pages_of_slab) slabs.insert(number);
    }
  }
  return slabs;
}

std::int32_t DiskPages::visit_slots(std::int32_t slab, std::int32_t first_slot,
                                    std::int32_t slots_max, FunctionRef<void(Page&)> visitor) {
  const auto held = slabs_.find(slab);
  if (held == slabs_.end()) return 0;
  const std::vector<Page*>& by_slot = held->second.by_slot;
  const auto first = std::min(static_cast<std::size_t>(first_slot), by_slot.size());
  const auto end = std::min(first + static_cast<std::size_t>(slots_max), by_slot.size());
  for (Page* const page : std::span(by_slot).subspan(first, end - first)) {
    if (page != nullptr) visitor(*page);
  }
  return end == by_slot.size() ? 0 : static_cast<std::int32_t>(end);
}

// Many buckets are empty: looking at them costs too, and ends a call as pages do.
std::size_t DiskPages::visit_some(std::size_t first_bucket, std::int64_t pages_max,
                                  FunctionRef<void(const Page&)> visitor) const {
  constexpr std::size_t kBucketsMax = 1 << 16;
  const std::size_t end = std::min(pages_.bucket_count(), first_bucket + kBucketsMax);
  std::int64_t visited = 0;
  std::size_t bucket = first_bucket;
  for (; bucket < end && visited < pages_max; ++bucket) {
    for (auto at = pages_.begin(bucket); at != pages_.end(bucket); ++at) {
      visitor(at->second);
      ++visited;
    }
  }
  return bucket == pages_.bucket_count() ? 0 : bucket;
}

const DiskPages::Page* DiskPages::find_coldest_or_null(FunctionRef<bool(const Page&)> suits) const {
  for (const auto& [slot_bytes, size] : sizes_) {
    for (const Queue& queue : size.queues) {
      for (const Page* page = queue.coldest; page != nullptr; page = page->warmer) {
        if (suits(*page)) return page;
      }
    }
  }
  return nullptr;
}

void DiskPages::add_to_slab(Page& page) {
  Slab& slab = slabs_[page.slot.slab];
  const auto slot = static_cast<std::size_t>(page.slot.slot);
  if (slab.by_slot.size() <= slot) slab.by_slot.resize(slot + 1);
  STEMMA_CHECK(slab.by_slot[slot] == nullptr, "a slot has one page");
  slab.by_slot[slot] = &page;
  ++slab.pages;
  slab.current_pages += page.owner->current ? 1 : 0;
  ++page.owner->pages_of_slab[page.slot.slab];
}

void DiskPages::take_from_slab(const Page& page) {
  const auto slab = slabs_.find(page.slot.slab);
  slab->second.by_slot[static_cast<std::size_t>(page.slot.slot)] = nullptr;
  slab->second.current_pages -= page.owner->current ? 1 : 0;
  if (--slab->second.pages == 0) slabs_.erase(slab);
  auto& of_owner = page.owner->pages_of_slab;
  const auto owned = of_owner.find(page.slot.slab);
  if (--owned->second == 0) of_owner.erase(owned);
}

DiskPages::Queue& DiskPages::queue_of(const Page& page) {
  return sizes_[page.slot_bytes].queues[static_cast<std::size_t>(page.warmth)];
}

void DiskPages::link(Page& page) {
  Queue& queue = queue_of(page);
  page.linked = links_++;
  page.colder = queue.warmest;
  page.warmer = nullptr;
  (queue.warmest == nullptr ? queue.coldest : queue.warmest->warmer) = &page;
  queue.warmest = &page;
}

void DiskPages::unlink(Page& page) {
  Queue& queue = queue_of(page);
  (page.colder == nullptr ? queue.coldest : page.colder->warmer) = page.warmer;
  (page.warmer == nullptr ? queue.warmest : page.warmer->colder) = page.colder;
}

}  // namespace stemma
