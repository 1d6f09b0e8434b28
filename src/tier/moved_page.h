// Which page a transfer moves, as stores and files know it.
//
// Thread:     pure.
// Memory:     none; points into the transfer.
// Cost:       nothing; of layers with a window two hashes.
// Not here:   what is moved (transfer.h), what a frame of it holds (page_frame.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "prefix/page_key.h"
#include "tier/page_frame.h"
#include "tier/transfer.h"

namespace stemma {

// REQUIRES: the transfer has tokens; page < its pages.
inline PageIdentity moved_page(const Transfer& job, std::size_t page, std::int64_t page_size,
                               PageKeyHasher& hasher) {
  const auto size = static_cast<std::size_t>(page_size);
  const PageIdentity identity = {.key = job.keys[page],
                                 .parent = page == 0 ? job.parent : job.keys[page - 1],
                                 .namespace_digest = job.digest,
                                 .ordinal = job.first_page + static_cast<std::int64_t>(page),
                                 .tokens = std::span(job.tokens).subspan(page * size, size)};
  return job.group == LayerGroup::kFull ? identity : windowed_identity(identity, hasher);
}

}  // namespace stemma
