#include "store/disk_check.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "store/disk_scan.h"
#include "store/disk_slabs.h"

namespace stemma {

namespace {

constexpr char kIndexName[] = "index";

struct Directory {
  DiskSlabs slabs;
  std::vector<std::string> empty;  // slab files without a slot
  std::vector<std::string> twice;  // with the number of another one
  std::int64_t bytes = 0;
  bool has_index = false;
};

// The slabs' files stay open as long as `files`.
Result<Directory> open_directory(DiskFiles& files, std::int64_t deadline_us) {
  Directory directory;
  STEMMA_ASSIGN_OR_RETURN(const std::vector<DiskEntry> entries, files.list());
  for (const DiskEntry& entry : entries) {
    const bool is_index = entry.name == kIndexName;
    const std::optional<SlabName> name = SlabName::try_parse(entry.name);
    if (!entry.bytes.has_value() && (is_index || name.has_value())) {
      return Error{ErrorCode::kIo, files.directory() + "/" + entry.name + ": cannot tell its size"};
    }
    directory.bytes += entry.bytes.value_or(0);
    directory.has_index |= is_index;
    if (!name.has_value()) continue;
    const std::int64_t slots = *entry.bytes / name->slot_bytes;
    if (slots == 0) {
      directory.empty.push_back(entry.name);
      continue;
    }
    if (directory.slabs.slabs().contains(name->number)) {
      directory.twice.push_back(entry.name);
      continue;
    }
    STEMMA_ASSIGN_OR_RETURN(const DiskFileId file,
                            files.open(entry.name, DiskAccess::kDirect, deadline_us));
    directory.slabs.add(*name, file, slots, DiskSlabs::Slots::kStale);
  }
  if (!directory.has_index && directory.slabs.slabs().empty()) {
    return Error{ErrorCode::kNotFound, files.directory() + ": holds no disk tier"};
  }
  return directory;
}

class Check {
 public:
  Check(DiskFiles& files, const DiskCheckOptions& options) : files_(files), options_(options) {}

  Result<DiskCheckReport> run() {
    STEMMA_ASSIGN_OR_RETURN(directory_, open_directory(files_, options_.deadline_us));
    STEMMA_RETURN_IF_ERROR(read_index());
    for (const std::string& name : directory_.empty) note(name, -1, {}, "has no slots");
    for (const std::string& name : directory_.twice) {
      note(name, -1, {}, "has the number of another slab and is left alone");
    }
    for (const auto& [number, slab] : directory_.slabs.slabs()) {
      const auto visit = [&, name = slab.name](std::int32_t slot,
                                               const Result<PageFrameView>& view) {
        take_slot(name, slot, view);
      };
      STEMMA_RETURN_IF_ERROR(
          scan_slab(files_, slab, ScanDepth::kFrames, visit, options_.deadline_us));
    }
    note_homeless();
    if (options_.repair && !report_.findings.empty()) STEMMA_RETURN_IF_ERROR(repair());
    return std::move(report_);
  }

 private:
  void note(std::string file, std::int32_t slot, const PageKey& key, std::string what) {
    report_.findings.push_back({std::move(file), slot, key, std::move(what)});
  }

  Status read_index() {
    DiskIndex index(files_);
    STEMMA_ASSIGN_OR_RETURN(contents_, index.load(options_.deadline_us));
    if (!contents_.found) note(kIndexName, -1, {}, "is lost");
    if (contents_.found && contents_.bad_cells > 0) {
      note(kIndexName, -1, {}, std::to_string(contents_.bad_cells) + " damaged records");
    }
    for (IndexedPage& page : contents_.pages) by_slot_[page.slot] = &page;
    return {};
  }

  void take_slot(const SlabName& name, std::int32_t slot, const Result<PageFrameView>& view) {
    const auto named = by_slot_.find({name.number, slot});
    if (named == by_slot_.end()) return take_unnamed({name.number, slot}, view);
    const IndexedPage& page = *named->second;
    const std::string wrong = what_is_wrong(page, view);
    if (wrong.empty()) {
      ++report_.good_pages;
      good_.push_back(page);
      good_.back().unread = false;
    } else {
      ++report_.bad_pages;
      note(name.text(), slot, page.key, wrong);
    }
    by_slot_.erase(named);
  }

  static std::string what_is_wrong(const IndexedPage& page, const Result<PageFrameView>& view) {
    if (!view.ok()) return to_string(view.error());
    if (view->identity.key != page.key) return "holds another page than the index says";
    if (view->identity.namespace_digest != page.namespace_digest) {
      return "is of another namespace than the index says";
    }
    return "";
  }

  // A slot that the index does not name is free, whatever lies there; but a damaged index does not
  // say which those are.
  void take_unnamed(SlotRef slot, const Result<PageFrameView>& view) {
    const bool index_is_whole = contents_.found && contents_.bad_cells == 0;
    if (index_is_whole || !view.ok()) return;
    unnamed_.push_back({view->identity.key, view->identity.namespace_digest, slot, view->generation,
                        files_.wall_time_s(), view->identity.ordinal});
  }

  void note_homeless() {
    for (const auto& [slot, page] : by_slot_) {
      ++report_.bad_pages;
      const auto slab = directory_.slabs.slabs().find(slot.slab);
      const bool there = slab != directory_.slabs.slabs().end();
      note(there ? slab->second.name.text() : "slab-" + std::to_string(slot.slab), slot.slot,
           page->key, there ? "lies behind the end of its file" : "its file is not there");
    }
    std::unordered_map<PageKey, bool, PageKeyHash> seen;
    for (const IndexedPage& page : good_) seen[page.key] = true;
    for (const IndexedPage& page : unnamed_) {
      if (!std::exchange(seen[page.key], true)) good_.push_back(page);
    }
    report_.found_pages = std::ssize(good_) - report_.good_pages;
  }

  Status repair() {
    for (const std::string& name : directory_.empty) {
      STEMMA_RETURN_IF_ERROR(files_.remove(name, options_.deadline_us));
    }
    std::size_t next = 0;
    auto description = contents_.descriptions.begin();
    DiskIndex index(files_);
    STEMMA_RETURN_IF_ERROR(index.rewrite(
        [&](IndexCells& cells) {
          if (description != contents_.descriptions.end()) {
            cells.describe(description->first, description->second);
            ++description;
            return true;
          }
          if (next == good_.size()) return false;
          cells.put(good_[next++]);
          return true;
        },
        options_.deadline_us));
    report_.repaired = true;
    return {};
  }

  DiskFiles& files_;
  DiskCheckOptions options_;
  Directory directory_;
  IndexContents contents_;
  std::map<SlotRef, IndexedPage*> by_slot_;
  std::vector<IndexedPage> good_;
  std::vector<IndexedPage> unnamed_;
  DiskCheckReport report_;
};

}  // namespace

Result<DiskListing> list_disk(DiskFiles& files, std::int64_t deadline_us) {
  STEMMA_ASSIGN_OR_RETURN(const Directory directory, open_directory(files, deadline_us));
  DiskIndex index(files);
  STEMMA_ASSIGN_OR_RETURN(const IndexContents contents, index.load(deadline_us));
  DiskListing listing;
  listing.slots = directory.slabs.slots();
  listing.slab_files = std::ssize(directory.slabs.slabs());
  listing.bytes = directory.bytes;
  const std::int64_t now_s = files.wall_time_s();
  std::map<NamespaceDigest, DiskNamespace> namespaces;
  for (const IndexedPage& page : contents.pages) {
    const auto slab = directory.slabs.slabs().find(page.slot.slab);
    if (slab == directory.slabs.slabs().end() || page.slot.slot >= slab->second.slots) continue;
    DiskNamespace& named = namespaces[page.namespace_digest];
    const std::int64_t age_s = now_s - page.stored_at_s;
    named.oldest_age_s = named.pages == 0 ? age_s : std::max(named.oldest_age_s, age_s);
    named.newest_age_s = named.pages == 0 ? age_s : std::min(named.newest_age_s, age_s);
    ++named.pages;
    named.bytes += slab->second.name.slot_bytes;
    ++listing.pages;
  }
  for (auto& [digest, named] : namespaces) {
    named.digest = digest;
    const auto description = contents.descriptions.find(digest);
    if (description != contents.descriptions.end()) named.description = description->second;
    listing.namespaces.push_back(named);
  }
  std::ranges::stable_sort(listing.namespaces, std::ranges::greater(), &DiskNamespace::pages);
  return listing;
}

Result<DiskCheckReport> check_disk(DiskFiles& files, const DiskCheckOptions& options) {
  return Check(files, options).run();
}

}  // namespace stemma
