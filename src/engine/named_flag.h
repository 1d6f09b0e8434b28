// Errors of what a flag of the command line says.
//
// Thread:     pure functions.
// Memory:     one text.
// Cost:       none worth naming.
// Not here:   which flags there are (cli/).
#pragma once

#include <string>
#include <string_view>

#include "stemma/result.h"

namespace stemma {

// The error, behind the flag whose value it is of.
inline Error named(std::string_view flag, const Error& error) {
  return {error.code, std::string(flag) + ": " + error.detail, error.sys_errno};
}

}  // namespace stemma
