// EmulatedGpu: the machine behind a test's GPU where it is emulated. A test asks for it when it
// runs, and so is one object file for both programs, ROOM_simt_test and ROOM_cuda_test.
//
// Thread:     a test's.
// Memory:     the machine's.
// Cost:       the machine's.
// Not here:   what the emulation checks (simt.h).
#pragma once

#include <memory>

#include "device/simt.h"

namespace stemma {

class EmulatedGpu {
 public:
  // Nullptr where the program links a real GPU's libraries (no_emulated_gpu.cc).
  static std::unique_ptr<EmulatedGpu> start(const simt::Machine::Options& options);
  virtual ~EmulatedGpu() = default;
  virtual simt::Machine& machine() = 0;
};

}  // namespace stemma
