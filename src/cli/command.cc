#include "cli/command.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <exception>
#include <initializer_list>
#include <iostream>
#include <string>

#include "base/or_no_thread.h"
#include "cli/bench_command.h"
#include "cli/calibrate_command.h"
#include "cli/events_command.h"
#include "cli/flag_errors.h"
#include "cli/fsck_command.h"
#include "cli/generate_command.h"
#include "cli/inspect_command.h"
#include "cli/probe_command.h"
#include "cli/replay_command.h"
#include "cli/score_command.h"
#include "cli/serve_command.h"
#include "stemma/version.h"

namespace stemma {

namespace {

// In the place of a standard stream that is closed the next file would be opened, a page store's
// say, and have what is printed.
void fill_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) >= 0) continue;
    if (::open("/dev/null", O_RDWR) != stream) ::_exit(kExitFailed);  // where could it be said?
  }
}

int report(const Error& error) {
  std::cerr << "stemma: " << to_string(error) << '\n';
  const bool is_usage = error.detail.starts_with("--") && error.code != ErrorCode::kIo;
  return is_usage ? kExitUsage : kExitFailed;
}

int end_output() {
  std::cout.flush();
  if (!std::cout) return report({ErrorCode::kIo, "cannot write to standard output"});
  return kExitOk;
}

int run_chosen(std::initializer_list<Command*> commands) {
  for (Command* command : commands) {
    if (!command->chosen()) continue;
    const Status status = command->run();
    if (status.ok()) return end_output();
    std::cout.flush();
    return report(behind_flag(status.error()));
  }
  return kExitOk;
}

int parse_and_run(int argc, const char* const* argv) {
  CommandLine line({.name = "stemma",
                    .description = "Stemma: a prefix-sharing KV cache for LLM serving.",
                    .version = "stemma " + std::string(kVersion)});
  line.require_command();
  ServeCommand serve(line.flags());
  GenerateCommand generate(line.flags());
  ScoreCommand score(line.flags());
  CalibrateCommand calibrate(line.flags());
  ProbeCommand probe(line.flags());
  ReplayCommand replay(line.flags());
  InspectCommand inspect(line.flags());
  FsckCommand fsck(line.flags());
  EventsCommand events(line.flags());
  BenchCommand bench(line.flags());
  const Result<bool> typed = line.parse({argv, static_cast<std::size_t>(argc)});
  if (!typed.ok()) {
    std::cerr << "stemma: " << typed.error().detail << " (see stemma --help)\n";
    return kExitUsage;
  }
  if (!*typed) return end_output();  // --help, --version
  return run_chosen(
      {&serve, &generate, &score, &calibrate, &replay, &probe, &inspect, &fsck, &events, &bench});
}

}  // namespace

int run_command_line(int argc, const char* const* argv) {
  fill_standard_streams();
  // A file that may not grow is a disk that is full: an error of that write, not the end.
  ::signal(SIGXFSZ, SIG_IGN);
  try {
    const Result<int> code =
        or_no_thread([&]() -> Result<int> { return parse_and_run(argc, argv); });
    return code.ok() ? *code : report(code.error());
  } catch (const std::exception& error) {  // the edge: nothing may leave as an exception
    return report({ErrorCode::kInternal, error.what()});
  }
}

}  // namespace stemma
