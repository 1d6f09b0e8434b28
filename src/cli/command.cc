#include "cli/command.h"

#include <exception>
#include <iostream>

#include "cli/bench_command.h"
#include "cli/calibrate_command.h"
#include "cli/events_command.h"
#include "cli/fsck_command.h"
#include "cli/generate_command.h"
#include "cli/inspect_command.h"
#include "cli/probe_command.h"
#include "cli/replay_command.h"
#include "cli/serve_command.h"
#include "stemma/version.h"

namespace stemma {

namespace {

int report(const Error& error) {
  std::cerr << "stemma: " << to_string(error) << '\n';
  return error.detail.rfind("--", 0) == 0 ? kExitUsage : kExitFailed;
}

int run_chosen(std::initializer_list<Command*> commands) {
  for (Command* command : commands) {
    if (!command->chosen()) continue;
    const Status status = command->run();
    std::cout.flush();
    if (!status.ok()) return report(status.error());
    if (!std::cout) return report({ErrorCode::kIo, "cannot write to standard output"});
  }
  return kExitOk;
}

int parse_and_run(int argc, const char* const* argv) {
  CLI::App app("Stemma: a prefix-sharing KV cache for LLM serving.", "stemma");
  app.set_version_flag("--version", "stemma " + std::string(kVersion));
  app.require_subcommand(1);
  ServeCommand serve(app);
  GenerateCommand generate(app);
  CalibrateCommand calibrate(app);
  ProbeCommand probe(app);
  ReplayCommand replay(app);
  InspectCommand inspect(app);
  FsckCommand fsck(app);
  EventsCommand events(app);
  BenchCommand bench(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wanted) {  // --help, --version
    return app.exit(wanted);
  } catch (const CLI::ParseError& error) {
    std::cerr << "stemma: " << error.what() << " (see stemma --help)\n";
    return kExitUsage;
  }
  return run_chosen(
      {&serve, &generate, &calibrate, &replay, &probe, &inspect, &fsck, &events, &bench});
}

}  // namespace

int run_command_line(int argc, const char* const* argv) {
  try {
    return parse_and_run(argc, argv);
  } catch (const std::exception& error) {  // the edge: nothing may leave as an exception
    return report({ErrorCode::kInternal, error.what()});
  }
}

}  // namespace stemma
