// A purge of namespaces goes through the map in pieces. The pages of a piece leave the map, so that
// nobody finds them; then their headers are overwritten and synced; only then the index forgets
// them, and their slots are free. Whatever fails in between stays in `purging_`, and the next call
// begins with it: a page is never forgotten that a restart could find.
//
// Slabs of which nobody knows whose pages they hold go first, as files: they could not be opened,
// or could not be removed when they were to go; or they were removed, to make room, and would be
// back after a loss of power, with pages that the index still names.
//
// A header that is overwritten makes no frame: an index that has to be made anew from the frames
// does not name it. What was evicted before has its header still, until its slot is used again.
#include <array>
#include <map>
#include <set>
#include <utility>

#include "store/disk_page_store.h"
#include "tier/page_frame.h"

namespace stemma {
namespace {

// Pages between two commits: their cells fit the index before it has to be written anew.
constexpr std::int64_t kPiecePages = 512;

constexpr std::size_t kZeroBytes = kFrameAlignment;
alignas(kFrameAlignment) constexpr std::array<std::byte, kZeroBytes> kZeros = {};

}  // namespace

PurgeOutcome DiskPageStore::purge(std::span<const NamespaceFamily> namespaces,
                                  std::int64_t deadline_us) {
  const std::lock_guard turn(turn_);
  if (!ready(deadline_us)) {
    return {.status = Error{ErrorCode::kIo, files_->directory() + ": cannot be written"}};
  }
  if (Status gone = remove_strays(deadline_us); !gone.ok()) return {.status = std::move(gone)};
  if (namespaces.empty()) return purge_all(deadline_us);
  PurgeOutcome outcome;
  outcome.status = finish_purged(deadline_us, outcome.pages);  // of a call that failed
  std::size_t bucket = 0;
  do {
    if (!outcome.status.ok()) return outcome;
    if (bucket != 0 && clock_.now_us() >= deadline_us) {
      outcome.status = Error{ErrorCode::kDeadline, files_->directory() + ": more is to be purged"};
      return outcome;
    }
    bucket = take_out(namespaces, bucket);
    outcome.status = finish_purged(deadline_us, outcome.pages);
  } while (bucket != 0);
  return outcome;
}

// A name that is gone may come back with a loss of power until the directory is synced: so they are
// forgotten afterwards.
Status DiskPageStore::remove_strays(std::int64_t deadline_us) {
  std::vector<DiskEntry> strays;
  {
    const std::lock_guard lock(mutex_);
    strays = strays_;
  }
  if (strays.empty() && !removals_unsynced_) return {};
  for (const DiskEntry& stray : strays) {
    Status removed = files_->remove(stray.name, deadline_us);
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

// The next pages into `purging_`. The bucket to go on from, 0 at the end.
std::size_t DiskPageStore::take_out(std::span<const NamespaceFamily> namespaces,
                                    std::size_t first_bucket) {
  const std::lock_guard lock(mutex_);
  std::vector<DiskPages::Page*> found;
  const std::size_t next =
      pages_.visit_owned(namespaces, first_bucket, kPiecePages,
                         [&](DiskPages::Page& page) { found.push_back(&page); });
  for (DiskPages::Page* const page : found) {
    purging_.push_back({page->key, page->slot});
    pages_.erase(*page);
  }
  changed_ |= !found.empty();
  return next;
}

Status DiskPageStore::overwrite_headers(std::int64_t deadline_us) {
  std::vector<DiskWrite> writes;
  std::map<std::int32_t, DiskFileId> files;
  {
    const std::lock_guard lock(mutex_);
    for (const Dropped& page : purging_) {
      const SlotPlace place = slabs_.place_of(page.slot);
      writes.push_back({place.file, place.offset_bytes, kZeros});
      files.emplace(page.slot.slab, place.file);
    }
  }
  files_->write(writes, deadline_us);
  for (const DiskWrite& write : writes) {
    if (write.outcome == DiskOutcome::kDone) continue;
    const bool overdue = write.outcome == DiskOutcome::kOverdue;
    return Error{overdue ? ErrorCode::kDeadline : ErrorCode::kIo,
                 files_->directory() + ": cannot overwrite a page", write.sys_errno};
  }
  for (const auto& [number, file] : files) {
    Status synced = files_->sync(file, deadline_us);
    if (synced.ok()) continue;
    if (synced.error().code == ErrorCode::kIo) become_read_only("slab", synced.error());
    return synced;
  }
  return {};
}

// What is in `purging_` goes for good, and is counted.
Status DiskPageStore::finish_purged(std::int64_t deadline_us, std::int64_t& pages) {
  STEMMA_RETURN_IF_ERROR(overwrite_headers(deadline_us));
  IndexCells cells;
  std::vector<SlotRef> slots;
  for (const Dropped& page : purging_) {
    cells.remove(page.key);
    slots.push_back(page.slot);
  }
  Status done = commit(cells, deadline_us);
  settle(slots, done.ok());
  pages += std::ssize(purging_);
  counters_.purged_pages += std::ssize(purging_);
  purging_.clear();
  return done;
}

}  // namespace stemma
