// One call of write, in this order:
//   slots     free ones; else a new slab; else those of the coldest pages, whose removal is made
//             durable first
//   bodies    written, then each slab synced
//   commit    one append to the index, one sync; it also removes as many cold pages as the next
//   call
//             will want slots, so that a full store does not pay for two
//   publish   only now the pages are found
// Whatever fails leaves its pages unstored, and its slots taken for as long as anything that was
// given up could still write to them, or the index could still name them.
#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "stemma/log.h"
#include "store/disk_page_store.h"
#include "store/disk_store_sizes.h"
#include "tier/page_frame.h"

namespace stemma {

void DiskPageStore::write(std::span<PageWrite> writes, std::int64_t deadline_us) {
  const std::lock_guard turn(turn_);
  std::vector<Staged> staged = stage(writes);
  if (!staged.empty() && read_only_) {
    for (const Staged& page : staged) page.write->verdict = PageVerdict::kRefused;
  } else if (!staged.empty() && ready(deadline_us)) {
    store(staged, deadline_us);
  }
  confirm_stored(writes);
}

// What is to be stored: not what is there already, not what is no frame, each key once.
std::vector<DiskPageStore::Staged> DiskPageStore::stage(std::span<PageWrite> writes) {
  std::vector<Staged> staged;
  std::set<PageKey> keys;
  const std::int64_t now_s = files_->wall_time_s();
  for (PageWrite& write : writes) {
    write.verdict = PageVerdict::kFailed;
    Staged page;
    if (!keys.insert(write.key).second || !stage_one(write, page)) continue;
    page.page.stored_at_s = now_s;
    staged.push_back(page);
  }
  return staged;
}

bool DiskPageStore::stage_one(PageWrite& write, Staged& staged) {
  {
    const std::lock_guard lock(mutex_);
    note_use();
    DiskPages::Page* const page = pages_.find_or_null(write.key);
    if (page != nullptr) pages_.touch(*page);  // so that it is not evicted for the others
    if (page != nullptr) return false;
  }
  const Result<PageFrameView> view = read_frame(write.frame);
  if (!view.ok() || view->identity.key != write.key) {
    write.verdict = PageVerdict::kRefused;
    STEMMA_LOG(kError, "tier.disk.not_a_frame",
               kv("error", view.ok() ? "another page's key" : to_string(view.error())));
    return false;
  }
  staged.write = &write;
  staged.page.key = write.key;
  staged.page.namespace_digest = view->identity.namespace_digest;
  staged.page.generation = view->generation;
  staged.page.ordinal = view->identity.ordinal;
  return true;
}

// Sets the verdicts that no slot decided, counts, and makes earlier pages warmer than later ones.
void DiskPageStore::confirm_stored(std::span<PageWrite> writes) {
  const std::lock_guard lock(mutex_);
  for (auto write = writes.rbegin(); write != writes.rend(); ++write) {
    DiskPages::Page* const page = pages_.find_or_null(write->key);
    if (page != nullptr) {
      pages_.touch(*page);
      write->verdict = PageVerdict::kDone;
      changed_ = true;
    }
    counters_.refused_pages += write->verdict == PageVerdict::kRefused ? 1 : 0;
    counters_.failed_writes += write->verdict == PageVerdict::kFailed ? 1 : 0;
  }
}

void DiskPageStore::store(std::span<Staged> staged, std::int64_t deadline_us) {
  if (place(staged, deadline_us)) write_bodies(staged, deadline_us);
  publish(staged, deadline_us);
  slabs_of_call_.clear();
  // A slab beside which the index has no room for a single record is of no use.
  if (std::exchange(index_was_full_, false) && usage().pages == 0) drop_coldest_slab(deadline_us);
}

// Finds slots. False after an error; a page for which there is no slot is refused.
bool DiskPageStore::place(std::span<Staged> staged, std::int64_t deadline_us) {
  std::int64_t slot_bytes = 0;
  take_slots(staged);
  for (std::int64_t missing = 0; (missing = missing_slots(staged, slot_bytes)) > 0;) {
    if (grow(slot_bytes, deadline_us) || drop_other_slab(slot_bytes, deadline_us)) {
      take_slots(staged);
      continue;
    }
    IndexCells cells;
    const std::vector<SlotRef> slots = evict(slot_bytes, missing, cells);
    if (slots.empty()) break;
    const bool durable = commit(cells, deadline_us).ok();
    settle(slots, durable);
    if (!durable) return false;
    if (take_slots(staged) == 0) break;
  }
  for (const Staged& page : staged) {
    if (!page.placed) page.write->verdict = PageVerdict::kRefused;
  }
  return true;
}

// Gives free slots to staged pages. How many got one.
std::int64_t DiskPageStore::take_slots(std::span<Staged> staged) {
  const std::lock_guard lock(mutex_);
  std::int64_t taken = 0;
  for (Staged& page : staged) {
    if (page.placed) continue;
    const std::optional<SlotRef> slot = slabs_.try_take(std::ssize(page.write->frame));
    if (!slot.has_value()) continue;
    page.page.slot = *slot;
    page.placed = true;
    slabs_of_call_.insert(slot->slab);
    ++taken;
  }
  return taken;
}

// How many pages of the size of the first one without a slot have none.
std::int64_t DiskPageStore::missing_slots(std::span<const Staged> staged,
                                          std::int64_t& slot_bytes) const {
  std::int64_t missing = 0;
  for (const Staged& page : staged) {
    if (page.placed || page.write->verdict == PageVerdict::kRefused) continue;
    if (missing == 0) slot_bytes = std::ssize(page.write->frame);
    missing += std::ssize(page.write->frame) == slot_bytes ? 1 : 0;
  }
  return missing;
}

// Where the file system has no room for the first slab of a size, one of half as many slots will
// do, and so on.
bool DiskPageStore::grow(std::int64_t slot_bytes, std::int64_t deadline_us) {
  std::int64_t slots = 0;
  std::int64_t least_slots = 1;
  bool none_may_go = false;  // to make room for it
  {
    const std::lock_guard lock(mutex_);
    none_may_go = slabs_.slabs().empty();
    const bool has_none = slabs_.slots_of_size(slot_bytes) == 0;
    if (clock_.now_us() < (has_none ? drop_again_us_ : grow_again_us_)) return false;
    slots = slots_to_add(slot_bytes);
    least_slots = has_none ? std::max<std::int64_t>(least_first_slots(slot_bytes), 1) : slots;
  }
  for (; slots > 0; slots /= 2) {
    const Status added = add_slab(slot_bytes, slots, deadline_us);
    if (added.ok()) return true;
    if (is_disk_full(added.error().sys_errno) && slots / 2 >= least_slots) continue;
    grow_again_us_ = clock_.now_us() + kGrowAgainUs;
    if (none_may_go) drop_again_us_ = grow_again_us_;
    STEMMA_LOG(kWarning, "tier.disk.cannot_grow", kv("directory", files_->directory()),
               kv("error", to_string(added.error())));
    break;
  }
  return false;
}

// Of the first slab of a size. Beside much larger ones it would not be worth having: one of them
// goes instead. Further ones are not made smaller: the index needs room too, and other sizes do.
std::int64_t DiskPageStore::least_first_slots(std::int64_t slot_bytes) const {
  constexpr std::int64_t kOfLargest = 4;
  std::int64_t largest_bytes = 0;
  for (const auto& [number, slab] : slabs_.slabs()) {
    largest_bytes = std::max(largest_bytes, slab.bytes());
  }
  const bool first_of_all = largest_bytes == 0;
  return (first_of_all ? least_slab_bytes(options_.slab_bytes) : largest_bytes / kOfLargest) /
         slot_bytes;
}

Status DiskPageStore::add_slab(std::int64_t slot_bytes, std::int64_t slots,
                               std::int64_t deadline_us) {
  SlabName name{.slot_bytes = slot_bytes};
  {
    const std::lock_guard lock(mutex_);
    name.number = slabs_.take_number();
  }
  const Result<DiskFileId> file = DiskSlabs::make_file(*files_, name, slots, deadline_us);
  if (!file.ok()) {
    note_leftover({name.text(), slots * slot_bytes});
    if (files_->overdue(DiskLane::kWrite) == 0) remove_leftovers(deadline_us);
    return file.error();
  }
  const std::lock_guard lock(mutex_);
  if (!slabs_.slabs().empty()) slab_bytes_max_ = options_.slab_bytes;  // there is room again
  slabs_.add(name, *file, slots, DiskSlabs::Slots::kBlank);
  return {};
}

// Of a slab of this size, within the limit; 0 if there is no room.
std::int64_t DiskPageStore::slots_to_add(std::int64_t slot_bytes) const {
  const std::int64_t left_bytes =
      options_.bytes_max - slabs_.bytes() - stray_bytes() - index_bytes_reserved(slabs_.slots());
  const std::int64_t fit = left_bytes / (slot_bytes + kIndexBytesPerSlot);
  return std::max<std::int64_t>(
      0, std::min(fit, std::max<std::int64_t>(1, slab_bytes_max_ / slot_bytes)));
}

// Room for slots of this size at the cost of others: a slab of which nothing is of use to anybody
// who has been here since the opening, or any at all where this size has none. On a full file
// system one goes at a time: sizes do not take the same room from each other again and again, and
// others may take what it gets back. None goes while the room of one before is still to come.
bool DiskPageStore::drop_other_slab(std::int64_t slot_bytes, std::int64_t deadline_us) {
  std::int32_t chosen = -1;
  {
    const std::lock_guard lock(mutex_);
    close_retired();
    if (reading_ && !retired_.empty()) return false;
    if (slabs_.slots() == slabs_.slots_of_size(slot_bytes)) return false;
    const std::set<std::int32_t> kept = slabs_to_keep();
    const bool has_none = slabs_.slots_of_size(slot_bytes) == 0;
    for (const auto& [number, slab] : slabs_.slabs()) {
      if (slab.name.slot_bytes == slot_bytes || kept.contains(number)) continue;
      const bool foreign = !pages_.slab_is_in_use(number);
      if (foreign || (has_none && chosen < 0)) chosen = number;
      if (foreign) break;
    }
  }
  if (chosen < 0 || clock_.now_us() < drop_again_us_) return false;
  const bool was_full = clock_.now_us() < grow_again_us_;
  if (!drop_slab(chosen, counters_.evicted_pages, deadline_us).ok()) return false;
  grow_again_us_ = clock_.now_us();
  const bool grown = grow(slot_bytes, deadline_us);
  if (was_full || !grown) drop_again_us_ = clock_.now_us() + kGrowAgainUs;
  return grown;
}

// Takes the coldest pages of this size out; their slots may be used when `cells` are durable.
std::vector<SlotRef> DiskPageStore::evict(std::int64_t slot_bytes, std::int64_t pages,
                                          IndexCells& cells) {
  std::vector<SlotRef> slots;
  for (bool more = pages > 0; more;) {  // look-ups come in between
    const std::lock_guard lock(mutex_);
    more = pages_.pass_over_some(slot_bytes, kIndexPiecePages);
  }
  const std::lock_guard lock(mutex_);
  for (std::int64_t i = 0; i < pages; ++i) {
    DiskPages::Page* const page = pages_.coldest_or_null(slot_bytes);
    if (page == nullptr) break;
    cells.remove(page->key);
    slots.push_back(page->slot);
    take_from_map(*page);
    ++counters_.evicted_pages;
  }
  return slots;
}

void DiskPageStore::write_bodies(std::span<Staged> staged, std::int64_t deadline_us) {
  // Slots are preallocated, so a full disk shows here only where the file system keeps no promise.
  if (!write_once(staged, deadline_us) && drop_coldest_slab(deadline_us)) {
    write_once(staged, deadline_us);
  }
  sync_bodies(staged, deadline_us);
}

// Frames that follow each other, in memory and on the disk, are one write: many small ones are
// dearer than their bytes.
std::vector<DiskPageStore::BodyWrite> DiskPageStore::body_writes(std::span<Staged> staged) const {
  std::vector<BodyWrite> writes;
  const std::lock_guard lock(mutex_);
  for (Staged& page : staged) {
    if (!page.placed || page.stored) continue;
    const SlotPlace place = slabs_.place_of(page.page.slot);
    const std::span<const std::byte> frame = page.write->frame;
    if (!writes.empty()) {
      DiskWrite& last = writes.back().write;
      const std::size_t bytes = last.bytes.size();
      const bool follows = last.file == place.file && last.bytes.data() + bytes == frame.data() &&
                           last.offset_bytes + std::ssize(last.bytes) == place.offset_bytes;
      if (follows && bytes + frame.size() <= kBodyWriteBytesMax) {
        last.bytes = {last.bytes.data(), bytes + frame.size()};
        writes.back().pages.push_back(&page);
        continue;
      }
    }
    writes.push_back({{place.file, place.offset_bytes, frame}, {&page}});
  }
  return writes;
}

// False if the disk was full for any.
bool DiskPageStore::write_once(std::span<Staged> staged, std::int64_t deadline_us) {
  const std::vector<BodyWrite> bodies = body_writes(staged);
  std::vector<DiskWrite> writes;
  writes.reserve(bodies.size());
  for (const BodyWrite& body : bodies) writes.push_back(body.write);
  files_->write(writes, deadline_us);
  bool room = true;
  for (std::size_t i = 0; i < writes.size(); ++i) {
    const DiskOutcome outcome = writes[i].outcome;
    const bool full = outcome == DiskOutcome::kFailed && is_disk_full(writes[i].sys_errno);
    room &= !full;
    for (Staged* const page : bodies[i].pages) {
      page->stored = outcome == DiskOutcome::kDone;
      if (page->stored || full) continue;
      page->placed = false;
      if (outcome == DiskOutcome::kOverdue) doubtful_.push_back(page->page.slot);
      counters_.lost_slots += outcome == DiskOutcome::kFailed ? 1 : 0;
    }
  }
  return room;
}

void DiskPageStore::sync_bodies(std::span<Staged> staged, std::int64_t deadline_us) {
  std::set<std::int32_t> slabs;
  for (const Staged& page : staged) {
    if (page.stored) slabs.insert(page.page.slot.slab);
  }
  for (const std::int32_t slab : slabs) {
    DiskFileId file;
    {
      const std::lock_guard lock(mutex_);
      file = slabs_.place_of({slab, 0}).file;
    }
    const Status synced = files_->sync(file, deadline_us);
    if (synced.ok()) continue;
    for (Staged& page : staged) {
      if (page.page.slot.slab == slab) page.stored = false;
    }
    if (synced.error().code == ErrorCode::kIo) become_read_only("slab", synced.error());
  }
}

void DiskPageStore::publish(std::span<Staged> staged, std::int64_t deadline_us) {
  std::vector<SlotRef> unstored;
  IndexCells cells;
  for (const Staged& page : staged) {
    if (page.placed && !page.stored) unstored.push_back(page.page.slot);
    if (page.stored) cells.put(page.page);
  }
  settle(unstored, /*durable=*/false);
  if (cells.empty() || read_only_) return;
  describe_cells(staged, cells);
  const std::vector<SlotRef> ahead = evict_ahead(staged, cells);
  const bool durable = commit(cells, deadline_us).ok();
  settle(ahead, durable);
  std::vector<SlotRef> uncommitted;
  {
    const std::lock_guard lock(mutex_);
    for (const Staged& page : staged) {
      if (!page.stored) continue;
      if (!durable) uncommitted.push_back(page.page.slot);
      if (!durable) continue;
      pages_.insert(page.page, std::ssize(page.write->frame), DiskPages::Warmth::kUsed);
      slabs_.set_stale(page.page.slot, false);
      ++counters_.written_pages;
    }
  }
  settle(uncommitted, /*durable=*/false);
}

std::vector<SlotRef> DiskPageStore::evict_ahead(std::span<const Staged> staged, IndexCells& cells) {
  const std::int64_t slot_bytes = std::ssize(staged.front().write->frame);
  std::int64_t wanted = 0;
  {
    const std::lock_guard lock(mutex_);
    if (slots_to_add(slot_bytes) > 0) return {};
    const std::int64_t ahead =
        std::min(std::ssize(staged), slabs_.slots_of_size(slot_bytes) / kAheadShare);
    wanted = std::min(ahead - slabs_.free_slots(slot_bytes), pages_.pages_of_size(slot_bytes));
  }
  return evict(slot_bytes, wanted, cells);
}

// What the namespaces of these pages are made of, where the index does not say it yet.
void DiskPageStore::describe_cells(std::span<const Staged> staged, IndexCells& cells) {
  const std::lock_guard lock(mutex_);
  for (const Staged& page : staged) {
    const auto found = pages_.namespaces().find(page.page.namespace_digest);
    if (found == pages_.namespaces().end() || found->second.description_stored) continue;
    cells.describe(found->first, found->second.description);
    found->second.description_stored = true;
  }
}

void DiskPageStore::remove(std::span<const PageRemoval> removals, std::int64_t deadline_us) {
  const std::lock_guard turn(turn_);
  bool any = false;
  for (const PageRemoval& removal : removals) any |= remove_one(removal, deadline_us);
  if (!any || read_only_ || !ready(deadline_us)) return;
  // A removal that is not durable yet goes with the next commit; until then its slot is not used.
  ignore_error(commit(IndexCells(), deadline_us), "the page is out of the map either way");
}

bool DiskPageStore::remove_one(const PageRemoval& removal, std::int64_t deadline_us) {
  DiskRead read;
  std::uint64_t stamp = 0;
  {
    const std::lock_guard lock(mutex_);
    const DiskPages::Page* const page = pages_.find_or_null(removal.key);
    if (page == nullptr || page->slot_bytes != std::ssize(removal.frame)) return false;
    const SlotPlace place = slabs_.place_of(page->slot);
    read.file = place.file;
    read.offset_bytes = place.offset_bytes;
    stamp = page->stamp;
  }
  if (!read_back(read, removal.frame.size(), deadline_us)) {
    ++counters_.kept_removals;
    return false;
  }
  const bool same = std::ranges::equal(read.bytes, removal.frame);
  const Result<PageFrameView> view = read_frame(read.bytes);
  const bool whole = view.ok() && view->identity.key == removal.key && check_body(*view).ok();
  const std::lock_guard lock(mutex_);
  DiskPages::Page* const page = pages_.find_or_null(removal.key);
  if (page == nullptr || page->stamp != stamp || (!same && whole)) return false;
  drop(*page, /*reusable=*/true);
  ++counters_.removed_pages;
  return true;
}

// Reads a frame into `scratch_`.
bool DiskPageStore::read_back(DiskRead& read, std::size_t bytes, std::int64_t deadline_us) {
  if (scratch_.size_bytes() < bytes) {
    Result<Buffer> larger = Buffer::allocate(bytes);
    if (!larger.ok()) return false;
    scratch_ = *std::move(larger);
  }
  read.bytes = scratch_.as<std::byte>().first(bytes);
  files_->read(DiskLane::kWrite, std::span(&read, 1), deadline_us);
  return read.outcome == DiskOutcome::kDone;
}

}  // namespace stemma
