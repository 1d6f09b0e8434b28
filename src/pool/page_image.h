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

// What helps one copy in a series of them; see CrcCopy (base/crc32c.h).
struct CopyHint {
  const std::byte* next = nullptr;
  bool past_caches = false;
};

// One layer of one page, to or from layer_bytes bytes. Both return the sum of what was written.
std::uint32_t copy_layer_out(const LayerPieces<const std::byte>& from, PageId page, std::byte* to,
                             const CopyHint& hint);
std::uint32_t copy_layer_in(const std::byte* from, const LayerPieces<std::byte>& to, PageId page,
                            const CopyHint& hint);

}  // namespace stemma
