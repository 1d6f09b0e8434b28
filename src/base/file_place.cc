#include "base/file_place.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

namespace stemma {

Error file_failure(const std::string& path, const char* what) {
  return Error{ErrorCode::kIo, path + ": cannot " + what, errno};
}

std::string directory_of(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

Status sync_directory_of(const std::string& path) {
  const std::string directory = directory_of(path);
  const int descriptor = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return file_failure(directory, "open");
  Status synced;
  if (::fsync(descriptor) != 0) synced = file_failure(directory, "sync");
  ::close(descriptor);
  return synced;
}

Result<bool> is_named(int descriptor, const std::string& path) {
  struct stat opened = {};
  struct stat named = {};
  if (::fstat(descriptor, &opened) != 0) return file_failure(path, "stat");
  if (::lstat(path.c_str(), &named) != 0) {
    if (errno == ENOENT) return false;
    return file_failure(path, "stat");
  }
  return opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

// The lock is the open file's: by the time that it is had, another file may have the name.
Result<int> open_locked(const std::string& path, FunctionRef<int()> open, const char* busy) {
  for (;;) {
    const int descriptor = open();
    if (descriptor < 0) return file_failure(path, "open");
    if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
      const bool is_busy = errno == EWOULDBLOCK;
      const Error failed = file_failure(path, "lock");
      ::close(descriptor);
      if (!is_busy) return failed;
      return Error{ErrorCode::kInvalidArgument, path + ": " + busy};
    }
    const Result<bool> is_its = is_named(descriptor, path);
    if (is_its.ok() && *is_its) return descriptor;
    ::close(descriptor);
    if (!is_its.ok()) return is_its.error();
  }
}

}  // namespace stemma
