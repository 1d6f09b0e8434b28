// PageCodec: layers of page images in fewer bytes, for tiers where room is dearer than exactness.
//
// Off unless it is asked for: what comes back is near to what went in, not equal, so a cache that
// encodes gives up bit-for-bit transparency (I13), and its codec is part of the namespace.
//
// Each row of K, of V, or of latents, of one token and head is scaled by its own largest value,
// never by another token's, so that what a row becomes does not depend on its page:
//
//   encoded layer   scales f32 [rows], codes [rows, code bytes]     rows of one head and token
//   code            int8: one byte an element, -127 ... 127; int4: two elements a byte, the first
//                   in the low half, -7 ... 7; decoded = code × scale, rounded to the dtype
//
// Error: at most max / 254 (int8) or max / 14 (int4) an element, max being the largest magnitude of
// its row, and half a unit in the last place of the dtype (and 2^-142, where scales are subnormal).
//
// Thread:     pure functions.
// Memory:     none.
// Cost:       a pass over the elements, one at a time: encode about 0.5 GB/s, decode 1 GB/s.
// Not here:   images as they are (page_image), checksums (of the encoded bytes, by whoever keeps
//             them), which pools have them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "stemma/kv_shape.h"

namespace stemma {

enum class PageCodec : std::uint8_t { kPlain, kInt8, kInt4 };

std::string_view page_codec_name(PageCodec codec);  // "plain", "int8", "int4"
// The inverse; nullopt for any other name.
std::optional<PageCodec> try_parse_page_codec(std::string_view name);

// Bytes of one layer of a page of `shape`, encoded. REQUIRES: kPlain, or a dtype that is not scaled
// already, and a kind without labels: those must be the very elements of K, which a codec changes.
std::int64_t encoded_layer_bytes(PageCodec codec, const KvShape& shape);

// Encodes one layer of a page. false: it holds an infinity or a NaN, for which there
// is no scale; what `encoded` holds then means nothing. REQUIRES: the sizes are KvPool::layer_bytes
// and encoded_layer_bytes.
[[nodiscard]] bool try_encode_layer(PageCodec codec, const KvShape& shape,
                                    std::span<const std::byte> layer, std::span<std::byte> encoded);

// The inverse, but for the error above. Any bytes decode to something. REQUIRES: the same sizes.
void decode_layer(PageCodec codec, const KvShape& shape, std::span<const std::byte> encoded,
                  std::span<std::byte> layer);

}  // namespace stemma
