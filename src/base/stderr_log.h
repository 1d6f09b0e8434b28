// StderrLog: lines of the log on standard error, which is where they go until somebody takes them.
//
// Thread:     any; a line is written under a mutex, for which fork() can be made to wait.
// Memory:     a line while it is written.
// Cost:       a write.
// Not here:   what a line says (log).
#pragma once

#include <mutex>
#include <string_view>

#include "stemma/log.h"

namespace stemma {

// A line of JSON says itself when and how bad; a line of text is given both here.
void write_to_stderr(LogLevel level, std::string_view line);

// Held while a line is written, and while nothing of others is called.
std::mutex& stderr_log_mutex() noexcept;

}  // namespace stemma
