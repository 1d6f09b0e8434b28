// PageFrame: a page as it lies outside the engine's memory: a header that says whose KV this is,
// the page's tokens, checksums, and the KV bytes.
//
//   header   magic, version, sizes, key, parent key, namespace, ordinal, format, generation,
//            CRC32C of everything before the body (itself left out)
//   tokens   [page_size] int32, little-endian: a restart rebuilds from them, a reader compares them
//   sums     [layers] CRC32C of each layer's part of the body
//   zeros    up to kFrameAlignment
//   body     [layers, layer_bytes] the page image (pool/page_image)
//   zeros    up to kFrameAlignment
//
// The sums are one a layer so that a layer can be used as soon as it is there and right, before the
// layers behind it have come. They are covered by the header's own checksum.
//
// Thread:     pure functions.             Invariants: I7, I8 (docs/INVARIANTS.md).
// Memory:     none; frames are the caller's.
// Cost:       encode and check read the header; sums are the business of whoever copies the body.
// Not here:   where frames are kept (page stores), what a body means (pool/).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "prefix/page_key.h"
#include "stemma/ids.h"
#include "stemma/kv_shape.h"
#include "stemma/prefix_cache.h"
#include "stemma/result.h"

namespace stemma {

inline constexpr std::size_t kFrameAlignment = 4096;

// Everything that fixes the size and the meaning of a body. All pages of a namespace have one.
struct PageFormat {
  std::int64_t layers = 0;
  std::int64_t layer_bytes = 0;  // of one page
  std::int64_t page_size = 0;    // tokens
  std::int64_t heads = 0;        // KV heads
  std::int64_t head_dim = 0;
  DType dtype = DType::kF32;
  std::string_view kind = "mha";     // of the pool; at most 15 bytes
  std::string_view codec = "plain";  // how the body is packed; at most 15 bytes
};

// Which page it is.
struct PageIdentity {
  PageKey key;
  PageKey parent;  // of the page before it; for the first page: PageKeyHasher::root
  NamespaceDigest namespace_digest;
  std::int64_t ordinal = 0;         // pages before it in its text
  std::span<const TokenId> tokens;  // [page_size]

  friend bool operator==(const PageIdentity& a, const PageIdentity& b) {
    return a.key == b.key && a.parent == b.parent && a.namespace_digest == b.namespace_digest &&
           a.ordinal == b.ordinal && std::ranges::equal(a.tokens, b.tokens);
  }
};

// The page of the layers with a window that has the same tokens: it has a key of its own, and
// follows one of its own.
PageIdentity windowed_identity(PageIdentity page, PageKeyHasher& hasher);

// Bytes of a whole frame, a multiple of kFrameAlignment; and where in it the body begins.
std::size_t frame_bytes(const PageFormat& format) noexcept;
std::size_t frame_body_offset(const PageFormat& format) noexcept;

// Writes everything but the body, and zeros where nothing lies. `layer_sums` are the CRC32C of the
// layers of the body. REQUIRES: frame.size() == frame_bytes(format); layer_sums has one a layer;
// the identity has page_size tokens.
void encode_frame(const PageFormat& format, const PageIdentity& identity,
                  std::span<const std::uint32_t> layer_sums, std::uint64_t generation,
                  std::span<std::byte> frame);

// Where the body of a frame begins, as its first kFrameAlignment bytes say; nothing has been
// checked but that it lies inside `frame_bytes`. 0 if they are not the begin of a frame.
std::size_t peek_body_offset(std::span<const std::byte> begin, std::size_t frame_bytes) noexcept;

// Whose page a frame is, as its first kNamespacePeekBytes say; nothing has been checked. nullopt if
// they are not the begin of a frame of this version.
inline constexpr std::size_t kNamespacePeekBytes = 184;
std::optional<NamespaceDigest> peek_namespace(std::span<const std::byte> begin) noexcept;

// Whether by the same bytes it is a page of one of these families (of which none means all) that
// has at least `pages_before` pages before it. Of what is no frame of this version: false.
bool peek_is_behind(std::span<const std::byte> begin, std::span<const NamespaceFamily> families,
                    std::int64_t pages_before) noexcept;

// What a frame says of itself, its header's checksum having been found right. Points into it.
struct PageFrameView {
  PageIdentity identity;
  PageFormat format;
  std::uint64_t generation = 0;  // a number of whoever wrote it: later writes have higher ones
  std::span<const std::uint32_t> layer_sums;
  std::span<const std::byte> body;
};

// Reads the header of any frame, whoever wrote it: magic, version, bounds and checksum. kCorrupt
// names the field that is wrong; kUnsupported: a later version. The body is not looked at.
// REQUIRES: frame.data() is aligned to 8 bytes.
Result<PageFrameView> read_frame(std::span<const std::byte> frame);

// The header as read_frame checks it, and that it is exactly the page asked for, in this format:
// key, parent, namespace, ordinal, tokens and every field of the format. kCorrupt names the first
// field that differs. `identity.key` must be the key of `identity.tokens` after `identity.parent`.
Result<PageFrameView> check_frame(std::span<const std::byte> frame, const PageFormat& format,
                                  const PageIdentity& identity);

// Compares the body's layers with their sums. kCorrupt names the first layer that differs.
Status check_body(const PageFrameView& frame);

}  // namespace stemma
