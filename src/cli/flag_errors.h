// Errors of what was typed, with the flag that it was typed behind: what begins with one is an
// error of usage, unless it is the system's (command.h).
//
// Thread:     pure functions.
// Memory:     one text.
// Cost:       none worth naming.
// Not here:   which flags there are (x_command, x_flags).
#pragma once

#include <new>
#include <string>
#include <string_view>

#include "engine/named_flag.h"
#include "stemma/result.h"

namespace stemma {

// What is wrong with a name that was given to `flag`, if anything.
template <typename Value>
Status of_flag(std::string_view flag, const Result<Value>& parsed) {
  if (parsed.ok()) return {};
  return named(flag, parsed.error());
}

// The error of reading the file that `flag` names: behind the flag if there is no such file. What
// is wrong in a file is said of the file.
inline Error of_file(std::string_view flag, const Error& error) {
  return error.code == ErrorCode::kNotFound ? named(flag, error) : error;
}

// What `make` gives, or, where there is no memory for it, that `flag` asks for too much of what.
template <typename Make>
auto or_too_large(std::string_view flag, std::string_view what, Make&& make) -> decltype(make()) {
  try {
    return make();
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::kOutOfMemory,
                 std::string(flag) + ": no memory for as many " + std::string(what)};
  }
}

// The error as it is, or, where it names an option of the engine or of a request that a flag of
// `serve`, `generate`, `score` and `calibrate` sets, behind that flag.
Error behind_flag(const Error& error);

}  // namespace stemma
