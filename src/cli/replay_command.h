// ReplayCommand: `stemma replay`, a trace through caches of several capacities and policies: page
// after page, or in its own time under a timing model.
//
// Thread:     main.
// Memory:     as the mode's: one cache for each pair of policy and capacity, or one at a time; the
//             whole trace where bounds are shown (replay_bounds).
// Cost:       the trace is read once, or once for each pair; once more if a capacity is unlimited.
// Not here:   the two modes (replay_pages, replay_timed).
#pragma once

#include "cli/command.h"
#include "cli/replay_flags.h"

namespace stemma {

class ReplayCommand final : public Command {
 public:
  explicit ReplayCommand(Flags& program);
  bool chosen() const override { return command_.parsed(); }
  Status run() override;

 private:
  void add_timed_flags();
  void add_tier_flags(Flags& group);
  Status check_tiers_named() const;
  Status check_tiers() const;
  Status check_flags() const;
  Status replay(std::int64_t& skipped_lines);

  ReplayFlags flags_;
  Flags command_;
  std::vector<Flag> timed_flags_;  // that mean nothing in the other mode
};

}  // namespace stemma
