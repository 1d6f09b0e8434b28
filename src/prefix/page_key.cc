#include "prefix/page_key.h"

#include <array>
#include <bit>

namespace stemma {

PageKey PageKeyHasher::next(const PageKey& parent, std::span<const TokenId> tokens) {
  hasher_.update(std::as_bytes(std::span(parent.bytes)));
  if constexpr (std::endian::native == std::endian::little) {
    hasher_.update(std::as_bytes(tokens));
  } else {
    for (const TokenId token : tokens) {
      const auto bits = static_cast<std::uint32_t>(token);
      const std::array<std::byte, 4> bytes = {
          static_cast<std::byte>(bits & 0xFF), static_cast<std::byte>(bits >> 8 & 0xFF),
          static_cast<std::byte>(bits >> 16 & 0xFF), static_cast<std::byte>(bits >> 24)};
      hasher_.update(bytes);
    }
  }
  return PageKey{hasher_.finish()};
}

// One byte more: no page of tokens is that long.
PageKey PageKeyHasher::windowed_parent(const PageKey& parent) {
  hasher_.update(std::as_bytes(std::span(parent.bytes)));
  hasher_.update("w");
  return PageKey{hasher_.finish()};
}

}  // namespace stemma
