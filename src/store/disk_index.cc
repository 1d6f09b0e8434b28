// A cell:
//
//     0  magic    u32            64  key           32 bytes   (kPut, kRemove)
//     4  CRC32C of the rest      96  generation    u64        (kPut)
//     8  kind     u32           104  stored at, s  i64        (kPut)
//    12  slab     i32            64  text          64 bytes   (kDescribe)
//    16  slot     i32
//    20  text bytes u32, or flags  (kPut)
//    24  ordinal  i64  and one more (kPut); 0: not known
//    32  namespace 32 bytes
//
// Of a description, `slab` is the number of the part; the one of part 0 begins it anew.
#include "store/disk_index.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/crc32c.h"

namespace stemma {

namespace {

constexpr char kName[] = "index";
constexpr char kNewName[] = "index.new";
constexpr std::uint32_t kMagic = 0x31584953;  // "SIX1"
constexpr std::size_t kCell = static_cast<std::size_t>(kIndexCellBytes);
constexpr std::size_t kTextBytes = 64;
constexpr std::size_t kCheckedAt = 8;
constexpr std::size_t kPieceBytes = 1 << 20;

// Of a new file, made durable at once: a slow disk comes further with each call.
constexpr std::size_t kNewPieceBytes = 4 << 20;

enum class Kind : std::uint32_t { kPut = 1, kRemove = 2, kDescribe = 3 };

constexpr std::uint32_t kUnread = 1;  // a flag

struct Cell {
  std::uint32_t magic = kMagic;
  std::uint32_t checksum = 0;
  Kind kind = Kind::kPut;
  SlotRef slot;
  std::uint32_t text_bytes_or_flags = 0;
  std::int64_t ordinal_after = 0;
  NamespaceDigest namespace_digest;
  std::array<std::byte, kTextBytes> rest = {};
};
static_assert(sizeof(Cell) == kCell);

struct PageFields {
  PageKey key;
  std::uint64_t generation = 0;
  std::int64_t stored_at_s = 0;
};
static_assert(sizeof(PageFields) <= kTextBytes);

void append_cell(std::vector<std::byte>& bytes, Cell cell) {
  const auto image = std::as_bytes(std::span(&cell, 1));
  cell.checksum = crc32c(image.subspan(kCheckedAt));
  bytes.insert(bytes.end(), image.begin(), image.end());
}

void append_page(std::vector<std::byte>& bytes, Cell cell, const PageFields& fields) {
  std::memcpy(cell.rest.data(), &fields, sizeof(fields));
  append_cell(bytes, cell);
}

}  // namespace

void IndexCells::put(const IndexedPage& page) {
  Cell cell;
  cell.slot = page.slot;
  cell.text_bytes_or_flags = page.unread ? kUnread : 0;
  cell.ordinal_after = page.ordinal + 1;
  cell.namespace_digest = page.namespace_digest;
  append_page(bytes_, cell, {page.key, page.generation, page.stored_at_s});
}

void IndexCells::remove(const PageKey& key) {
  Cell cell;
  cell.kind = Kind::kRemove;
  append_page(bytes_, cell, {.key = key});
}

void IndexCells::describe(const NamespaceDigest& digest, std::string_view description) {
  description = description.substr(0, kDescriptionBytesMax);
  Cell cell;
  cell.kind = Kind::kDescribe;
  cell.namespace_digest = digest;
  for (cell.slot.slab = 0; !description.empty(); ++cell.slot.slab) {
    const std::string_view part = description.substr(0, kTextBytes);
    cell.rest = {};
    std::memcpy(cell.rest.data(), part.data(), part.size());
    cell.text_bytes_or_flags = static_cast<std::uint32_t>(part.size());
    append_cell(bytes_, cell);
    description.remove_prefix(part.size());
  }
}

void IndexCells::add(const IndexCells& more) {
  bytes_.insert(bytes_.end(), more.bytes_.begin(), more.bytes_.end());
}

void IndexReader::take(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t size = std::min(bytes.size(), kCell);
    take_cell(bytes.first(size));
    bytes = bytes.subspan(size);
  }
}

void IndexReader::take_cell(std::span<const std::byte> bytes) {
  ++contents_.cells;
  Cell cell;
  if (bytes.size() == kCell) std::memcpy(&cell, bytes.data(), kCell);
  if (bytes.size() < kCell || cell.magic != kMagic ||
      cell.checksum != crc32c(bytes.subspan(kCheckedAt))) {
    ++contents_.bad_cells;
    return;
  }
  if (cell.kind == Kind::kDescribe) {
    auto& parts = parts_[cell.namespace_digest];
    if (cell.slot.slab == 0) parts.clear();
    const std::size_t size = std::min<std::size_t>(cell.text_bytes_or_flags, kTextBytes);
    parts[cell.slot.slab].assign(reinterpret_cast<const char*>(cell.rest.data()), size);
    return;
  }
  PageFields fields;
  std::memcpy(&fields, cell.rest.data(), sizeof(fields));
  if (cell.kind == Kind::kRemove) {
    pages_.erase(fields.key);
    return;
  }
  contents_.slab_max = std::max(contents_.slab_max, cell.slot.slab);
  pages_[fields.key] = {
      {fields.key, cell.namespace_digest, cell.slot, fields.generation, fields.stored_at_s,
       cell.ordinal_after - 1, (cell.text_bytes_or_flags & kUnread) != 0},
      contents_.cells};
}

// A slot that two keys name is the later one's: the record that took it away from the other was
// lost.
IndexContents IndexReader::finish() && {
  std::vector<Found> found;
  found.reserve(pages_.size());
  for (const auto& [key, page] : pages_) found.push_back(page);
  pages_.clear();
  std::ranges::sort(found, {}, &Found::order);
  std::unordered_map<std::int64_t, std::size_t> owners;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const SlotRef slot = found[i].page.slot;
    owners[(std::int64_t{slot.slab} << 32) | static_cast<std::uint32_t>(slot.slot)] = i;
  }
  contents_.contested = owners.size() < found.size();
  contents_.pages.reserve(owners.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    const SlotRef slot = found[i].page.slot;
    const auto key = (std::int64_t{slot.slab} << 32) | static_cast<std::uint32_t>(slot.slot);
    if (owners[key] == i) contents_.pages.push_back(found[i].page);
  }
  // What a lost record removed may be named still, and others lie in its slot.
  const bool lost = contents_.bad_cells > 0 || contents_.contested;
  for (IndexedPage& page : contents_.pages) page.unread |= lost;
  for (const auto& [digest, parts] : parts_) {
    for (const auto& [number, text] : parts) contents_.descriptions[digest] += text;
  }
  contents_.found = contents_.cells == 0 || contents_.bad_cells < contents_.cells;
  return std::move(contents_);
}

Result<IndexContents> DiskIndex::load(std::int64_t deadline_us) {
  const Result<DiskFileId> file = files_.open(kName, DiskAccess::kBuffered, deadline_us);
  if (!file.ok() && file.error().code == ErrorCode::kNotFound) return IndexContents();
  if (!file.ok()) return file.error();
  const std::optional<std::int64_t> told = files_.size_bytes(*file);
  if (!told.has_value()) {
    files_.close(*file);
    return Error{ErrorCode::kIo, files_.directory() + "/index: cannot tell its size"};
  }
  const std::int64_t size = *told;
  IndexReader reader;
  std::vector<std::byte> piece(kPieceBytes);
  for (std::int64_t at = 0; at < size; at += std::ssize(piece)) {
    const auto bytes = std::span(piece).first(
        static_cast<std::size_t>(std::min<std::int64_t>(size - at, std::ssize(piece))));
    DiskRead read = {*file, at, bytes};
    files_.read(DiskLane::kWrite, std::span(&read, 1), deadline_us);
    if (read.outcome != DiskOutcome::kDone) {
      files_.close(*file);
      const bool overdue = read.outcome == DiskOutcome::kOverdue;
      return Error{overdue ? ErrorCode::kDeadline : ErrorCode::kIo,
                   files_.directory() + "/index: cannot read", read.sys_errno};
    }
    reader.take(bytes);
  }
  // Appending goes on at a cell's begin; a torn end stays a bad cell until the next rewrite.
  replace_file(*file, (size + kIndexCellBytes - 1) / kIndexCellBytes * kIndexCellBytes);
  return std::move(reader).finish();
}

Status DiskIndex::append(const IndexCells& cells, std::int64_t deadline_us) {
  STEMMA_CHECK(usable_, "after a failed append the index is written anew");
  if (cells.empty()) return {};
  stop_rewriting();
  usable_ = false;
  STEMMA_RETURN_IF_ERROR(write(*file_, file_bytes_, cells.bytes(), deadline_us));
  STEMMA_RETURN_IF_ERROR(sync(*file_, deadline_us));
  file_bytes_ += std::ssize(cells.bytes());
  usable_ = true;
  return {};
}

Status DiskIndex::rewrite(FunctionRef<bool(IndexCells&)> next, std::int64_t deadline_us) {
  const bool goes_on = is_rewriting();
  if (!goes_on) rewrite_or_none_ = Rewrite();
  const bool was_full = rewrite_or_none_->is_full();
  if (Status filled = fill(next, deadline_us); !filled.ok()) {
    if (filled.error().code == ErrorCode::kDeadline) return filled;
    stop_rewriting();
    ignore_error(files_.remove(kNewName, deadline_us), "the next rewrite truncates it");
    return filled;
  }
  // Giving the name cannot go on in a later call: it has the time of a whole one.
  if (goes_on && !was_full) {
    return Error{ErrorCode::kDeadline, files_.directory() + "/index: its name comes next"};
  }
  const DiskFileId file = *rewrite_or_none_->file;
  const std::int64_t bytes = rewrite_or_none_->bytes;
  rewrite_or_none_.reset();
  // From here on nobody knows which of the two files has the name.
  usable_ = false;
  Status named = files_.rename(kNewName, kName, deadline_us);
  if (named.ok()) {
    named = files_.sync_directory(deadline_us);
    sync_failed_ |= !named.ok() && named.error().code != ErrorCode::kDeadline;
  }
  if (!named.ok()) {
    files_.close(file);
    return named;
  }
  replace_file(file, bytes);
  return {};
}

// A piece whose sync was given up is written again too: what became of that sync nobody knows, and
// one more would say nothing of what was written before it.
Status DiskIndex::fill(FunctionRef<bool(IndexCells&)> next, std::int64_t deadline_us) {
  Rewrite& rewrite = *rewrite_or_none_;
  if (!rewrite.file.has_value()) {
    STEMMA_ASSIGN_OR_RETURN(rewrite.file,
                            files_.create(kNewName, DiskAccess::kBuffered, deadline_us));
  }
  while (!rewrite.is_full()) {
    while (rewrite.more && rewrite.cells.bytes().size() < kNewPieceBytes) {
      rewrite.more = next(rewrite.cells);
    }
    STEMMA_RETURN_IF_ERROR(write(*rewrite.file, rewrite.bytes, rewrite.cells.bytes(), deadline_us));
    STEMMA_RETURN_IF_ERROR(sync(*rewrite.file, deadline_us));
    rewrite.bytes += std::ssize(rewrite.cells.bytes());
    rewrite.cells.clear();
  }
  return {};
}

void DiskIndex::stop_rewriting() {
  if (!is_rewriting()) return;
  if (rewrite_or_none_->file.has_value()) files_.close(*rewrite_or_none_->file);
  rewrite_or_none_.reset();
}

Status DiskIndex::write(DiskFileId file, std::int64_t offset_bytes,
                        std::span<const std::byte> bytes, std::int64_t deadline_us) {
  if (bytes.empty()) return {};
  DiskWrite write = {file, offset_bytes, bytes};
  files_.write(std::span(&write, 1), deadline_us);
  if (write.outcome == DiskOutcome::kDone) return {};
  const bool overdue = write.outcome == DiskOutcome::kOverdue;
  return Error{overdue ? ErrorCode::kDeadline : ErrorCode::kIo,
               files_.directory() + "/index: cannot write", write.sys_errno};
}

Status DiskIndex::sync(DiskFileId file, std::int64_t deadline_us) {
  Status synced = files_.sync(file, deadline_us);
  sync_failed_ |= !synced.ok() && synced.error().code != ErrorCode::kDeadline;
  return synced;
}

void DiskIndex::replace_file(std::optional<DiskFileId> file, std::int64_t bytes) {
  if (file_.has_value()) files_.close(*file_);
  file_ = file;
  file_bytes_ = bytes;
  usable_ = true;
}

}  // namespace stemma
