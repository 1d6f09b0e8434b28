// `stemma probe`: measures whether a server's times tell what it has cached, and for whom.
//
// Thread:     main.
// Memory:     a few numbers a probe.
// Cost:       five requests a probe.
// Not here:   the measurement (server/timing_probe).
#pragma once

#include <cstdint>
#include <string>

#include "cli/command.h"

namespace stemma {

class ProbeCommand final : public Command {
 public:
  explicit ProbeCommand(Flags& program);
  bool chosen() const override { return command_.parsed(); }
  Status run() override;

 private:
  std::string url_;
  std::string key_file_;
  std::string other_key_file_;
  std::int64_t probes_ = 1000;
  std::int64_t words_ = 120;
  bool json_ = false;
  Flags command_;
};

}  // namespace stemma
