// FileLock: an open file that is one process's at a time, until it is given up; a process that is
// killed gives it up.
//
// Thread:     one at a time.
// Memory:     a descriptor.
// Cost:       system calls.
// Not here:   opening a file whose name may change hands (file_place).
#pragma once

#include <string>
#include <utility>

#include "base/own_process.h"
#include "stemma/result.h"

namespace stemma {

class FileLock {
 public:
  FileLock() = default;  // of nothing
  // Of a file that this process has locked, or is about to lock, and which is closed with it; below
  // 0: of nothing.
  explicit FileLock(int descriptor) : descriptor_(descriptor) {}
  // Makes the file where there is none; it stays, for who removed it would take it from somebody
  // who has just opened it. kInvalidArgument and `busy` where another process, or this one, has it;
  // kIo.
  static Result<FileLock> take(const std::string& path, const char* busy);
  FileLock(FileLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  FileLock& operator=(FileLock&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~FileLock();

  int descriptor() const noexcept { return descriptor_; }  // below 0: of nothing

 private:
  int descriptor_ = -1;
  OwnProcess taken_in_;
};

}  // namespace stemma
