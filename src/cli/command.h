// Command: how the commands of `stemma` hang together: flags, exit codes, where errors go.
//
// Thread:     main.
// Memory:     each command owns its flags.
// Cost:       none.
// Not here:   what the commands do (x_command).
#pragma once

#include "cli/flags.h"
#include "stemma/result.h"

namespace stemma {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;  // a file, a model or a run failed
inline constexpr int kExitUsage = 2;   // what was typed cannot be meant

// One command: its constructor adds it, with its flags, to the program's, whose CommandLine must
// not parse once the command is gone.
class Command {
 public:
  virtual ~Command() = default;
  // Whether it is the one that was typed. REQUIRES: the command line was parsed.
  virtual bool chosen() const = 0;
  // Does it. An error whose text begins with "--" is one of usage, but for what the system refused
  // (kIo): who typed the same again might have it.
  virtual Status run() = 0;
};

// The whole program: parses, runs, prints one line for an error, returns the exit code.
int run_command_line(int argc, const char* const* argv);

}  // namespace stemma
