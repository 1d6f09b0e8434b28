// ReplayFlags: what was typed after `stemma replay`.
//
// Thread:     main.
// Memory:     a few words.
// Cost:       none.
// Not here:   parsing the command line (replay_command), the caches meant (replay_lanes).
#pragma once

#include <string>
#include <vector>

#include "stemma/options.h"

namespace stemma {

struct ReplayFlags {
  std::string trace;
  std::string format = "mooncake";
  std::vector<std::string> capacities = {"unlimited"};
  std::vector<std::string> policies = {"lru"};
  std::string mode = "blocks";  // or "timed"
  std::string bounds = "auto";  // or "on", "off"
  bool skip_bad = false;
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

  bool timed() const { return mode == "timed"; }
};

}  // namespace stemma
