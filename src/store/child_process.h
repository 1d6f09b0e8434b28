// ChildProcess: a program run beside this one, known by what it prints: for tests and benchmarks
// that need a real server.
//
// Nothing here waits by the clock: a line that the program prints is the event.
//
// Thread:     one thread, which must live as long as the program is to run: the system kills the
//             program when the thread that started it ends.
// Memory:     what the program has printed.
// Cost:       a fork.
// Not here:   anything that serves.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "stemma/result.h"

namespace stemma {

class ChildProcess {
 public:
  // Starts `words[0]`, found on the PATH. Its standard output and error are read here.
  static Result<ChildProcess> start(std::span<const std::string> words);
  ChildProcess(ChildProcess&& other) noexcept
      : process_(std::exchange(other.process_, -1)),
        output_(std::exchange(other.output_, -1)),
        printed_(std::move(other.printed_)),
        searched_(other.searched_) {}
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  // Kills it.
  ~ChildProcess();

  // Until the program has printed `part` after what the last call found. kNotFound: it ended
  // without; kDeadline.
  Status wait_for(std::string_view part, std::int64_t limit_us);
  // Until it ends, everything it has printed. kIo: it failed; kDeadline.
  Result<std::string> finish(std::int64_t limit_us);
  // Ends it at once, as a crash would.
  void kill();

  // Sends it to sleep, and wakes it up: a server that has stopped answering.
  void freeze();
  void thaw();

 private:
  ChildProcess(pid_t process, int output) noexcept : process_(process), output_(output) {}
  // Whether there may be more.
  Result<bool> read_more(std::int64_t deadline_us);
  int reap();

  MonotonicClock clock_;
  pid_t process_ = -1;
  int output_ = -1;
  std::string printed_;
  std::size_t searched_ = 0;
};

// Runs a program to its end and returns what it printed. kIo with its output: it failed.
Result<std::string> run_program(std::span<const std::string> words, std::int64_t limit_us);

}  // namespace stemma
