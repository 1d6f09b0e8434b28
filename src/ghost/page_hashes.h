// PageHashes: 64-bit names of a text's pages for ghosts, page by page, each chained over all tokens
// before it.
//
// They are made for statistics: a collision adds a hit that was none, with a probability of 2^-64
// for two pages. What decides whether requests share pages is PageKey or the tokens themselves.
//
// Thread:     pure functions.
// Memory:     what the caller gives.
// Cost:       about 10 ns a page of 16 tokens (ghost_bench).
// Not here:   names that must not collide (prefix/page_key).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "stemma/ids.h"

namespace stemma {

// Replaces `hashes` by one hash for each full page of `tokens`. Texts of two namespaces have other
// hashes if their `namespace_id` differs. REQUIRES: page_size >= 1.
void hash_pages(std::int64_t namespace_id, std::span<const TokenId> tokens, std::int64_t page_size,
                std::vector<std::int64_t>& hashes);

}  // namespace stemma
