// UringFiles: a directory of the system's files through io_uring, direct where the file system can.
//
// One process a directory: opening it to write takes a lock that lasts as long as the object, or
// the process.
//
// Thread:     as DiskFiles: one thread a lane.
// Memory:     a queue's buffers a lane.
// Cost:       as UringQueue.
// Not here:   what the files mean.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "stemma/result.h"
#include "store/disk_files.h"
#include "store/uring_queue.h"

namespace stemma {

struct UringFilesOptions {
  bool exclusive = true;  // lock it; else only look
  bool create = true;     // the directory and its lock, if there are none
  UringQueueOptions queue = {};
};

class UringFiles final : public DiskFiles {
 public:
  // kInvalidArgument if `directory` is none or another process has it; kNotFound; kIo;
  // kUnsupported where there is no io_uring. `clock` must outlive it.
  static Result<std::unique_ptr<UringFiles>> open(const std::string& directory, const Clock& clock,
                                                  const UringFilesOptions& options = {});
  ~UringFiles() override;
  UringFiles(const UringFiles&) = delete;
  UringFiles& operator=(const UringFiles&) = delete;

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
  void write(std::span<DiskWrite> writes, std::int64_t deadline_us) override;
  void read(DiskLane lane, std::span<DiskRead> reads, std::int64_t deadline_us) override;
  std::int64_t overdue(DiskLane lane) override;
  void close(DiskFileId file) override;
  std::int64_t size_bytes(DiskFileId file) override;
  std::int64_t wall_time_s() override;

 private:
  UringFiles(std::string directory, bool exclusive)
      : directory_(std::move(directory)), exclusive_(exclusive) {}
  Status open_directory(bool create);
  Status lock(bool create);
  Result<DiskFileId> open_with(const std::string& name, int flags, DiskAccess access,
                               std::int64_t deadline_us);
  Status call(const UringCall& call, const std::string& what, std::int64_t deadline_us);
  int descriptor_of(DiskFileId file) const;
  DiskFileId add_descriptor(int descriptor);
  UringQueue& queue_of(DiskLane lane) { return lane == DiskLane::kRead ? *reads_ : *writes_; }

  std::string directory_;
  bool exclusive_;
  int directory_descriptor_ = -1;
  int lock_descriptor_ = -1;
  mutable std::mutex mutex_;      // of descriptors_: files open on one lane and are read on both
  std::vector<int> descriptors_;  // by DiskFileId; -1: closed
  std::unique_ptr<UringQueue> reads_;
  std::unique_ptr<UringQueue> writes_;
};

}  // namespace stemma
