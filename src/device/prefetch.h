// Prefetch: asks for memory that a kernel reads soon.
//
// Thread:     any.
// Memory:     none; any address may be named, valid or not.
// Cost:       one load slot.
// Not here:   when to ask: that is each kernel's plan.
#pragma once

namespace stemma {

// Into the second-level cache: the first has few lines in flight, and they are better left to what
// is being computed.
inline void prefetch_soon(const void* from) {
  constexpr int kForReading = 0;
  constexpr int kSecondLevel = 2;
  __builtin_prefetch(from, kForReading, kSecondLevel);
}

}  // namespace stemma
