// Where a file lies: its directory, which remembers its name, and whether a name is still its own.
//
// Thread:     any.
// Memory:     none.
// Cost:       system calls.
// Not here:   reading (file), what is in it.
#pragma once

#include <string>

#include "stemma/result.h"

namespace stemma {

// "." where a path names none.
std::string directory_of(const std::string& path);

// The name that was given to a file, or taken from it, survives a loss of power. kIo.
Status sync_directory_of(const std::string& path);

// Whether the open file still has this name.
bool is_named(int descriptor, const std::string& path);

}  // namespace stemma
