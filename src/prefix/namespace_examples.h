// Namespaces for tests, told apart by a number.
//
// Thread:     pure functions, of a test's thread.
// Memory:     a digest.
// Cost:       none.
// Not here:   what digests are made of (namespace_digest).
#pragma once

#include <cstdint>

#include "stemma/prefix_cache.h"

namespace stemma {

// Another one for each number from 0 to 65,535.
inline NamespaceDigest digest_of(int number) {
  NamespaceDigest digest;
  digest.bytes[0] = static_cast<std::uint8_t>(number);
  digest.bytes[1] = static_cast<std::uint8_t>(number >> 8);
  return digest;
}

}  // namespace stemma
