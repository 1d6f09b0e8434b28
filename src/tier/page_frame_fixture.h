// PageFrameFixture: whole frames for tests: a format, pages of it with real keys and bodies made of
// a seed.
//
// Thread:     values.
// Memory:     a Buffer a frame.
// Cost:       that of the body's bytes and sums.
// Not here:   anything that serves.
#pragma once

#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/prng.h"
#include "device/buffer.h"
#include "prefix/page_key.h"
#include "tier/page_frame.h"

namespace stemma {

// Two layers of 16 tokens: the smallest frame, one header page and one body page.
inline PageFormat small_format() {
  PageFormat format;
  format.layers = 2;
  format.layer_bytes = 2048;
  format.page_size = 16;
  format.heads = 2;
  format.head_dim = 16;
  format.dtype = DType::kF16;
  return format;
}

// A page of a text that only `seed` and `ordinal` name: the same bytes whenever it is asked for.
class TestPage {
 public:
  TestPage(const PageFormat& format, std::uint64_t seed, std::int64_t ordinal = 0)
      : format_(format), frame_(Buffer::allocate(frame_bytes(format)).value()) {
    Prng prng(mix64(seed) + static_cast<std::uint64_t>(ordinal));
    tokens_.resize(static_cast<std::size_t>(format.page_size));
    for (TokenId& token : tokens_) token = static_cast<TokenId>(prng.below(50'000));
    namespace_digest_.bytes[0] = static_cast<std::uint8_t>(format.layers);
    namespace_digest_.bytes[1] = static_cast<std::uint8_t>(format.dtype);
    namespace_digest_.bytes[2] = static_cast<std::uint8_t>(format.layer_bytes / 1024);
    parent_ = PageKeyHasher::root(namespace_digest_);
    PageKeyHasher hasher;
    key_ = hasher.next(parent_, tokens_);
    ordinal_ = ordinal;
    fill_body(prng);
  }

  PageIdentity identity() const { return {key_, parent_, namespace_digest_, ordinal_, tokens_}; }
  const PageFormat& format() const { return format_; }
  const PageKey& key() const { return key_; }
  std::span<const std::byte> frame() const { return frame_.as<std::byte>(); }
  std::span<std::byte> frame() { return frame_.as<std::byte>(); }

 private:
  void fill_body(Prng& prng) {
    const auto layer_bytes = static_cast<std::size_t>(format_.layer_bytes);
    const std::span<std::byte> body = frame().subspan(frame_body_offset(format_));
    std::vector<std::uint32_t> sums;
    for (std::size_t layer = 0; layer < static_cast<std::size_t>(format_.layers); ++layer) {
      const std::span<std::byte> bytes = body.subspan(layer * layer_bytes, layer_bytes);
      for (std::size_t at = 0; at + 8 <= layer_bytes; at += 8) {
        const std::uint64_t word = prng();
        std::memcpy(bytes.data() + at, &word, sizeof(word));
      }
      sums.push_back(crc32c(bytes));
    }
    encode_frame(format_, identity(), sums, /*generation=*/7, frame());
  }

  PageFormat format_;
  std::vector<TokenId> tokens_;
  NamespaceDigest namespace_digest_;
  PageKey parent_;
  PageKey key_;
  std::int64_t ordinal_ = 0;
  Buffer frame_;
};

}  // namespace stemma
