// flip_every_page: one bit of each page, behind the cache's back.
//
// Thread:     the engine's, no step being computed.
// Memory:     none.
// Cost:       O(pages).
// Not here:   files (base/flip_bit).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/prng.h"
#include "stemma/kv_pool.h"

namespace stemma {

// Of a layer that is drawn for each page. REQUIRES: elements of 16 bits.
inline void flip_every_page(KvPool& pool, Prng& prng) {
  if (pool.shape().layers == 0) return;
  for (std::int64_t page = 0; page < pool.shape().pages; ++page) {
    const auto pieces = pool.layer_pieces(prng.below(pool.shape().layers));
    std::byte* const bytes = pieces.begin()->of(PageId(static_cast<std::int32_t>(page)));
    bytes[2 * prng.below(pieces.begin()->bytes / 2)] ^= std::byte{0x10};
  }
}

}  // namespace stemma
