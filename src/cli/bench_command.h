// BenchCommand: `stemma bench`, every figure beside the bound that was measured in the same run.
//
// Thread:     main; benchmarks start threads of their own.
// Memory:     up to 2.5 GiB, for working sets beyond the last-level cache.
// Cost:       from seconds (match) to minutes (all).
// Not here:   what is measured (x_bench of each room).
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"

namespace stemma {

class BenchCommand final : public Command {
 public:
  explicit BenchCommand(Flags& program);
  bool chosen() const override { return command_.parsed(); }
  Status run() override;

 private:
  std::vector<std::string> names_;
  std::string simd_;  // empty: the best
  bool json_ = false;
  Flags command_;
};

}  // namespace stemma
