// DrawnHash: of numbers that come from outside, in a way that is another in every run. Hashes of
// pages in traces are chosen by whoever asked for the pages: where they say in which bucket they
// lie, 80,000 of them cost a map the square of that.
//
// Thread:     values; any thread.
// Memory:     8 bytes.
// Cost:       some nanoseconds; a system call or two to draw.
// Not here:   hashes that are kept or compared between runs (prefix/page_fingerprint).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/machine_entropy.h"
#include "base/prng.h"

namespace stemma {

class DrawnHash {
 public:
  std::size_t operator()(std::int64_t number) const noexcept {
    return static_cast<std::size_t>(mix64(seed_ ^ static_cast<std::uint64_t>(number)));
  }
  // Of a number below another.
  std::size_t operator()(std::int64_t above, std::int64_t number) const noexcept {
    const std::uint64_t mixed = mix64(seed_ ^ static_cast<std::uint64_t>(above));
    return static_cast<std::size_t>(mix64(mixed ^ static_cast<std::uint64_t>(number)));
  }

 private:
  std::uint64_t seed_ = machine_entropy();
};

}  // namespace stemma
