// MachineEntropy: 64 bits that differ from process to process: for seeds and names that nobody
// should be able to guess from another run.
//
// Thread:     any.
// Memory:     none.
// Cost:       a system call or two.
// Not here:   keys of ciphers, and numbers that a seed gives again (base/prng).
#pragma once

#include <cstdint>
#include <random>

namespace stemma {

inline std::uint64_t machine_entropy() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

}  // namespace stemma
