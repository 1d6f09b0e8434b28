// ReplayFlags: what was typed after `stemma replay`.
//
// Thread:     main.
// Memory:     a few words.
// Cost:       none.
// Not here:   parsing the command line (replay_command), the caches meant (replay_lanes).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/trace_flags.h"
#include "replay/timed_tiers.h"
#include "stemma/options.h"

namespace stemma {

struct ReplayFlags {
  TraceFlags traces;
  std::vector<std::string> capacities = {"unlimited"};
  std::vector<std::string> policies = {"lru"};
  std::string mode = "blocks";  // or "timed"
  std::string bounds = "auto";  // or "on", "off"
  double ghost_rate = 0;        // of page uses that ghosts watch; 0: no ghosts
  bool progress = false;
  bool json = false;
  std::string plot;         // an SVG file, or empty; so the next two
  std::string per_request;  // JSON lines
  std::string per_minute;   // JSON lines

  // Of the mode "timed".
  std::string timing = "llama-8b-h200";
  double time_scale = 1;
  std::string schedule_policy = "fcfs";
  EngineOptions engine;
  bool insert_outputs = false;
  TimedTierOptions tiers;
  std::string write_policy = "write-back";

  bool timed() const { return mode == "timed"; }
  // Longer requests are refused in the mode "timed".
  std::int64_t context_tokens() const;
  // The traces' names, with commas.
  std::string trace() const;
};

}  // namespace stemma
