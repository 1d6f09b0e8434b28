// DiskPageStore: frames in slab files of one directory, found again after a restart.
//
// A write stores bodies, syncs them, and only then commits them to the index (group commit: one
// sync of each for all pages of a call); a slot is used again only after the removal of its page is
// durable. So after a crash each indexed page is whole, or was never confirmed and is found out by
// its own checksums. What cannot be made durable is not retried and believed: after an error of a
// sync the store only reads. While an operation that was given up has not ended, nothing else is
// written.
//
// Thread:     as PageStore: lookup, describe, usage and visit_metrics from any thread, one reader,
//             one writer.                                    Invariants: I8, I9, I10.
// Memory:     the index, about 220 bytes a page, while it is written anew 120 more, and the buffers
//             of the files.
// Cost:       lookup: a hash a key, under a mutex that is never held during I/O, nor for longer
//             than a call's own pages take, those of a slab, or a piece of all.
// Not here:   the parts: disk_files (operations), disk_index (the log), disk_slabs (slots),
//             disk_pages (which page goes first); checking frames (disk_check).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/function_ref.h"
#include "base/own_process.h"
#include "device/buffer.h"
#include "stemma/page_store.h"
#include "store/disk_files.h"
#include "store/disk_index.h"
#include "store/disk_pages.h"
#include "store/disk_slabs.h"
#include "tier/page_frame.h"

namespace stemma {

struct DiskPageStoreOptions {
  std::int64_t bytes_max = 0;   // of everything in the directory
  std::int64_t slab_bytes = 0;  // of a slab file; 0: a share of bytes_max
};

// Smaller limits leave no room for an index.
inline constexpr std::int64_t kDiskBytesMin = std::int64_t{512} << 10;

class DiskPageStore final : public PageStore {
 public:
  // Opens warm: pages that lie in the directory are found. kInvalidArgument: another process has
  // it, or bytes_max is below kDiskBytesMin; kIo. `clock` must outlive it.
  static Result<std::unique_ptr<DiskPageStore>> open(const std::string& directory,
                                                     const Clock& clock,
                                                     const DiskPageStoreOptions& options);
  // The same over other files.
  static Result<std::unique_ptr<DiskPageStore>> open(std::unique_ptr<DiskFiles> files,
                                                     const Clock& clock,
                                                     const DiskPageStoreOptions& options);
  // Writes down which pages were used last, if nothing hangs and this is the process that opened
  // it.
  ~DiskPageStore() override;
  DiskPageStore(const DiskPageStore&) = delete;
  DiskPageStore& operator=(const DiskPageStore&) = delete;

  Tier tier() const override { return Tier::kDisk; }
  std::string_view name() const override { return "disk"; }
  // Logs, where pages of other namespaces lie here and none of this one, what the nearest of them
  // has otherwise.
  void describe(const NamespaceDigest& digest, std::string_view description) override;
  Result<std::int64_t> lookup(std::span<const PageKey> keys, std::int64_t deadline_us) override;
  bool lookup_is_local() const override { return true; }
  // A page of another length than its reader's is of use to nobody, and goes. REQUIRES: frames are
  // aligned to 8 bytes, here and in write.
  void read(std::span<PageRead> reads, std::int64_t deadline_us) override;
  void write(std::span<PageWrite> writes, std::int64_t deadline_us) override;
  // A page that cannot be read back right either goes too.
  void remove(std::span<const PageRemoval> removals, std::int64_t deadline_us) override;
  // The headers of all frames that are found no more are overwritten, also of those that were
  // evicted, so that an index that is lost brings none of them back; of a purge of all, the files
  // go. So does, in either, a slab that could not be opened: which pages it has cannot be told.
  Status make_removals_last(std::int64_t deadline_us) override;
  PurgeOutcome purge(std::span<const NamespaceFamily> namespaces,
                     std::int64_t deadline_us) override {
    return purge_behind(namespaces, 0, deadline_us);
  }
  PurgeOutcome purge_behind(std::span<const NamespaceFamily> namespaces, std::int64_t pages_before,
                            std::int64_t deadline_us) override;
  PageStoreUsage usage() const override;
  void visit_metrics(MetricVisitor& visitor) const override;

  // Whether an error, or a disk that was too slow to open, has ended all writing until the next
  // opening.
  bool read_only() const noexcept { return read_only_; }

 private:
  struct Staged {
    PageWrite* write = nullptr;
    IndexedPage page;
    bool placed = false;  // it has a slot
    bool stored = false;  // its body is durable
  };
  // Frames that go to the disk at once.
  struct BodyWrite {
    DiskWrite write;
    std::vector<Staged*> pages;
  };
  // A page that was found bad or lost: its removal is written with the next commit.
  struct Dropped {
    PageKey key;
    SlotRef slot;
    bool reusable = true;  // the slot
  };
  struct RankedPage {
    DiskPages::Rank rank;
    IndexedPage page;
  };
  // What the index is being made anew from.
  struct Snapshot {
    IndexCells descriptions;
    std::vector<RankedPage> pages;
    std::size_t next = 0;
  };
  struct Stray {
    DiskEntry file;
    bool goes = true;  // it could not be removed yet; else not be opened, and is left alone
  };
  // A slab that went, and whose file a reader has open.
  struct Retired {
    DiskFileId file;
    std::int64_t bytes = 0;
  };
  struct Sought {
    PageRead* read = nullptr;
    std::uint64_t stamp = 0;
  };
  struct Counters {
    std::atomic<std::int64_t> read_pages = 0;
    std::atomic<std::int64_t> missing_pages = 0;
    std::atomic<std::int64_t> corrupt_pages = 0;
    std::atomic<std::int64_t> failed_reads = 0;
    std::atomic<std::int64_t> written_pages = 0;
    std::atomic<std::int64_t> refused_pages = 0;
    std::atomic<std::int64_t> failed_writes = 0;
    std::atomic<std::int64_t> evicted_pages = 0;
    std::atomic<std::int64_t> removed_pages = 0;
    std::atomic<std::int64_t> kept_removals = 0;
    std::atomic<std::int64_t> purged_pages = 0;
    std::atomic<std::int64_t> lost_slots = 0;
    std::atomic<std::int64_t> bad_index_cells = 0;
    std::atomic<std::int64_t> rewrites = 0;
    std::atomic<std::int64_t> rebuilds = 0;  // of the index, from the frames
  };

  DiskPageStore(std::unique_ptr<DiskFiles> files, const Clock& clock,
                const DiskPageStoreOptions& options);

  // Opening (disk_page_store_open.cc).
  Status load();
  std::int64_t in_time() const;
  Result<IndexContents> read_all();
  Status open_slabs(std::int64_t until_us);
  void close_slabs();
  IndexContents contents_of_frames(std::int64_t deadline_us);
  void adopt(const IndexContents& contents);
  void fit_into_limit(std::int64_t deadline_us);

  // Writing (disk_page_store_write.cc). `mutex_` is not held by the caller.
  std::vector<Staged> stage(std::span<PageWrite> writes);
  bool stage_one(PageWrite& write, Staged& staged);
  void confirm_stored(std::span<PageWrite> writes);
  bool ready(std::int64_t deadline_us);
  void store(std::span<Staged> staged, std::int64_t deadline_us);
  bool place(std::span<Staged> staged, std::int64_t deadline_us);
  std::int64_t take_slots(std::span<Staged> staged);
  std::int64_t missing_slots(std::span<const Staged> staged, std::int64_t& slot_bytes) const;
  bool grow(std::int64_t slot_bytes, std::int64_t deadline_us);
  std::int64_t least_first_slots(std::int64_t slot_bytes) const;
  Status add_slab(std::int64_t slot_bytes, std::int64_t slots, std::int64_t deadline_us);
  std::int64_t slots_to_add(std::int64_t slot_bytes) const;
  bool drop_other_slab(std::int64_t slot_bytes, std::int64_t deadline_us);
  std::vector<SlotRef> evict(std::int64_t slot_bytes, std::int64_t pages, IndexCells& cells);
  void write_bodies(std::span<Staged> staged, std::int64_t deadline_us);
  std::vector<BodyWrite> body_writes(std::span<Staged> staged) const;
  bool write_once(std::span<Staged> staged, std::int64_t deadline_us);
  void sync_bodies(std::span<Staged> staged, std::int64_t deadline_us);
  void publish(std::span<Staged> staged, std::int64_t deadline_us);
  std::vector<SlotRef> evict_ahead(std::span<const Staged> staged, IndexCells& cells);
  void describe_cells(std::span<const Staged> staged, IndexCells& cells);

  bool remove_one(const PageRemoval& removal, std::int64_t deadline_us);
  bool read_back(DiskRead& read, std::size_t bytes, std::int64_t deadline_us);

  // Purging (disk_page_store_purge.cc).
  Error cannot_be_written() const;
  Status remove_strays(std::int64_t deadline_us);
  void note_leftover(const DiskEntry& file);
  void remove_leftovers(std::int64_t deadline_us);
  PurgeOutcome purge_all(std::int64_t deadline_us);
  PurgeOutcome purge_named(std::span<const NamespaceFamily> sorted, std::int64_t pages_before,
                           std::int64_t deadline_us);
  std::set<std::int32_t> slabs_of(std::span<const NamespaceFamily> families) const;
  std::int64_t take_out(FunctionRef<bool(const DiskPages::Page&)> is_named, SlotRef& next);
  Status read_unread(std::int64_t deadline_us, std::int64_t& slots_done);
  Status read_unread_of(std::int32_t number, std::int64_t deadline_us, std::int64_t& slots_done);
  bool note_header(SlotRef slot, const Result<PageFrameView>& view);
  Status blank_stale(std::int64_t deadline_us, std::int64_t& slots_done);
  Status blank(std::span<const SlotRef> slots, std::int64_t deadline_us);

  // The index and what it costs (disk_page_store_index.cc).
  Status commit(const IndexCells& cells, std::int64_t deadline_us);
  Status append(const IndexCells& cells, std::int64_t deadline_us);
  Status compact(std::int64_t deadline_us);
  Status rewrite(std::int64_t deadline_us);
  IndexCells describe_all();
  std::vector<RankedPage> all_pages();
  bool drop_coldest_slab(std::int64_t deadline_us);
  std::set<std::int32_t> slabs_to_keep() const;
  // Counts its pages in `counter`. An error: its file is still there.
  Status drop_slab(std::int32_t number, std::atomic<std::int64_t>& counter,
                   std::int64_t deadline_us);
  void become_read_only(std::string_view what, const Error& error);
  void settle(std::span<const SlotRef> slots, bool durable);

  // Reading (disk_page_store.cc). `mutex_` is held by the caller.
  PageVerdict judge(const Sought& sought, const DiskRead& read);
  void drop(DiskPages::Page& page, bool reusable);
  void take_from_map(DiskPages::Page& page);
  void close_retired();
  std::int64_t retired_bytes() const;
  std::int64_t stray_bytes() const;
  void note_use();
  void report_difference(const DiskPages::Namespace& described) const;

  OwnProcess opened_in_;
  std::unique_ptr<DiskFiles> files_;
  const Clock& clock_;
  DiskPageStoreOptions options_;
  Counters counters_;
  std::atomic<bool> read_only_ = false;

  mutable std::mutex mutex_;  // of the next nine; never held during I/O
  DiskPages pages_;
  DiskSlabs slabs_;
  std::vector<Dropped> dropped_;
  bool reading_ = false;                    // the reader uses files of slabs
  std::vector<Retired> retired_;            // slabs that went while it did
  bool changed_ = false;                    // since the index was last written anew
  bool is_used_ = false;                    // pages were asked for or stored
  std::vector<NamespaceDigest> described_;  // before that
  std::vector<Stray> strays_;               // files of slabs that are not among them

  // Whose turn it is to write, remove or purge, during I/O too: a reader removes what it found to
  // be wrong. Taken before mutex_. Waits as long as the call that holds it, which has a deadline.
  std::mutex turn_;

  // Of who has the turn.
  DiskIndex index_;
  Snapshot snapshot_;  // while it is written anew
  std::atomic<std::int64_t> index_bytes_ = 0;
  bool unread_pages_ = false;             // some may be
  bool removals_unsynced_ = false;        // of slabs: a loss of power may bring them back
  std::vector<SlotRef> doubtful_;         // nobody knows whether the index names them
  std::set<std::int32_t> slabs_of_call_;  // in which the call that runs has slots
  std::int64_t grow_again_us_;            // not before
  std::int64_t drop_again_us_;            // nor a slab for another size
  std::int64_t slab_bytes_max_;           // of the next
  bool index_was_full_ = false;           // and no slab could go for it during the call
  bool awaits_room_ = false;              // of a slab that went for a full disk while it was read
  Buffer scratch_;                        // a frame that is read back
};

}  // namespace stemma
