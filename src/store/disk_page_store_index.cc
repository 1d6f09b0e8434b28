// What is in the index and what is in memory part only while a commit is under way or after one has
// failed: then memory has less, and the slots in question are not used until the index has been
// written anew from memory.
#include <algorithm>
#include <utility>

#include "stemma/log.h"
#include "store/disk_page_store.h"
#include "store/disk_store_sizes.h"

namespace stemma {

// Whether anything may be written now. While an operation that was given up is still out there,
// nothing is: it could undo what comes after it.
bool DiskPageStore::ready(std::int64_t deadline_us) {
  if (read_only_ || files_->overdue(DiskLane::kWrite) > 0) return false;
  {
    const std::lock_guard lock(mutex_);
    close_retired();
  }
  remove_leftovers(deadline_us);
  if (index_.usable() && doubtful_.empty() && !index_.is_rewriting()) return true;
  if (!compact(deadline_us).ok()) return false;
  settle(std::exchange(doubtful_, {}), /*durable=*/true);
  return true;
}

// Makes `cells` durable, and the removals of pages that were dropped since the last time.
Status DiskPageStore::commit(const IndexCells& cells, std::int64_t deadline_us) {
  std::vector<Dropped> dropped;
  IndexCells all;
  {
    const std::lock_guard lock(mutex_);
    dropped = std::exchange(dropped_, {});
    changed_ = true;
  }
  std::vector<SlotRef> slots;
  for (const Dropped& page : dropped) {
    all.remove(page.key);
    if (page.reusable) slots.push_back(page.slot);
  }
  all.add(cells);
  Status done = append(all, deadline_us);
  settle(slots, done.ok());
  return done;
}

Status DiskPageStore::append(const IndexCells& cells, std::int64_t deadline_us) {
  std::int64_t bytes_max = 0;
  {
    const std::lock_guard lock(mutex_);
    bytes_max = index_bytes_max(slabs_.slots());
  }
  const bool full = index_.file_bytes() + std::ssize(cells.bytes()) > bytes_max;
  if (full) STEMMA_RETURN_IF_ERROR(compact(deadline_us));
  Status done = index_.append(cells, deadline_us);
  if (!done.ok() && is_disk_full(done.error().sys_errno) && !index_.sync_failed()) {
    index_was_full_ = !drop_coldest_slab(deadline_us);
    if (!index_was_full_) done = compact(deadline_us);
    if (done.ok()) done = index_.append(cells, deadline_us);
  }
  if (index_.sync_failed()) become_read_only("index", done.error());
  index_bytes_ = index_.file_bytes();
  return done;
}

// Writes the index anew from memory; a full disk loses its coldest slab for it.
Status DiskPageStore::compact(std::int64_t deadline_us) {
  Status done = rewrite(deadline_us);
  if (!done.ok() && is_disk_full(done.error().sys_errno) && !index_.sync_failed() &&
      drop_coldest_slab(deadline_us)) {
    done = rewrite(deadline_us);
  }
  if (index_.sync_failed()) become_read_only("index", done.error());
  return done;
}

// A large index may take several calls; until it is there nothing else is written, so that what it
// is made from is still all that there is.
Status DiskPageStore::rewrite(std::int64_t deadline_us) {
  if (!index_.is_rewriting()) snapshot_ = {describe_all(), all_pages(), 0};
  Status done = index_.rewrite(
      [this](IndexCells& cells) {
        cells.add(snapshot_.descriptions);
        snapshot_.descriptions.clear();
        if (snapshot_.next == snapshot_.pages.size()) return false;
        cells.put(snapshot_.pages[snapshot_.next++].page);
        return true;
      },
      deadline_us);
  if (!index_.is_rewriting()) snapshot_ = {};
  index_bytes_ = index_.file_bytes();
  counters_.rewrites += done.ok() ? 1 : 0;
  awaits_room_ = awaits_room_ && !done.ok();
  return done;
}

IndexCells DiskPageStore::describe_all() {
  IndexCells descriptions;
  const std::lock_guard lock(mutex_);
  for (auto& [digest, named] : pages_.namespaces()) {
    const bool room = std::ssize(descriptions.bytes()) < kDescriptionsBytesMax;
    named.description_stored = named.pages > 0 && room;
    if (named.description_stored) descriptions.describe(digest, named.description);
  }
  changed_ = false;
  return descriptions;
}

// Coldest first within each size. Look-ups come in between pieces of it: what they touch meanwhile
// has its rank from before or from after. A page that a reader drops meanwhile is removed by the
// next commit, whether it is here or not; none is added without the turn to write.
std::vector<DiskPageStore::RankedPage> DiskPageStore::all_pages() {
  std::vector<RankedPage> pages;
  std::size_t bucket = 0;
  do {
    const std::lock_guard lock(mutex_);
    bucket = pages_.visit_some(bucket, kIndexPiecePages, [&](const DiskPages::Page& page) {
      pages.push_back({DiskPages::rank_of(page),
                       {page.key, page.owner->digest, page.slot, page.generation, page.stored_at_s,
                        page.ordinal, page.unread}});
    });
  } while (bucket != 0);
  std::ranges::sort(pages, {}, &RankedPage::rank);
  return pages;
}

// Slabs that are not to go for others: the call that runs has slots in them, or their room would
// not be free, as what a reader gave up has them open.
std::set<std::int32_t> DiskPageStore::slabs_to_keep() const {
  std::set<std::int32_t> kept = slabs_of_call_;
  for (const auto& [number, slab] : slabs_.slabs()) {
    if (files_->is_held(slab.file)) kept.insert(number);
  }
  return kept;
}

// Gives a full disk room: the slab of the coldest page goes. False if there is none that may, and
// while the one before is read: its room is still to come. Where it was the only one, the index has
// no room beside such a slab: the next is smaller, or there is none for a while.
bool DiskPageStore::drop_coldest_slab(std::int64_t deadline_us) {
  std::int32_t chosen = -1;
  {
    const std::lock_guard lock(mutex_);
    close_retired();
    if (reading_ && !retired_.empty()) return false;
    if (std::exchange(awaits_room_, false) && retired_.empty()) return true;  // it has come
    const std::set<std::int32_t> kept = slabs_to_keep();
    for (const auto& [number, slab] : slabs_.slabs()) {
      if (!kept.contains(number)) chosen = number;
    }
    const DiskPages::Page* const coldest = pages_.find_coldest_or_null(
        [&](const DiskPages::Page& page) { return !kept.contains(page.slot.slab); });
    if (coldest != nullptr) chosen = coldest->slot.slab;
    if (chosen < 0) return false;
    if (slabs_.slabs().size() == 1) slab_bytes_max_ = slabs_.bytes() / 2;
  }
  ignore_error(drop_slab(chosen, counters_.evicted_pages, deadline_us), "its bytes count on");
  grow_again_us_ = clock_.now_us() + kGrowAgainUs;
  // A size that has lost its only slab may have another.
  const bool another = slab_bytes_max_ >= least_slab_bytes(options_.slab_bytes);
  drop_again_us_ = another ? clock_.now_us() : grow_again_us_;
  return true;
}

// A slab's pages go without a word in the index: records of a slab that is not there say nothing.
Status DiskPageStore::drop_slab(std::int32_t number, std::atomic<std::int64_t>& counter,
                                std::int64_t deadline_us) {
  std::string name;
  std::int64_t bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    const DiskSlabs::Slab& slab = slabs_.slabs().at(number);
    name = slab.name.text();
    bytes = slab.bytes();
    for (DiskPages::Page* const page : pages_.pages_of_slab(number)) {
      pages_.erase(*page);
      ++counter;
    }
    std::erase_if(dropped_, [&](const Dropped& page) { return page.slot.slab == number; });
    retired_.push_back({slabs_.take_out(number), bytes});
    close_retired();
    awaits_room_ = reading_;
    changed_ = true;
  }
  std::erase_if(doubtful_, [&](SlotRef slot) { return slot.slab == number; });
  Status removed = files_->remove(name, deadline_us);
  removals_unsynced_ = true;
  if (removed.ok()) return removed;
  STEMMA_LOG(kWarning, "tier.disk.cannot_remove", kv("error", to_string(removed.error())));
  note_leftover({name, bytes});
  return removed;
}

void DiskPageStore::become_read_only(std::string_view what, const Error& error) {
  if (read_only_.exchange(true)) return;
  STEMMA_LOG(kError, "tier.disk.read_only", kv("directory", files_->directory()), kv("of", what),
             kv("error", to_string(error)));
}

// Slots whose pages have gone: free again if the index durably does not name them, else in doubt.
void DiskPageStore::settle(std::span<const SlotRef> slots, bool durable) {
  if (!durable) {
    doubtful_.insert(doubtful_.end(), slots.begin(), slots.end());
    return;
  }
  const std::lock_guard lock(mutex_);
  for (const SlotRef slot : slots) slabs_.give_back(slot);
}

}  // namespace stemma
