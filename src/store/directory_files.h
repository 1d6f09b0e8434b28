// DirectoryFiles: a directory of the system's files through io_uring, or through threads where it
// is not allowed; direct where the file system can.
//
// One process a directory: opening it to write takes a lock that lasts as long as the object, or
// the process and the children that it has forked meanwhile.
//
// Thread:     as DiskFiles: one thread a lane.
// Memory:     a queue's buffers a lane.
// Cost:       as the queues (uring_queue, thread_queue).
// Not here:   what the files mean.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file_lock.h"
#include "base/own_process.h"
#include "stemma/result.h"
#include "store/disk_files.h"
#include "store/disk_queue.h"

namespace stemma {

// How the system is asked. kAuto: through io_uring, or through threads where there is none.
enum class DiskIo : std::uint8_t { kAuto, kUring, kThreads };

struct DirectoryFilesOptions {
  bool exclusive = true;  // lock it; else only look
  bool create = true;     // the directory and its lock, if there are none
  DiskIo io = DiskIo::kAuto;
  DiskQueueOptions queue = {};
};

class DirectoryFiles final : public DiskFiles {
 public:
  // kInvalidArgument if `directory` is none or another process has it; kNotFound; kIo;
  // kUnsupported where there is no io_uring and nothing else is allowed. `clock` must outlive it.
  static Result<std::unique_ptr<DirectoryFiles>> open(const std::string& directory,
                                                      const Clock& clock,
                                                      const DirectoryFilesOptions& options = {});
  ~DirectoryFiles() override;
  DirectoryFiles(const DirectoryFiles&) = delete;
  DirectoryFiles& operator=(const DirectoryFiles&) = delete;

  const std::string& directory() const override { return directory_; }
  Result<std::vector<DiskEntry>> list() override;
  Result<DiskFileId> open(const std::string& name, DiskAccess access,
                          std::int64_t deadline_us) override;
  Result<DiskFileId> create(const std::string& name, DiskAccess access,
                            std::int64_t deadline_us) override;
  Status allocate(DiskFileId file, std::int64_t bytes, std::int64_t deadline_us) override;
  Status rename(const std::string& from, const std::string& to, std::int64_t deadline_us) override;
  Status remove(const std::string& name, std::int64_t deadline_us) override;
  Status sync(DiskFileId file, std::int64_t deadline_us) override;
  Status sync_directory(std::int64_t deadline_us) override;
  void read(DiskLane lane, std::span<DiskRead> reads, std::int64_t deadline_us) override;
  std::int64_t overdue(DiskLane lane) override;
  void close(DiskFileId file) override;
  bool is_held(DiskFileId file) override;
  std::optional<std::int64_t> size_bytes(DiskFileId file) override;
  std::int64_t wall_time_s() override;

 private:
  void write_all(std::span<DiskWrite> writes, std::int64_t deadline_us) override;
  DirectoryFiles(std::string directory, bool exclusive)
      : directory_(std::move(directory)), exclusive_(exclusive) {}
  Status open_directory(bool create);
  Status lengthen(DiskFileId file, std::int64_t bytes, std::int64_t deadline_us);
  Status open_queues(const Clock& clock, const DirectoryFilesOptions& options);
  template <typename Queue>
  Status open_both(const Clock& clock, const DiskQueueOptions& options);
  Status lock(bool create);
  Result<DiskFileId> open_with(const std::string& name, int flags, DiskAccess access,
                               std::int64_t deadline_us);
  Status call(const DiskCall& call, const std::string& what, std::int64_t deadline_us);
  int descriptor_of(DiskFileId file) const;
  DiskFileId add_descriptor(int descriptor);
  bool is_held_open(int descriptor) const {
    return reads_->holds(descriptor) || writes_->holds(descriptor);
  }
  void close_unused();
  DiskQueue& queue_of(DiskLane lane) { return lane == DiskLane::kRead ? *reads_ : *writes_; }

  std::string directory_;
  bool exclusive_;
  int directory_descriptor_ = -1;
  FileLock lock_;
  mutable std::mutex mutex_;      // of the next two: files open on one lane and are read on both
  std::vector<int> descriptors_;  // by DiskFileId; -1: closed
  std::vector<int> closing_;      // of closed files; what was given up may still be at work on them
  OwnedInProcess<DiskQueue> reads_;
  OwnedInProcess<DiskQueue> writes_;
};

}  // namespace stemma
