// DiskIndex: which page lies in which slot, as a file of records that is appended to and now and
// then written anew.
//
// Every record is a cell of 128 bytes with its own CRC32C, so that whatever is torn or flipped
// costs the pages it named and nothing else; the last record of a key or a slot counts. Writing
// anew makes "index.new", syncs it, renames it to "index" and syncs the directory. A record that
// lies is harmless: frames say themselves whose they are, and are verified when they are read.
//
// Thread:     one at a time.
// Memory:     one piece of the file, up to 4 MiB; load gives back what it found.
// Cost:       append: one write and one sync. rewrite: O(records).
// Not here:   which pages there are in memory (disk_pages), slots (disk_slabs).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/function_ref.h"
#include "prefix/page_key.h"
#include "stemma/prefix_cache.h"
#include "stemma/result.h"
#include "store/disk_files.h"

namespace stemma {

// A place for one frame: a slab file's number and a place in it.
struct SlotRef {
  std::int32_t slab = -1;
  std::int32_t slot = -1;
  friend auto operator<=>(const SlotRef&, const SlotRef&) = default;
};

// A page and where it lies.
struct IndexedPage {
  PageKey key;
  NamespaceDigest namespace_digest;
  SlotRef slot;
  std::uint64_t generation = 0;
  std::int64_t stored_at_s = 0;  // wall time, to be shown
  std::int64_t ordinal = -1;     // pages before it in its text; -1: an index of before does not say
  // Records of the index were lost, and nobody has looked since whether its frame lies there.
  bool unread = false;
};

inline constexpr std::int64_t kIndexCellBytes = 128;
// Longer descriptions are cut.
inline constexpr std::size_t kDescriptionBytesMax = 512;

// Records as they lie in the file.
class IndexCells {
 public:
  void put(const IndexedPage& page);
  void remove(const PageKey& key);
  void describe(const NamespaceDigest& digest, std::string_view description);
  void add(const IndexCells& more);

  std::span<const std::byte> bytes() const noexcept { return bytes_; }
  bool empty() const noexcept { return bytes_.empty(); }
  void clear() noexcept { bytes_.clear(); }

 private:
  std::vector<std::byte> bytes_;
};

struct IndexContents {
  bool found = false;              // there is a file with at least one good cell, or an empty one
  std::vector<IndexedPage> pages;  // each key once; the one written longest ago first
  std::map<NamespaceDigest, std::string> descriptions;
  std::int64_t cells = 0;
  std::int64_t bad_cells = 0;
  bool contested = false;  // two keys named one slot: a record that would say whose it is, is lost
  std::int32_t slab_max = -1;  // the highest number of a slab that any record names
};

class DiskIndex {
 public:
  // `files` must outlive it.
  explicit DiskIndex(DiskFiles& files) : files_(files) {}

  // Reads the file, if there is one; appending goes on behind it.
  Result<IndexContents> load(std::int64_t deadline_us);

  // Makes the cells durable. After an error nobody knows which of them are, and usable() is false.
  Status append(const IndexCells& cells, std::int64_t deadline_us);

  // Puts what `next` gives (it appends cells until it returns false) in the place of everything.
  // After an error the old file is as good as before, unless usable() says otherwise. Where the
  // time was too short for a large index, is_rewriting(): the next call goes on from there, and
  // `next` is to go on from what it gave. What is appended in between makes it begin anew.
  Status rewrite(FunctionRef<bool(IndexCells&)> next, std::int64_t deadline_us);
  bool is_rewriting() const noexcept { return rewrite_or_none_.has_value(); }
  // The next one begins anew.
  void stop_rewriting();

  // Whether append may be called.
  bool usable() const noexcept { return usable_; }
  // Whether the system said that it could not make something durable: nothing is believed from then
  // on.
  bool sync_failed() const noexcept { return sync_failed_; }
  std::int64_t file_bytes() const noexcept { return file_bytes_; }

 private:
  // A new file that does not have its name yet.
  struct Rewrite {
    std::optional<DiskFileId> file;  // none: it is still to be made
    std::int64_t bytes = 0;          // of it that are durable
    IndexCells cells;                // that follow
    bool more = true;                // there are more behind these
    bool is_full() const { return !more && cells.empty(); }
  };
  Status fill(FunctionRef<bool(IndexCells&)> next, std::int64_t deadline_us);
  Status write(DiskFileId file, std::int64_t offset_bytes, std::span<const std::byte> bytes,
               std::int64_t deadline_us);
  Status sync(DiskFileId file, std::int64_t deadline_us);
  void replace_file(std::optional<DiskFileId> file, std::int64_t bytes);

  DiskFiles& files_;
  std::optional<DiskFileId> file_;
  std::int64_t file_bytes_ = 0;
  std::optional<Rewrite> rewrite_or_none_;
  bool usable_ = false;
  bool sync_failed_ = false;
};

// What a file of index cells says.
class IndexReader {
 public:
  // The next bytes of the file: a multiple of kIndexCellBytes, but for a torn end.
  void take(std::span<const std::byte> bytes);
  IndexContents finish() &&;

 private:
  void take_cell(std::span<const std::byte> cell);

  struct Found {
    IndexedPage page;
    std::int64_t order = 0;
  };
  IndexContents contents_;
  std::unordered_map<PageKey, Found, PageKeyHash> pages_;
  std::map<NamespaceDigest, std::map<std::int32_t, std::string>> parts_;
};

}  // namespace stemma
