// FsckCommand: `stemma fsck DIR`, every page of a disk tier verified and, where asked, what is
// wrong taken out.
//
// Thread:     main.
// Memory:     the index.
// Cost:       reading the directory whole.
// Not here:   the check (store/disk_check).
#pragma once

#include <string>

#include "cli/command.h"

namespace stemma {

class FsckCommand final : public Command {
 public:
  explicit FsckCommand(Flags& program);
  bool chosen() const override { return command_.parsed(); }
  // An error if anything was found, repaired or not: so the exit code says it.
  Status run() override;

 private:
  std::string directory_;
  bool repair_ = false;
  bool json_ = false;
  Flags command_;
};

}  // namespace stemma
