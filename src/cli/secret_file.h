// Secrets and keys, each in a file of its own: what stands on a command line, others can see.
//
// Thread:     pure functions.
// Memory:     the secret.
// Cost:       reading a small file.
// Not here:   what it is good for.
#pragma once

#include <string>
#include <string_view>

#include "stemma/result.h"

namespace stemma {

// Everything in the file but line ends at its end. Errors name `flag`; an empty file is one.
Result<std::string> read_secret_file(const std::string& path, std::string_view flag);

}  // namespace stemma
