// ReplayCommand: `stemma replay`, a trace through the cache at several capacities and policies in
// one reading.
//
// Thread:     main.
// Memory:     one cache for each pair of policy and capacity; the whole trace if a policy is a
//             bound that knows it.
// Cost:       the trace is read once (twice if a capacity is unlimited).
// Not here:   what a replay does (replay/).
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"

namespace stemma {

struct ReplayFlags {
  std::string trace;
  std::string format = "mooncake";
  std::vector<std::string> capacities = {"unlimited"};
  std::vector<std::string> policies = {"lru"};
  bool skip_bad = false;
  std::string plot;  // an SVG file, or empty
  bool json = false;
};

class ReplayCommand final : public Command {
 public:
  explicit ReplayCommand(CLI::App& app);
  bool chosen() const override { return command_->parsed(); }
  Status run() override;

 private:
  ReplayFlags flags_;
  CLI::App* command_;
};

}  // namespace stemma
