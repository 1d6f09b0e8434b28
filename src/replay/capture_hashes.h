// CaptureHashes: the names under which a capture speaks of pages and namespaces.
//
// A page's name is the first 8 bytes of SHA-256(salt || page key), as 16 hexadecimal digits; a
// namespace's the first 6 of SHA-256(salt || digest). Keys are chained (prefix/page_key), so that a
// name stands for one namespace and one prefix.
//
// Thread:     one thread an object.
// Memory:     the salt and one hasher.
// Cost:       about 0.4 us a page of 16 tokens.
// Not here:   the file (capture_writer).
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/digest.h"
#include "stemma/ids.h"
#include "stemma/prefix_cache.h"
#include "stemma/result.h"
#include "stemma/sequence.h"

namespace stemma {

using CaptureSalt = std::array<std::byte, 32>;

// From the system's random numbers. kIo if it has none.
Result<CaptureSalt> make_capture_salt();

class CaptureHashes {
 public:
  // REQUIRES: page_size >= 1.
  CaptureHashes(const CaptureSalt& salt, std::int64_t page_size)
      : salt_(salt), page_size_(page_size) {}

  // One name for each full page of `tokens`. Those of the shared prefix, if there is one, have the
  // same names whatever namespace goes on from it. REQUIRES: that is of whole pages.
  std::vector<std::string> name_pages(const NamespaceDigest& digest,
                                      std::span<const TokenId> tokens,
                                      const std::optional<SharedPrefix>& shared = std::nullopt);

  std::string name_namespace(const NamespaceDigest& digest);

 private:
  std::string name(std::span<const std::uint8_t> bytes, std::size_t name_bytes);

  CaptureSalt salt_;
  std::int64_t page_size_;
  Sha256 hasher_;
};

}  // namespace stemma
