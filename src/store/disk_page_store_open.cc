// Opening trusts an index that is whole for which pages there are, and nothing for what is in them:
// each frame is verified when it is read. Where records of it are lost, what is left counts all the
// same, and a purge looks at the frames' headers first. Where the index is lost, the frames' own
// headers say which page they are, and it is made anew from them. An index that is there but cannot
// be read is not lost: what it has removed is not to be found among the frames. Nothing that is
// found wrong keeps the store from opening. What is only too slow now may be all right: then the
// store has nothing and writes nothing in this life, and leaves to the next all that lies there.
#include <algorithm>
#include <limits>
#include <utility>

#include "stemma/log.h"
#include "store/disk_page_store.h"
#include "store/disk_scan.h"
#include "store/disk_store_sizes.h"

namespace stemma {

namespace {

// Of each step of opening: nobody waits for a page yet, but a disk that hangs must not hang a
// start.
constexpr std::int64_t kOpeningUs = 60'000'000;
// Of all steps that only read, of which there is one for each slab: what they leave to the next
// life is not lost.
constexpr std::int64_t kReadingUs = 300'000'000;

}  // namespace

Result<std::unique_ptr<DiskPageStore>> DiskPageStore::open(std::unique_ptr<DiskFiles> files,
                                                           const Clock& clock,
                                                           const DiskPageStoreOptions& options) {
  if (options.bytes_max < kDiskBytesMin) {
    return Error{ErrorCode::kInvalidArgument, "the disk tier needs at least " +
                                                  std::to_string(kDiskBytesMin) + " bytes (got " +
                                                  std::to_string(options.bytes_max) + ")"};
  }
  DiskPageStoreOptions chosen = options;
  if (chosen.slab_bytes <= 0) {
    chosen.slab_bytes = std::max(options.bytes_max / kSlabsInLimit, kSlabBytesMin);
  }
  std::unique_ptr<DiskPageStore> store(new DiskPageStore(std::move(files), clock, chosen));
  STEMMA_RETURN_IF_ERROR(store->load());
  return store;
}

Status DiskPageStore::load() {
  Result<IndexContents> contents = read_all();
  if (!contents.ok() && contents.error().code == ErrorCode::kDeadline) {
    close_slabs();
    become_read_only("opening", contents.error());
    return {};
  }
  STEMMA_RETURN_IF_ERROR(contents);
  counters_.bad_index_cells = contents->bad_cells;
  if (!contents->found) *contents = contents_of_frames(in_time());
  adopt(*contents);
  const std::int64_t slabs_before = std::ssize(slabs_.slabs());
  fit_into_limit(in_time());
  const bool as_it_was = index_.usable() && contents->bad_cells == 0 && !contents->contested &&
                         slabs_before == std::ssize(slabs_.slabs()) &&
                         index_.file_bytes() <= index_bytes_max(slabs_.slots());
  if (!as_it_was) {
    const Status written = compact(in_time());
    if (!written.ok()) {
      STEMMA_LOG(kWarning, "tier.disk.index_not_written", kv("error", to_string(written.error())));
    }
  }
  index_bytes_ = index_.file_bytes();
  STEMMA_LOG(kInfo, "tier.disk.open", kv("directory", files_->directory()),
             kv("pages", pages_.pages()), kv("bytes", usage().bytes),
             kv("bad_index_cells", contents->bad_cells));
  return {};
}

std::int64_t DiskPageStore::in_time() const {
  return clock_.now_us() + kOpeningUs;
}

// What the index says, which is nothing where it cannot be read, once the slabs are open.
// kDeadline: one or the other takes too long, or both together.
Result<IndexContents> DiskPageStore::read_all() {
  const std::int64_t until_us = clock_.now_us() + kReadingUs;
  STEMMA_RETURN_IF_ERROR(open_slabs(until_us));
  const auto load = [&] { return index_.load(std::min(in_time(), until_us)); };
  Result<IndexContents> contents = load();
  if (!contents.ok()) contents = load();  // it may have been once
  if (!contents.ok()) {
    if (contents.error().code == ErrorCode::kDeadline) return contents;
    STEMMA_LOG(kWarning, "tier.disk.index_unreadable", kv("error", to_string(contents.error())));
    contents = IndexContents();
    contents->found = true;
  }
  return contents;
}

Status DiskPageStore::open_slabs(std::int64_t until_us) {
  const auto deadline_us = [&] { return std::min(in_time(), until_us); };
  STEMMA_ASSIGN_OR_RETURN(const std::vector<DiskEntry> entries, files_->list());
  for (const DiskEntry& entry : entries) {
    const std::optional<SlabName> name = SlabName::try_parse(entry.name);
    if (!name.has_value()) continue;
    slabs_.keep_number(name->number);
    if (!entry.bytes.has_value()) {
      STEMMA_LOG(kWarning, "tier.disk.slab_unreadable", kv("directory", files_->directory()),
                 kv("size_unknown", entry.name));
      strays_.push_back({entry, /*goes=*/false});
      continue;
    }
    const std::int64_t slots = std::min<std::int64_t>(*entry.bytes / name->slot_bytes,
                                                      std::numeric_limits<std::int32_t>::max());
    if (slots == 0) {  // it was being made when the process ended
      ignore_error(files_->remove(entry.name, deadline_us()), "it is as small as can be");
      continue;
    }
    if (slabs_.slabs().contains(name->number)) {  // somebody copied it here from elsewhere
      STEMMA_LOG(kWarning, "tier.disk.slab_twice", kv("directory", files_->directory()),
                 kv("left_alone", entry.name));
      strays_.push_back({entry, /*goes=*/false});
      continue;
    }
    const Result<DiskFileId> file = files_->open(entry.name, DiskAccess::kDirect, deadline_us());
    if (file.ok()) {
      slabs_.add(*name, *file, slots, DiskSlabs::Slots::kStale);
      continue;
    }
    if (file.error().code == ErrorCode::kDeadline) return file.error();
    STEMMA_LOG(kWarning, "tier.disk.slab_unreadable", kv("error", to_string(file.error())));
    strays_.push_back({entry, /*goes=*/false});
  }
  return {};
}

// What lies in them is nobody's to change.
void DiskPageStore::close_slabs() {
  while (!slabs_.slabs().empty()) {
    files_->close(slabs_.take_out(slabs_.slabs().begin()->first));
  }
  strays_.clear();
}

// What the headers of all frames say: in place of an index that is lost.
// Headers only: reading every byte could take minutes. A body that was not whole when the index was
// lost is found by its first reader.
IndexContents DiskPageStore::contents_of_frames(std::int64_t deadline_us) {
  IndexContents contents;
  if (slabs_.slabs().empty()) return contents;
  ++counters_.rebuilds;
  const std::int64_t now_s = files_->wall_time_s();
  for (const auto& [number, slab] : slabs_.slabs()) {
    const auto add = [&, slab_number = number](std::int32_t slot,
                                               const Result<PageFrameView>& view) {
      if (!view.ok()) return;
      contents.pages.push_back({view->identity.key,
                                view->identity.namespace_digest,
                                {slab_number, slot},
                                view->generation,
                                now_s,
                                view->identity.ordinal});
    };
    const Status scanned = scan_slab(*files_, slab, ScanDepth::kHeaders, add, deadline_us);
    if (!scanned.ok()) {
      STEMMA_LOG(kWarning, "tier.disk.slab_unreadable", kv("error", to_string(scanned.error())));
    }
  }
  STEMMA_LOG(kWarning, "tier.disk.index_rebuilt", kv("directory", files_->directory()),
             kv("pages", contents.pages.size()));
  return contents;
}

void DiskPageStore::adopt(const IndexContents& contents) {
  slabs_.keep_number(contents.slab_max);
  for (const IndexedPage& page : contents.pages) {
    if (pages_.find_or_null(page.key) != nullptr || !slabs_.try_mark(page.slot)) continue;
    const std::int64_t slot_bytes = slabs_.slabs().at(page.slot.slab).name.slot_bytes;
    pages_.insert(page, slot_bytes, DiskPages::Warmth::kLoaded);
    unread_pages_ |= page.unread;
  }
  for (const auto& [digest, description] : contents.descriptions) {
    const auto found = pages_.namespaces().find(digest);
    if (found == pages_.namespaces().end()) continue;
    found->second.description = description;
    found->second.description_stored = true;
  }
}

// Where the limit was lowered since the last time: whole slabs go, the emptiest first.
void DiskPageStore::fit_into_limit(std::int64_t deadline_us) {
  const auto over = [&] {
    return slabs_.bytes() + stray_bytes() + index_bytes_reserved(slabs_.slots()) >
           options_.bytes_max;
  };
  while (over() && !slabs_.slabs().empty()) {
    const auto emptiest = std::ranges::min_element(
        slabs_.slabs(), {}, [](const auto& entry) { return entry.second.taken; });
    ignore_error(drop_slab(emptiest->first, counters_.evicted_pages, deadline_us),
                 "its bytes count on");
  }
}

}  // namespace stemma
