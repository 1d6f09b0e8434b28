// The flags of the tiers below the device, and of checking what is cached, for every command that
// runs an engine.
//
// Thread:     the main thread.
// Memory:     a few strings.
// Cost:       none.
// Not here:   what they open (engine/served_tiers).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/flags.h"
#include "cli/written_files.h"
#include "engine/served_model.h"
#include "stemma/result.h"

namespace stemma {

class TierFlags {
 public:
  void add_to(Flags& command);
  // Writes what was said into the options. kInvalidArgument names the flag.
  Status apply(ServedModelOptions& options) const;
  // What they write at the end, and read.
  CommandFiles files() const;

 private:
  Status check_has_effect(const ServedTierOptions& tiers) const;

  std::string host_bytes_ = "0";
  std::string host_layout_ = "page_first";
  std::string codec_ = "plain";
  std::string host_file_;
  std::string purge_file_;
  std::string disk_;
  std::string disk_bytes_ = "16GiB";
  std::string remote_;
  std::string remote_secret_file_;
  std::string write_policy_ = "write-back";
  std::int64_t selective_uses_ = 2;
  double load_wait_ms_ = 40;
  double shadow_audit_percent_ = 0;
  std::vector<Flag> of_any_tier_;  // that say how pages move, and are kept
};

}  // namespace stemma
