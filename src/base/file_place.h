// Where a file lies: its directory, which remembers its name, whether a name is still its own, and
// whose it is to write.
//
// Thread:     any.
// Memory:     none.
// Cost:       system calls.
// Not here:   reading (file), what is in it.
#pragma once

#include <string>

#include "base/function_ref.h"
#include "stemma/result.h"

namespace stemma {

// kIo with errno: "PATH: cannot WHAT".
Error file_failure(const std::string& path, const char* what);

// "." where a path names none.
std::string directory_of(const std::string& path);

// The name that was given to a file, or taken from it, survives a loss of power. kIo.
Status sync_directory_of(const std::string& path);

// Whether the open file still has this name. kIo where that cannot be told.
Result<bool> is_named(int descriptor, const std::string& path);

// What `open` opens at `path`, or below 0 with errno, with a lock: this process's, and its forked
// children's, until it is given up or the last of them has closed it. kInvalidArgument and `busy`
// where another process has it, for which nobody waits; kIo.
Result<int> open_locked(const std::string& path, FunctionRef<int()> open, const char* busy);

}  // namespace stemma
