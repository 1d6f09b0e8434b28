// FrameSeal: whether a value in a remote store was put there by somebody who knows our secret.
//
// Whoever can write into the store could put a frame of their own under a page's key: its checksums
// would be right. With a secret, a value is the frame and then a tag, HMAC-SHA256 over the page's
// key and the frame, which only holders of the secret can make, and which fits no other page.
//
// Thread:     one thread a FrameSeal.
// Memory:     OpenSSL's contexts.
// Cost:       about 1.6 GB/s with SHA instructions.
// Not here:   what is done with a value whose tag is wrong (redis_page_store).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "stemma/prefix_cache.h"

struct evp_mac_ctx_st;

namespace stemma {

using FrameTag = std::array<std::byte, 32>;

class FrameSeal {
 public:
  // REQUIRES: the secret is not empty.
  explicit FrameSeal(std::string_view secret);

  FrameTag tag_of(const PageKey& key, std::span<const std::byte> frame);
  // In a time that does not depend on where they differ.
  bool is_tag_of(const PageKey& key, std::span<const std::byte> frame, const FrameTag& tag);

  // A few hexadecimal digits that name the secret and do not give it away: engines with different
  // secrets keep their values apart.
  std::string fingerprint();

 private:
  struct FreeContext {
    void operator()(evp_mac_ctx_st* context) const noexcept;
  };
  FrameTag tag_of_pieces(std::span<const std::byte> first, std::span<const std::byte> second);

  std::unique_ptr<evp_mac_ctx_st, FreeContext> context_;
};

// SHA-1 of two pieces in hexadecimal digits, as Redis' scripts have it: for comparing values that
// are not secret.
std::string sha1_hex(std::span<const std::byte> first, std::span<const std::byte> second);

}  // namespace stemma
