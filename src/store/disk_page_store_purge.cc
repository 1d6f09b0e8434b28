// A purge of namespaces goes, in pieces, through the slabs that hold pages of them. The pages of a
// piece leave the map, so that nobody finds them, and the index forgets them. Then the headers of
// all frames are overwritten that nobody is to find: of those just removed, of those that were
// evicted or dropped before, and of those that were never confirmed. A header that is overwritten
// makes no frame: an index that has to be made anew from the frames, or whose record of the removal
// is lost, does not bring it back. Slots remember that they are stale until that is durable,
// whatever fails in between: a page is never forgotten that a restart could find. A removal of
// single pages lasts by the same way. Where records of the index were lost, slots may hold other
// frames than it says: the headers of those pages are read first that nobody has read since.
//
// Slabs of which nobody knows whose pages they hold go first, as files: they could not be opened,
// nor their size be told, or could not be removed when they were to go; or they were removed, to
// make room, and would be back after a loss of power, with pages that the index still names.
#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "store/disk_page_store.h"
#include "store/disk_scan.h"
#include "tier/page_frame.h"

namespace stemma {
namespace {

// Pages between two commits: their cells fit the index before it has to be written anew. And slots,
// or families of namespaces, that are gone through at once while a look-up of pages waits.
constexpr std::int32_t kPiecePages = 512;

// Slots between two syncs: also a slow disk comes further with each call.
constexpr std::size_t kPieceSlots = 64;

constexpr std::size_t kZeroBytes = kFrameAlignment;
alignas(kFrameAlignment) constexpr std::array<std::byte, kZeroBytes> kZeros = {};

}  // namespace

// A page of which an index of before does not say how many pages lie before it goes too.
PurgeOutcome DiskPageStore::purge_behind(std::span<const NamespaceFamily> namespaces,
                                         std::int64_t pages_before, std::int64_t deadline_us) {
  const std::lock_guard turn(turn_);
  if (!ready(deadline_us)) return {.status = cannot_be_written()};
  if (Status gone = remove_strays(deadline_us); !gone.ok()) return {.status = std::move(gone)};
  std::vector<NamespaceFamily> sorted(namespaces.begin(), namespaces.end());
  std::ranges::sort(sorted);
  const bool all = sorted.empty() && pages_before == 0;
  PurgeOutcome outcome =
      all ? purge_all(deadline_us) : purge_named(sorted, pages_before, deadline_us);
  // A slab that had to go for the index' sake may be one more.
  if (outcome.status.ok()) outcome.status = remove_strays(deadline_us);
  return outcome;
}

// Where the store only reads, headers are overwritten as well as that can be done now: it is not
// believed, but may spare the next life a wrong page.
Status DiskPageStore::make_removals_last(std::int64_t deadline_us) {
  const std::lock_guard turn(turn_);
  if (files_->overdue(DiskLane::kWrite) > 0) return cannot_be_written();
  std::int64_t slots_done = 0;
  Status done = blank_stale(deadline_us, slots_done);
  if (!ready(deadline_us)) return cannot_be_written();
  if (done.ok()) done = commit(IndexCells(), deadline_us);
  if (done.ok()) done = remove_strays(deadline_us);
  return done;
}

Error DiskPageStore::cannot_be_written() const {
  return {ErrorCode::kIo, files_->directory() + ": cannot be written"};
}

// A name that is gone may come back with a loss of power until the directory is synced: so they are
// forgotten afterwards.
Status DiskPageStore::remove_strays(std::int64_t deadline_us) {
  std::vector<Stray> strays;
  {
    const std::lock_guard lock(mutex_);
    strays = strays_;
  }
  if (strays.empty() && !removals_unsynced_) return {};
  for (const Stray& stray : strays) {
    Status removed = files_->remove(stray.file.name, deadline_us);
    if (!removed.ok() && removed.error().code != ErrorCode::kNotFound) return removed;
  }
  Status synced = files_->sync_directory(deadline_us);
  if (!synced.ok()) {
    if (synced.error().code == ErrorCode::kIo) become_read_only("directory", synced.error());
    return synced;
  }
  removals_unsynced_ = false;
  const std::lock_guard lock(mutex_);
  strays_.clear();
  return {};
}

// What is to go and could not be removed, or not be made and may be there: until it has gone its
// bytes count.
void DiskPageStore::note_leftover(const DiskEntry& file) {
  const std::lock_guard lock(mutex_);
  strays_.push_back({file});
}

void DiskPageStore::remove_leftovers(std::int64_t deadline_us) {
  for (;;) {
    std::string name;
    {
      const std::lock_guard lock(mutex_);
      const auto next = std::ranges::find(strays_, true, &Stray::goes);
      if (next == strays_.end()) return;
      name = next->file.name;
    }
    const Status removed = files_->remove(name, deadline_us);
    if (!removed.ok() && removed.error().code != ErrorCode::kNotFound) return;
    const std::lock_guard lock(mutex_);
    std::erase_if(strays_, [&](const Stray& stray) { return stray.file.name == name; });
  }
}

// Pages of a slab that is not there are nobody's; the index is written anew all the same, which
// also makes it durable that the files are gone.
PurgeOutcome DiskPageStore::purge_all(std::int64_t deadline_us) {
  PurgeOutcome outcome;
  std::set<std::int32_t> numbers;
  std::int64_t before = 0;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, slab] : slabs_.slabs()) numbers.insert(number);
    before = pages_.pages();
  }
  for (const std::int32_t number : numbers) {
    Status removed = drop_slab(number, counters_.purged_pages, deadline_us);
    if (!removed.ok()) outcome.status = std::move(removed);
  }
  Status written = compact(deadline_us);
  if (!written.ok()) outcome.status = std::move(written);
  const std::lock_guard lock(mutex_);
  outcome.pages = before - pages_.pages();
  return outcome;
}

// Each call that is asked for more has removed some, however many pages it had to look at.
PurgeOutcome DiskPageStore::purge_named(std::span<const NamespaceFamily> sorted,
                                        std::int64_t pages_before, std::int64_t deadline_us) {
  PurgeOutcome outcome;
  const auto is_named = [&](const DiskPages::Page& page) {
    const bool is_behind = page.ordinal < 0 || page.ordinal >= pages_before;
    return is_behind &&
           (sorted.empty() || std::ranges::binary_search(sorted, family_of(page.owner->digest)));
  };
  std::int64_t uncommitted = 0;
  for (const std::int32_t slab : slabs_of(sorted)) {
    for (SlotRef next = {slab, 0}; next.slot >= 0;) {
      const std::int64_t taken = take_out(is_named, next);
      outcome.pages += taken;
      uncommitted += taken;
      if (uncommitted < kPiecePages) continue;
      outcome.status = commit(IndexCells(), deadline_us);
      if (!outcome.status.ok()) return outcome;
      uncommitted = 0;
      if (clock_.now_us() < deadline_us) continue;
      outcome.status = Error{ErrorCode::kDeadline, files_->directory() + ": more is to be purged"};
      return outcome;
    }
  }
  outcome.status = commit(IndexCells(), deadline_us);
  if (!outcome.status.ok()) return outcome;
  std::int64_t slots_done = 0;
  outcome.status = blank_stale(deadline_us, slots_done);
  outcome.advanced = slots_done > 0;
  return outcome;
}

std::set<std::int32_t> DiskPageStore::slabs_of(std::span<const NamespaceFamily> families) const {
  std::set<std::int32_t> slabs;
  do {
    const auto piece = families.first(std::min<std::size_t>(kPiecePages, families.size()));
    families = families.subspan(piece.size());
    const std::lock_guard lock(mutex_);
    slabs.merge(pages_.slabs_of(piece));
  } while (!families.empty());
  return slabs;
}

// The next pages of a slab out of the map, whose removal goes with the next commit: how many.
// `next` is where to go on, no slot at the slab's end.
std::int64_t DiskPageStore::take_out(FunctionRef<bool(const DiskPages::Page&)> is_named,
                                     SlotRef& next) {
  const std::lock_guard lock(mutex_);
  std::vector<DiskPages::Page*> found;
  next.slot = pages_.visit_slots(next.slab, next.slot, kPiecePages, [&](DiskPages::Page& page) {
    if (is_named(page)) found.push_back(&page);
  });
  if (next.slot == 0) next.slot = -1;
  for (DiskPages::Page* const page : found) drop(*page, /*reusable=*/true);
  counters_.purged_pages += std::ssize(found);
  return std::ssize(found);
}

// Once all have been read, not again.
Status DiskPageStore::read_unread(std::int64_t deadline_us, std::int64_t& slots_done) {
  if (!unread_pages_) return {};
  std::vector<std::int32_t> numbers;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, slab] : slabs_.slabs()) numbers.push_back(number);
  }
  for (const std::int32_t number : numbers) {
    STEMMA_RETURN_IF_ERROR(read_unread_of(number, deadline_us, slots_done));
  }
  unread_pages_ = false;
  return {};
}

Status DiskPageStore::read_unread_of(std::int32_t number, std::int64_t deadline_us,
                                     std::int64_t& slots_done) {
  DiskSlabs::Slab slab;
  std::vector<std::int32_t> slots;
  {
    const std::lock_guard lock(mutex_);
    slab = slabs_.slabs().at(number);
    for (const DiskPages::Page* const page : pages_.pages_of_slab(number)) {
      if (page->unread) slots.push_back(page->slot.slot);
    }
  }
  for (std::span<const std::int32_t> rest = slots; !rest.empty();) {
    const auto piece = rest.first(std::min(kPieceSlots, rest.size()));
    rest = rest.subspan(piece.size());
    bool in_time = slots_done == 0 || clock_.now_us() < deadline_us;
    const auto note = [&](std::int32_t slot, const Result<PageFrameView>& view) {
      const bool noted = note_header({number, slot}, view);
      slots_done += noted ? 1 : 0;
      in_time = in_time && noted;
    };
    if (in_time) STEMMA_RETURN_IF_ERROR(scan_headers(*files_, slab, piece, note, deadline_us));
    if (!in_time) {
      return Error{ErrorCode::kDeadline, files_->directory() + ": more is to be looked at"};
    }
  }
  return {};
}

// A page whose frame does not lie there goes, so that what lies there is overwritten. False if it
// could not be read in time.
bool DiskPageStore::note_header(SlotRef slot, const Result<PageFrameView>& view) {
  if (!view.ok() && view.error().code == ErrorCode::kDeadline) return false;
  const std::lock_guard lock(mutex_);
  DiskPages::Page* const page = pages_.find_in_slot_or_null(slot);
  if (page == nullptr) return true;  // a reader found that it is not there
  const bool right = view.ok() && view->identity.key == page->key;
  if (right) page->unread = false;
  if (!right) drop(*page, /*reusable=*/view.ok() || view.error().code != ErrorCode::kIo);
  changed_ = true;
  return true;
}

// Overwrites the header of every frame that nobody is to find.
Status DiskPageStore::blank_stale(std::int64_t deadline_us, std::int64_t& slots_done) {
  STEMMA_RETURN_IF_ERROR(read_unread(deadline_us, slots_done));
  for (;;) {
    std::vector<SlotRef> slots;
    {
      const std::lock_guard lock(mutex_);
      slots = slabs_.stale_slots(kPieceSlots);
    }
    if (slots.empty()) return {};
    if (slots_done != 0 && clock_.now_us() >= deadline_us) {
      return Error{ErrorCode::kDeadline, files_->directory() + ": more is to be overwritten"};
    }
    STEMMA_RETURN_IF_ERROR(blank(slots, deadline_us));
    slots_done += std::ssize(slots);
  }
}

// REQUIRES: all in one slab; nothing that was given up may still write there.
Status DiskPageStore::blank(std::span<const SlotRef> slots, std::int64_t deadline_us) {
  std::vector<DiskWrite> writes;
  {
    const std::lock_guard lock(mutex_);
    for (const SlotRef slot : slots) {
      const SlotPlace place = slabs_.place_of(slot);
      writes.push_back({place.file, place.offset_bytes, kZeros});
    }
  }
  files_->write(writes, deadline_us);
  for (const DiskWrite& write : writes) {
    if (write.outcome == DiskOutcome::kDone) continue;
    const bool overdue = write.outcome == DiskOutcome::kOverdue;
    return Error{overdue ? ErrorCode::kDeadline : ErrorCode::kIo,
                 files_->directory() + ": cannot overwrite a page", write.sys_errno};
  }
  Status synced = files_->sync(writes.front().file, deadline_us);
  if (!synced.ok()) {
    if (synced.error().code == ErrorCode::kIo) become_read_only("slab", synced.error());
    return synced;
  }
  const std::lock_guard lock(mutex_);
  for (const SlotRef slot : slots) slabs_.set_stale(slot, false);
  return {};
}

}  // namespace stemma
