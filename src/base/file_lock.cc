#include "base/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/file_place.h"

namespace stemma {

Result<FileLock> FileLock::take(const std::string& path, const char* busy) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
  STEMMA_ASSIGN_OR_RETURN(const int descriptor,
                          open_locked(
                              path, [&] { return ::open(path.c_str(), kFlags, 0600); }, busy));
  return FileLock(descriptor);
}

// Children that were forked meanwhile have it open, too, and would keep the lock.
FileLock::~FileLock() {
  if (descriptor_ < 0) return;
  if (taken_in_.is_here()) ::flock(descriptor_, LOCK_UN);
  ::close(descriptor_);
}

}  // namespace stemma
