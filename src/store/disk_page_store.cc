// The reader holds no lock while the disk works, so the writer may meanwhile give a page's slot to
// another page. It can do so only after it has taken the first one out of `pages_`; so a page that
// is still there afterwards, with the same stamp, was whole while it was read.
#include "store/disk_page_store.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "stemma/log.h"
#include "store/directory_files.h"
#include "tier/page_frame.h"

namespace stemma {

namespace {

// For the last words of a store that is closed.
constexpr std::int64_t kClosingUs = 5'000'000;

// "k=v k=v" by k.
std::map<std::string_view, std::string_view> fields_of(std::string_view description) {
  std::map<std::string_view, std::string_view> fields;
  while (!description.empty()) {
    const std::string_view field = description.substr(0, description.find(' '));
    description.remove_prefix(std::min(field.size() + 1, description.size()));
    const std::size_t equals = field.find('=');
    if (equals != std::string_view::npos) {
      fields[field.substr(0, equals)] = field.substr(equals + 1);
    }
  }
  return fields;
}

// What `now` has otherwise than `before`: "dtype: f16 -> bf16, ..."; and how many fields that are.
std::pair<std::string, int> difference(std::string_view before, std::string_view now) {
  const auto old_fields = fields_of(before);
  const auto new_fields = fields_of(now);
  std::string text;
  int fields = 0;
  const auto add = [&](std::string_view name, std::string_view from, std::string_view to) {
    text += (fields++ == 0 ? "" : ", ") + std::string(name) + ": " + std::string(from) + " -> " +
            std::string(to);
  };
  for (const auto& [name, value] : new_fields) {
    const auto old = old_fields.find(name);
    if (old == old_fields.end()) add(name, "(none)", value);
    if (old != old_fields.end() && old->second != value) add(name, old->second, value);
  }
  for (const auto& [name, value] : old_fields) {
    if (!new_fields.contains(name)) add(name, value, "(none)");
  }
  return {text, fields};
}

}  // namespace

DiskPageStore::DiskPageStore(std::unique_ptr<DiskFiles> files, const Clock& clock,
                             const DiskPageStoreOptions& options)
    : files_(std::move(files)),
      clock_(clock),
      options_(options),
      index_(*files_),
      grow_again_us_(clock.now_us()),
      drop_again_us_(clock.now_us()),
      slab_bytes_max_(options.slab_bytes) {}

Result<std::unique_ptr<DiskPageStore>> DiskPageStore::open(const std::string& directory,
                                                           const Clock& clock,
                                                           const DiskPageStoreOptions& options) {
  STEMMA_ASSIGN_OR_RETURN(std::unique_ptr<DirectoryFiles> files,
                          DirectoryFiles::open(directory, clock));
  return open(std::unique_ptr<DiskFiles>(std::move(files)), clock, options);
}

DiskPageStore::~DiskPageStore() {
  if (!opened_in_.is_here()) return;
  const bool hangs = files_->overdue(DiskLane::kWrite) > 0;
  if (!changed_ || read_only_ || hangs || !index_.usable()) return;
  index_.stop_rewriting();  // it may have pages that have gone since
  ignore_error(rewrite(clock_.now_us() + kClosingUs), "the index is right without it");
}

void DiskPageStore::describe(const NamespaceDigest& digest, std::string_view description) {
  const std::lock_guard lock(mutex_);
  const DiskPages::Namespace* const named = pages_.describe_or_null(digest, description);
  if (named != nullptr && !is_used_) described_.push_back(digest);
}

// Once, when all whose pages may be asked for have been described: where one of them has pages
// those of the others are in good company, as those of a model and of its adapters are.
void DiskPageStore::note_use() {
  if (std::exchange(is_used_, true)) return;
  const std::vector<NamespaceDigest> described = std::exchange(described_, {});
  const auto& known = pages_.namespaces();
  const bool has_own = std::any_of(described.begin(), described.end(), [&](const auto& digest) {
    const auto found = known.find(digest);
    return found != known.end() && found->second.pages > 0;
  });
  if (has_own || described.empty() || pages_.pages() == 0) return;
  if (const auto first = known.find(described.front()); first != known.end()) {
    report_difference(first->second);
  }
}

// Of the namespaces that have pages here, the one with the fewest other fields.
void DiskPageStore::report_difference(const DiskPages::Namespace& described) const {
  std::pair<std::string, int> nearest;
  const DiskPages::Namespace* nearest_namespace = nullptr;
  for (const auto& [digest, other] : pages_.namespaces()) {
    if (other.pages == 0 || other.description.empty()) continue;
    std::pair<std::string, int> found = difference(other.description, described.description);
    if (nearest_namespace != nullptr && found.second >= nearest.second) continue;
    nearest = std::move(found);
    nearest_namespace = &other;
  }
  if (nearest_namespace == nullptr) return;
  STEMMA_LOG(kWarning, "tier.disk.foreign_pages", kv("directory", files_->directory()),
             kv("pages", nearest_namespace->pages), kv("differs", nearest.first));
}

Result<std::int64_t> DiskPageStore::lookup(std::span<const PageKey> keys, std::int64_t) {
  const std::lock_guard lock(mutex_);
  note_use();
  std::int64_t found = 0;
  for (const PageKey& key : keys) {
    if (pages_.find_or_null(key) == nullptr) break;
    ++found;
  }
  for (std::int64_t i = found; i-- > 0;) {
    pages_.touch(*pages_.find_or_null(keys[static_cast<std::size_t>(i)]));
  }
  changed_ |= found > 0;
  return found;
}

void DiskPageStore::read(std::span<PageRead> reads, std::int64_t deadline_us) {
  std::vector<Sought> sought;
  std::vector<DiskRead> disk_reads;
  {
    const std::lock_guard lock(mutex_);
    for (PageRead& read : reads) {
      DiskPages::Page* const page = pages_.find_or_null(read.key);
      read.verdict = PageVerdict::kMissing;
      if (page == nullptr) continue;
      if (std::ssize(read.frame) != page->slot_bytes) {  // stored in another format, as by a codec
        drop(*page, /*reusable=*/true);
        continue;
      }
      const SlotPlace place = slabs_.place_of(page->slot);
      sought.push_back({&read, page->stamp});
      disk_reads.push_back({place.file, place.offset_bytes, read.frame});
    }
    for (auto read = reads.rbegin(); read != reads.rend(); ++read) {
      DiskPages::Page* const page = pages_.find_or_null(read->key);
      if (page != nullptr) pages_.touch(*page);
    }
    changed_ |= !sought.empty();
    reading_ = !sought.empty();
  }
  if (!sought.empty()) files_->read(DiskLane::kRead, disk_reads, deadline_us);
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < sought.size(); ++i) {
    sought[i].read->verdict = judge(sought[i], disk_reads[i]);
  }
  reading_ = false;
  close_retired();
  for (const PageRead& read : reads) {
    counters_.read_pages += read.verdict == PageVerdict::kDone ? 1 : 0;
    counters_.missing_pages += read.verdict == PageVerdict::kMissing ? 1 : 0;
    counters_.failed_reads += read.verdict == PageVerdict::kFailed ? 1 : 0;
  }
}

PageVerdict DiskPageStore::judge(const Sought& sought, const DiskRead& read) {
  DiskPages::Page* const page = pages_.find_or_null(sought.read->key);
  // It went while it was read, and something else may lie there now.
  if (page == nullptr || page->stamp != sought.stamp) return PageVerdict::kMissing;
  switch (read.outcome) {
    case DiskOutcome::kOverdue:
      return PageVerdict::kFailed;
    case DiskOutcome::kFailed:
      drop(*page, /*reusable=*/false);
      return PageVerdict::kFailed;
    case DiskOutcome::kShort:
      drop(*page, /*reusable=*/false);
      return PageVerdict::kMissing;
    case DiskOutcome::kDone:
      break;
  }
  const Result<PageFrameView> view = read_frame(sought.read->frame);
  if (view.ok() && view->identity.key == sought.read->key) {
    page->unread = false;
    return PageVerdict::kDone;
  }
  ++counters_.corrupt_pages;
  drop(*page, /*reusable=*/true);
  return PageVerdict::kMissing;
}

void DiskPageStore::drop(DiskPages::Page& page, bool reusable) {
  dropped_.push_back({page.key, page.slot, reusable});
  counters_.lost_slots += reusable ? 0 : 1;
  take_from_map(page);
  changed_ = true;
}

// Nobody finds it from now on; its frame lies in its slot still.
void DiskPageStore::take_from_map(DiskPages::Page& page) {
  slabs_.set_stale(page.slot, true);
  pages_.erase(page);
}

void DiskPageStore::close_retired() {
  if (reading_) return;
  files_->overdue(DiskLane::kRead);  // what a reader gave up may have ended since
  std::erase_if(retired_, [this](const Retired& slab) {
    if (files_->is_held(slab.file)) return false;
    files_->close(slab.file);
    return true;
  });
}

std::int64_t DiskPageStore::retired_bytes() const {
  std::int64_t bytes = 0;
  for (const Retired& slab : retired_) bytes += slab.bytes;
  return bytes;
}

PageStoreUsage DiskPageStore::usage() const {
  const std::lock_guard lock(mutex_);
  return {pages_.pages(), slabs_.bytes() + retired_bytes() + stray_bytes() + index_bytes_,
          options_.bytes_max};
}

std::int64_t DiskPageStore::stray_bytes() const {
  std::int64_t bytes = 0;
  for (const Stray& stray : strays_) bytes += stray.file.bytes.value_or(0);
  return bytes;
}

void DiskPageStore::visit_metrics(MetricVisitor& visitor) const {
  const PageStoreUsage used = usage();
  visitor.gauge("stemma_disk_pages", used.pages);
  visitor.gauge("stemma_disk_bytes", used.bytes);
  visitor.gauge("stemma_disk_bytes_max", used.bytes_max);
  visitor.gauge("stemma_disk_read_only", read_only_ ? 1 : 0);
  visitor.counter("stemma_disk_read_pages_total", counters_.read_pages);
  visitor.counter("stemma_disk_missing_pages_total", counters_.missing_pages);
  visitor.counter("stemma_disk_corrupt_pages_total", counters_.corrupt_pages);
  visitor.counter("stemma_disk_failed_reads_total", counters_.failed_reads);
  visitor.counter("stemma_disk_written_pages_total", counters_.written_pages);
  visitor.counter("stemma_disk_written_bytes_total", files_->written_bytes());
  visitor.counter("stemma_disk_refused_pages_total", counters_.refused_pages);
  visitor.counter("stemma_disk_failed_writes_total", counters_.failed_writes);
  visitor.counter("stemma_disk_evicted_pages_total", counters_.evicted_pages);
  visitor.counter("stemma_disk_removed_pages_total", counters_.removed_pages);
  visitor.counter("stemma_disk_kept_removals_total", counters_.kept_removals);
  visitor.counter("stemma_disk_purged_pages_total", counters_.purged_pages);
  visitor.counter("stemma_disk_lost_slots_total", counters_.lost_slots);
  visitor.counter("stemma_disk_bad_index_cells_total", counters_.bad_index_cells);
  visitor.counter("stemma_disk_index_rewrites_total", counters_.rewrites);
  visitor.counter("stemma_disk_index_rebuilds_total", counters_.rebuilds);
}

}  // namespace stemma
