// InspectCommand: `stemma inspect`, what a cache's size and policy are worth on a trace or on a
// capture of a server: hit rates now, with more room, with less, and under other policies.
//
// It reads the requests once and watches a sample of their pages (ghost/), so that a capture of any
// length takes seconds; `stemma replay` runs the caches themselves. With a directory it shows what
// lies there instead (cli/disk_listing).
//
// Thread:     main.
// Memory:     some bytes a page of the largest cache watched.
// Cost:       reading the trace.
// Not here:   the estimates (ghost/).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/trace_flags.h"
#include "ghost/ghost_panel.h"

namespace stemma {

struct InspectFlags {
  std::string directory;
  TraceFlags traces;
  std::int64_t capacity_pages = 0;
  std::string page_bytes = "1";
  std::string policy = "lru";
  std::vector<std::string> other_policies = {"slru"};
  double ghost_rate = 0.05;
  bool json = false;
};

class InspectCommand final : public Command {
 public:
  explicit InspectCommand(Flags& program);
  bool chosen() const override { return command_.parsed(); }
  Status run() override;

 private:
  Status check_flags();
  Status list_directory() const;
  Status watch(GhostPanel& ghosts, std::int64_t& skipped_lines);
  void print(const GhostPanel& ghosts) const;
  void print_json(const GhostPanel& ghosts) const;

  InspectFlags flags_;
  std::int64_t page_bytes_ = 1;
  std::int64_t requests_ = 0;
  Flags command_;
};

}  // namespace stemma
