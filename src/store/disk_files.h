// DiskFiles: the files of one directory as the disk store uses them: operations that end by a
// deadline whatever the disk does, so that simulated disks and faults can stand in for it.
//
// Two lanes run at once, each for one thread at a time: reads of pages on one, everything that
// writes, creates, removes and syncs on the other. An operation that has not ended by its deadline
// is given up: it may still take effect at any later time, but never touches a caller's memory.
//
// Thread:     one thread a lane at a time; close, is_held and size_bytes from both; written_bytes
//             from any.
// Memory:     callers' bytes are used during a call only.
// Cost:       that of the system's operations.
// Not here:   what the files mean (disk_slabs, disk_index).
#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stemma/ids.h"
#include "stemma/result.h"

namespace stemma {

enum class DiskLane : std::uint8_t { kRead, kWrite };

// kDirect: past the system's page cache; offsets, sizes and nothing else are multiples of 4096.
enum class DiskAccess : std::uint8_t { kDirect, kBuffered };

using DiskFileId = StrongId<struct DiskFileTag>;

enum class DiskOutcome : std::uint8_t {
  kDone,
  kShort,    // a read: the file ends before
  kFailed,   // sys_errno says why
  kOverdue,  // the deadline passed; it may yet take effect
};

// Whether it says that there is no room: on the file system, or in the user's share of it.
constexpr bool is_disk_full(int sys_errno) noexcept {
  return sys_errno == ENOSPC || sys_errno == EDQUOT;
}

struct DiskRead {
  DiskFileId file;
  std::int64_t offset_bytes = 0;
  std::span<std::byte> bytes;
  DiskOutcome outcome = DiskOutcome::kFailed;
  int sys_errno = 0;
};

struct DiskWrite {
  DiskFileId file;
  std::int64_t offset_bytes = 0;
  std::span<const std::byte> bytes;
  DiskOutcome outcome = DiskOutcome::kFailed;
  int sys_errno = 0;
};

struct DiskEntry {
  std::string name;
  std::optional<std::int64_t> bytes;  // nullopt: it cannot be told
};

class DiskFiles {
 public:
  virtual ~DiskFiles() = default;

  // The directory's path, for messages.
  virtual const std::string& directory() const = 0;

  // The regular files in it, and what may be one, in the order of their names. kIo.
  virtual Result<std::vector<DiskEntry>> list() = 0;

  // On the write lane. kDeadline: overdue; kNotFound; else kIo with errno.
  // A new file is the owner's alone (mode 0600).
  virtual Result<DiskFileId> open(const std::string& name, DiskAccess access,
                                  std::int64_t deadline_us) = 0;
  virtual Result<DiskFileId> create(const std::string& name, DiskAccess access,
                                    std::int64_t deadline_us) = 0;
  // The file is so long, and has its room where the file system can keep some. REQUIRES: a multiple
  // of 4096, and more than it was.
  virtual Status allocate(DiskFileId file, std::int64_t bytes, std::int64_t deadline_us) = 0;
  virtual Status rename(const std::string& from, const std::string& to,
                        std::int64_t deadline_us) = 0;
  virtual Status remove(const std::string& name, std::int64_t deadline_us) = 0;
  // What was written to the file, and its size, survives a loss of power from now on.
  virtual Status sync(DiskFileId file, std::int64_t deadline_us) = 0;
  // So do names that were created, changed and removed.
  virtual Status sync_directory(std::int64_t deadline_us) = 0;
  // Writes, in any order, each with its outcome.
  void write(std::span<DiskWrite> writes, std::int64_t deadline_us) {
    for (const DiskWrite& write : writes) written_bytes_ += std::ssize(write.bytes);
    write_all(writes, deadline_us);
  }
  // Of all writes so far, whatever became of them: what wears the disk.
  std::int64_t written_bytes() const noexcept { return written_bytes_; }

  // On the lane that is named: reads, in any order, each with its outcome.
  virtual void read(DiskLane lane, std::span<DiskRead> reads, std::int64_t deadline_us) = 0;
  // Operations of that lane that were given up and that the system has not ended yet.
  virtual std::int64_t overdue(DiskLane lane) = 0;

  // REQUIRES: nobody uses the file.
  virtual void close(DiskFileId file) = 0;
  // Whether an operation on it was given up and has not ended, as far as overdue() has been asked:
  // until then the system has it open, and its room is not free though its name is gone.
  virtual bool is_held(DiskFileId file) = 0;
  // As the file is now; nullopt if it cannot be told.
  virtual std::optional<std::int64_t> size_bytes(DiskFileId file) = 0;

  // Seconds since 1970, to show ages to people; nothing is decided by it.
  virtual std::int64_t wall_time_s() = 0;

 private:
  virtual void write_all(std::span<DiskWrite> writes, std::int64_t deadline_us) = 0;

  std::atomic<std::int64_t> written_bytes_ = 0;
};

}  // namespace stemma
