// Models some of whose layers look back over a window only, in the C ABI. Version
// STEMMA_ABI_VERSION of stemma/c.h; in the library stemma.
//
// Keys and values of these layers lie in a pool of their own. A page of it hangs on each page that
// a window may still be read through, and has room for the same tokens: so a long text holds few of
// them. What begin finds is what can be gone on from: a text of which windowed pages have gone is
// found up to where they are there.
//
//   stemma_cache_options.window_tokens, windowed_pages   the cache is opened
//   stemma_begin, stemma_reserve                         both kinds of pages are got
//   stemma_batch_windowed_pages                          where layers with a window read and write
//   stemma_commit, stemma_advance                        the step has ended
//
// Thread:     as the cache.
// Memory:     as the pool's; the page tables of a batch twice.
// Cost:       O(pages of a sequence).
// Not here:   lending windowed pages layer by layer: whole ones are waited for.
#pragma once

#include "stemma/c.h"

#ifdef __cplusplus
extern "C" {
#endif

// Windowed pages that a request holds at most which computes `chunk_tokens` at once, whatever its
// context; -1 for numbers below 1.
STEMMA_API int64_t stemma_windowed_pages_max(int64_t window_tokens, int64_t page_size,
                                             int64_t chunk_tokens);

// As stemma_tiers_open, for a cache with a window. Both pools outlive it, and have pages of as many
// tokens.
STEMMA_API stemma_status stemma_tiers_open_windowed(const stemma_tiers_options* options,
                                                    stemma_pool* pool, stemma_pool* windowed_pool,
                                                    stemma_store* const* stores,
                                                    size_t stores_count, stemma_tiers** tiers);

// All tokens before `computed_tokens` have KV: lets go windowed pages that later ones do not look
// back to. Without it a sequence holds them all.
STEMMA_API stemma_status stemma_advance(stemma_sequence* sequence, int64_t computed_tokens);

// The windowed pages of a sequence in the places of stemma_pages, whose count is given: -1 where
// `first_token`, and later ones, look back no more.
STEMMA_API stemma_status stemma_windowed_pages(const stemma_sequence* sequence, int64_t first_token,
                                               int32_t* pages, size_t count);

// As stemma_batch_pages, of windowed pages, where sequence i computes first_tokens[i] ...
// tokens[i] - 1: -1 for pages that none of these looks back to. Valid until the next such call.
STEMMA_API stemma_status stemma_batch_windowed_pages(stemma_cache* cache,
                                                     stemma_sequence* const* sequences,
                                                     const int64_t* first_tokens,
                                                     const int64_t* tokens, size_t count,
                                                     const int32_t** indptr, const int32_t** pages,
                                                     const int32_t** last_page_tokens);

// A page to be copied to another before either sequence goes on, in each pool; -1: none.
typedef struct stemma_forked_tail {
  size_t struct_size;
  int32_t from;
  int32_t to;
  int32_t windowed_from;
  int32_t windowed_to;
} stemma_forked_tail;
// As stemma_fork, which refuses sequences with a window. NO_PAGES also where the sequence has let
// go windowed pages that the fork would look back to.
STEMMA_API stemma_status stemma_fork_windowed(const stemma_sequence* sequence,
                                              int64_t computed_tokens, stemma_sequence** fork,
                                              stemma_forked_tail* tail);

// Windowed pages that reserve could hand out now; 0 where there are none.
STEMMA_API int64_t stemma_available_windowed_pages(const stemma_cache* cache);

#ifdef __cplusplus
}
#endif
