// OwnProcess: whether this is still the process that made something.
//
// A child of fork() has a copy of the memory, but none of the threads; and the files, locks and
// rings that its parent has open are the parent's still. What stands on any of these is neither
// used there nor taken down: its destructor would wait for threads that are not there, or write
// what the parent writes.
//
// Thread:     any.
// Memory:     a number.
// Cost:       a system call.
// Not here:   what is refused in a child, and how (store/disk_queue, bindings).
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <memory>

namespace stemma {

class OwnProcess {
 public:
  bool is_here() const noexcept { return ::getpid() == pid_; }

 private:
  pid_t pid_ = ::getpid();
};

// Deletes in its own process only: in a child the object stays as it is, which costs memory there.
template <typename T>
class DeletesInOwnProcess {
 public:
  DeletesInOwnProcess() = default;
  // Of a pointer that is taken over in the process that made the object.
  template <typename Made>
  DeletesInOwnProcess(const std::default_delete<Made>&) noexcept {}

  void operator()(T* object) const {
    if (made_in_.is_here()) std::default_delete<T>()(object);
  }

 private:
  OwnProcess made_in_;
};

template <typename T>
using OwnedInProcess = std::unique_ptr<T, DeletesInOwnProcess<T>>;

}  // namespace stemma
