#include "store/directory_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "stemma/log.h"
#include "store/thread_queue.h"
#include "store/uring_queue.h"

namespace stemma {

namespace {

constexpr char kLockName[] = "lock";
constexpr unsigned kOwnerOnly = 0700;

Error failure(const std::string& path, const std::string& what, int sys_errno) {
  const ErrorCode code = sys_errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo;
  return Error{code, path + ": cannot " + what, sys_errno};
}

// Takes and closes what ::opendir gave.
class DirectoryListing {
 public:
  explicit DirectoryListing(const std::string& path) : stream_(::opendir(path.c_str())) {}
  ~DirectoryListing() {
    if (stream_ != nullptr) ::closedir(stream_);
  }
  DirectoryListing(const DirectoryListing&) = delete;
  DirectoryListing& operator=(const DirectoryListing&) = delete;

  bool open() const { return stream_ != nullptr; }
  // Null at the end, and on an error, which leaves errno set.
  const dirent* next() {
    errno = 0;
    return ::readdir(stream_);
  }

 private:
  DIR* stream_;
};

}  // namespace

Result<std::unique_ptr<DirectoryFiles>> DirectoryFiles::open(const std::string& directory,
                                                             const Clock& clock,
                                                             const DirectoryFilesOptions& options) {
  std::unique_ptr<DirectoryFiles> files(new DirectoryFiles(directory, options.exclusive));
  STEMMA_RETURN_IF_ERROR(files->open_directory(options.exclusive && options.create));
  STEMMA_RETURN_IF_ERROR(files->open_queues(clock, options));
  return files;
}

Status DirectoryFiles::open_queues(const Clock& clock, const DirectoryFilesOptions& options) {
  if (options.io != DiskIo::kThreads) {
    Status rings = open_both<UringQueue>(clock, options.queue);
    const bool may_be_threads = options.io == DiskIo::kAuto;
    if (rings.ok() || rings.error().code != ErrorCode::kUnsupported || !may_be_threads) {
      return rings;
    }
    STEMMA_LOG(kWarning, "tier.disk.threads", kv("directory", directory_),
               kv("reason", rings.error().detail));
  }
  return open_both<ThreadQueue>(clock, options.queue);
}

template <typename Queue>
Status DirectoryFiles::open_both(const Clock& clock, const DiskQueueOptions& options) {
  STEMMA_ASSIGN_OR_RETURN(reads_, Queue::open(clock, options));
  STEMMA_ASSIGN_OR_RETURN(writes_, Queue::open(clock, options));
  return {};
}

Status DirectoryFiles::open_directory(bool create) {
  if (create && ::mkdir(directory_.c_str(), kOwnerOnly) != 0 && errno != EEXIST) {
    return failure(directory_, "make the directory", errno);
  }
  directory_descriptor_ = ::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory_descriptor_ < 0 && errno == ENOTDIR) {
    return Error{ErrorCode::kInvalidArgument, directory_ + ": not a directory"};
  }
  if (directory_descriptor_ < 0) return failure(directory_, "open", errno);
  return exclusive_ ? lock(create) : Status();
}

Status DirectoryFiles::lock(bool create) {
  const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | (create ? O_CREAT : 0);
  lock_ = FileLock(::openat(directory_descriptor_, kLockName, flags, 0600));
  if (lock_.descriptor() < 0 && errno == ENOENT) {
    return Error{ErrorCode::kNotFound, directory_ + ": holds no disk tier"};
  }
  if (lock_.descriptor() < 0) return failure(join_path(directory_, kLockName), "open", errno);
  if (::flock(lock_.descriptor(), LOCK_EX | LOCK_NB) == 0) return {};
  if (errno != EWOULDBLOCK) return failure(join_path(directory_, kLockName), "lock", errno);
  return Error{ErrorCode::kInvalidArgument,
               directory_ + ": another process uses this cache directory; each needs its own"};
}

DirectoryFiles::~DirectoryFiles() {
  // The queues first: what is overdue may still be at work on the descriptors.
  reads_.reset();
  writes_.reset();
  for (const int descriptor : descriptors_) {
    if (descriptor >= 0) ::close(descriptor);
  }
  for (const int descriptor : closing_) ::close(descriptor);
  if (directory_descriptor_ >= 0) ::close(directory_descriptor_);
}

Result<std::vector<DiskEntry>> DirectoryFiles::list() {
  DirectoryListing listing(directory_);
  if (!listing.open()) return failure(directory_, "list", errno);
  std::vector<DiskEntry> entries;
  while (const dirent* entry = listing.next()) {
    struct stat status = {};
    if (::fstatat(directory_descriptor_, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno != ENOENT) entries.push_back({entry->d_name, std::nullopt});
      continue;  // else it has gone meanwhile
    }
    if (S_ISREG(status.st_mode)) entries.push_back({entry->d_name, status.st_size});
  }
  if (errno != 0 && errno != ENOENT) return failure(directory_, "list", errno);
  std::ranges::sort(entries, {}, &DiskEntry::name);
  return entries;
}

Result<DiskFileId> DirectoryFiles::open(const std::string& name, DiskAccess access,
                                        std::int64_t deadline_us) {
  return open_with(name, exclusive_ ? O_RDWR : O_RDONLY, access, deadline_us);
}

Result<DiskFileId> DirectoryFiles::create(const std::string& name, DiskAccess access,
                                          std::int64_t deadline_us) {
  return open_with(name, O_RDWR | O_CREAT | O_TRUNC, access, deadline_us);
}

Result<DiskFileId> DirectoryFiles::open_with(const std::string& name, int flags, DiskAccess access,
                                             std::int64_t deadline_us) {
  DiskCall open = {.kind = DiskCall::Kind::kOpen,
                   .descriptor = directory_descriptor_,
                   .name = name,
                   .flags = flags | O_CLOEXEC | O_NOFOLLOW};
  if (access == DiskAccess::kDirect) open.flags |= O_DIRECT;
  std::optional<int> answer = writes_->run(open, deadline_us);
  if (answer == -EINVAL && access == DiskAccess::kDirect) {  // a file system without direct I/O
    open.flags &= ~O_DIRECT;
    answer = writes_->run(open, deadline_us);
  }
  const std::string path = join_path(directory_, name);
  if (!answer.has_value()) return Error{ErrorCode::kDeadline, path + ": opening takes too long"};
  if (*answer < 0) return failure(path, "open", -*answer);
  return add_descriptor(*answer);
}

Status DirectoryFiles::call(const DiskCall& call, const std::string& what,
                            std::int64_t deadline_us) {
  const std::optional<int> answer = writes_->run(call, deadline_us);
  const std::string path = call.name.empty() ? directory_ : join_path(directory_, call.name);
  if (!answer.has_value()) return Error{ErrorCode::kDeadline, path + ": too long: to " + what};
  if (*answer < 0) return failure(path, what, -*answer);
  return {};
}

Status DirectoryFiles::allocate(DiskFileId file, std::int64_t bytes, std::int64_t deadline_us) {
  Status allocated =
      call({.kind = DiskCall::Kind::kAllocate, .descriptor = descriptor_of(file), .bytes = bytes},
           "allocate " + std::to_string(bytes) + " bytes", deadline_us);
  const bool can = allocated.ok() || allocated.error().sys_errno != EOPNOTSUPP;
  return can ? std::move(allocated) : lengthen(file, bytes, deadline_us);
}

// NFS before 4.2, ext3 and others keep no room: what has none is then seen when it is written.
Status DirectoryFiles::lengthen(DiskFileId file, std::int64_t bytes, std::int64_t deadline_us) {
  constexpr std::array<std::byte, 4096> kEnd = {};
  DiskWrite end = {file, bytes - std::ssize(kEnd), kEnd};
  write(std::span(&end, 1), deadline_us);
  if (end.outcome == DiskOutcome::kDone) return {};
  const bool overdue = end.outcome == DiskOutcome::kOverdue;
  return Error{overdue ? ErrorCode::kDeadline : ErrorCode::kIo,
               directory_ + ": cannot lengthen a file to " + std::to_string(bytes) + " bytes",
               end.sys_errno};
}

Status DirectoryFiles::rename(const std::string& from, const std::string& to,
                              std::int64_t deadline_us) {
  return call({.kind = DiskCall::Kind::kRename,
               .descriptor = directory_descriptor_,
               .name = from,
               .new_name = to},
              "rename to " + to, deadline_us);
}

Status DirectoryFiles::remove(const std::string& name, std::int64_t deadline_us) {
  return call({.kind = DiskCall::Kind::kRemove, .descriptor = directory_descriptor_, .name = name},
              "remove", deadline_us);
}

Status DirectoryFiles::sync(DiskFileId file, std::int64_t deadline_us) {
  return call({.kind = DiskCall::Kind::kSync, .descriptor = descriptor_of(file), .data_only = true},
              "sync a file", deadline_us);
}

Status DirectoryFiles::sync_directory(std::int64_t deadline_us) {
  return call({.kind = DiskCall::Kind::kSync, .descriptor = directory_descriptor_}, "sync",
              deadline_us);
}

void DirectoryFiles::write_all(std::span<DiskWrite> writes, std::int64_t deadline_us) {
  std::vector<DiskTransfer> transfers(writes.size());
  for (std::size_t i = 0; i < writes.size(); ++i) {
    transfers[i].descriptor = descriptor_of(writes[i].file);
    transfers[i].offset_bytes = writes[i].offset_bytes;
    transfers[i].source = writes[i].bytes;
  }
  writes_->run(transfers, deadline_us);
  for (std::size_t i = 0; i < writes.size(); ++i) {
    writes[i].outcome = transfers[i].outcome;
    writes[i].sys_errno = transfers[i].sys_errno;
  }
}

void DirectoryFiles::read(DiskLane lane, std::span<DiskRead> reads, std::int64_t deadline_us) {
  std::vector<DiskTransfer> transfers(reads.size());
  for (std::size_t i = 0; i < reads.size(); ++i) {
    transfers[i].descriptor = descriptor_of(reads[i].file);
    transfers[i].offset_bytes = reads[i].offset_bytes;
    transfers[i].target = reads[i].bytes;
  }
  queue_of(lane).run(transfers, deadline_us);
  for (std::size_t i = 0; i < reads.size(); ++i) {
    reads[i].outcome = transfers[i].outcome;
    reads[i].sys_errno = transfers[i].sys_errno;
  }
}

std::int64_t DirectoryFiles::overdue(DiskLane lane) {
  const std::int64_t left = queue_of(lane).overdue();
  const std::lock_guard lock(mutex_);
  close_unused();
  return left;
}

void DirectoryFiles::close(DiskFileId file) {
  const std::lock_guard lock(mutex_);
  int& descriptor = descriptors_[file.index()];
  STEMMA_CHECK_GE(descriptor, 0);
  closing_.push_back(std::exchange(descriptor, -1));
  close_unused();
}

bool DirectoryFiles::is_held(DiskFileId file) {
  return is_held_open(descriptor_of(file));
}

// A thread that was about to write when its call was given up would write to whatever has the
// number by then. REQUIRES: mutex_ is held.
void DirectoryFiles::close_unused() {
  std::erase_if(closing_, [this](int descriptor) {
    if (is_held_open(descriptor)) return false;
    ::close(descriptor);
    return true;
  });
}

std::optional<std::int64_t> DirectoryFiles::size_bytes(DiskFileId file) {
  struct stat status = {};
  if (::fstat(descriptor_of(file), &status) != 0) return std::nullopt;
  return status.st_size;
}

std::int64_t DirectoryFiles::wall_time_s() {
  timespec time = {};
  ::clock_gettime(CLOCK_REALTIME, &time);
  return time.tv_sec;
}

int DirectoryFiles::descriptor_of(DiskFileId file) const {
  const std::lock_guard lock(mutex_);
  return descriptors_[file.index()];
}

DiskFileId DirectoryFiles::add_descriptor(int descriptor) {
  const std::lock_guard lock(mutex_);
  const auto free = std::ranges::find(descriptors_, -1);
  if (free == descriptors_.end()) {
    descriptors_.push_back(descriptor);
    return DiskFileId(static_cast<std::int32_t>(descriptors_.size()) - 1);
  }
  *free = descriptor;
  return DiskFileId(static_cast<std::int32_t>(free - descriptors_.begin()));
}

}  // namespace stemma
