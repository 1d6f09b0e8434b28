// The vector loops of the machine probe. Used by machine_probe.cc alone.
//
// Thread:     pure functions.
// Memory:     none.
// Cost:       what is measured.
// Not here:   timing (machine_probe.cc).
#pragma once

#include <cstddef>
#include <cstdint>

namespace stemma {

// `rounds` rounds of independent chains of multiply-adds. Returns how many f32 operations that was;
// adds their result to `sink`, so that they are computed.
std::int64_t multiply_add_rounds(std::int64_t rounds, float& sink);

// The same of pairs of 16-bit integers, whose products are added to sums of 32 bits: what rounded
// weights are multiplied by.
std::int64_t multiply_add_pairs_rounds(std::int64_t rounds, std::int32_t& sink);

// Reads every byte and returns the exclusive or of its words. REQUIRES: aligned to 64; a multiple
// of 128 bytes.
std::uint64_t read_lines(const std::byte* from, std::size_t size_bytes);

}  // namespace stemma
