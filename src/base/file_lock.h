// FileLock: a name that one process has at a time, for what is more than one file, or comes and
// goes.
//
// The file is empty and stays when the lock is given up: who removed it would take it from somebody
// who has just opened it. A process that is killed gives it up.
//
// Thread:     one at a time.
// Memory:     a descriptor.
// Cost:       system calls.
// Not here:   locks of a file itself (file_place).
#pragma once

#include <string>
#include <utility>

#include "base/own_process.h"
#include "stemma/result.h"

namespace stemma {

class FileLock {
 public:
  FileLock() = default;  // of nothing
  // Makes the file where there is none. kInvalidArgument and `busy` where another process, or this
  // one, has it; kIo.
  static Result<FileLock> take(const std::string& path, const char* busy);
  FileLock(FileLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  FileLock& operator=(FileLock&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~FileLock();

 private:
  int descriptor_ = -1;
  OwnProcess taken_in_;
};

}  // namespace stemma
