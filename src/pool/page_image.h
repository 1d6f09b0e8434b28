// Page image: a page outside its pool, [layers, layer_bytes]: the pieces of each layer one after
// another (of an MhaPool: K [page_size, heads, head_dim], then V), whatever the layout of the pool
// that it came from or goes to. Each layer has the CRC32C of its bytes, taken while they are copied
// out and compared while they are copied in.
//
// Thread:     pure functions of pools in host memory; copying out reads pages that nobody writes
//             (I5), copying in writes pages that the caller owns (I6).
//                                                        Invariants: I5, I8 (docs/INVARIANTS.md).
// Memory:     none.
// Cost:       one pass: each byte is read once and written once, its sum included.
// Not here:   where images are kept (host_pool, tier/page_frame), pools of other devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "stemma/ids.h"
#include "stemma/kv_pool.h"

namespace stemma {

// The layers [first, end).
struct LayerRange {
  std::int64_t first = 0;
  std::int64_t end = 0;

  std::int64_t layers() const noexcept { return end - first; }
};

// Bytes of the image of one page, all layers.
std::size_t page_image_bytes(const KvPool& pool);

// Copies the layers of `page` to `image`, [layers of the range, layer_bytes], and their sums to
// `sums`. REQUIRES: sizes fit; the pool is in host memory.
void copy_page_out(const KvPool& pool, PageId page, LayerRange layers, std::span<std::byte> image,
                   std::span<std::uint32_t> sums);

// Copies the layers of `image` to `page` and compares their sums with `sums`. Stops behind the
// first layer whose sum is wrong and returns it (its number in the pool): that layer of `page`
// holds wrong bytes, the later ones what they held before. nullopt: all of them are right.
// REQUIRES: as copy_page_out.
[[nodiscard]] std::optional<std::int64_t> copy_page_in(KvPool& pool, PageId page, LayerRange layers,
                                                       std::span<const std::byte> image,
                                                       std::span<const std::uint32_t> sums);

// One layer of one page of a pool, to be read or to be written.
template <typename Byte>
struct PageLayer {
  LayerPieces<Byte> pieces;
  PageId page;
};

// One copy of a series: a layer of a page, to or from layer_bytes adjacent bytes. Both return the
// sum of what was written. `next`, if it is not null, is what the series reads next; past_caches as
// in CrcCopy (base/crc32c.h).
std::uint32_t copy_layer_out(const PageLayer<const std::byte>& from, std::byte* to,
                             const PageLayer<const std::byte>* next, bool past_caches);
std::uint32_t copy_layer_in(const std::byte* from, const PageLayer<std::byte>& to,
                            const std::byte* next, bool past_caches);

}  // namespace stemma
