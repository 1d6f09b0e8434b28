// Steps that begin before their pages are whole, in the C ABI: pages that are still being copied up
// from host memory are lent to sequences, and each layer of them is waited for when it is read
// (KvCache::lend). Version STEMMA_ABI_VERSION of stemma/c.h; in the library stemma.
//
//   stemma_begin, stemma_promote, stemma_lend, stemma_reserve      the step is planned
//   stemma_wait_layer, or stemma_cuda_wait_layer on a stream       before a layer is read
//   stemma_end_loans                                               the step has ended
//
// Thread:     as the cache.
// Memory:     a copy of the text of each sequence on loan, until the loan ends.
// Cost:       waiting: that of the slowest copy's layer.
// Not here:   waiting for whole pages (stemma_worth_waiting).
#pragma once

#include "stemma/c.h"

#ifdef __cplusplus
extern "C" {
#endif

// Names pages of `tokens`, the sequence's whole prompt, that a promotion is still bringing, right
// behind what begin found: as many tokens as *named_tokens then says have pages, no more than
// before if nothing can be lent. Until the loan ends the sequence may reserve room and be released,
// nothing else; copies are not polled, waited for or settled; what is released of promotions is
// kept.
STEMMA_API stemma_status stemma_lend(stemma_sequence* sequence, const int32_t* tokens, size_t count,
                                     int64_t promotion, int64_t* named_tokens);

// 1: every lent page holds `layer`, or none is lent. 0: it will not come; nothing computed in this
// step may be used. Below 0: an error.
STEMMA_API int32_t stemma_wait_layer(stemma_cache* cache, int64_t layer);

// The step has ended, and with it every loan. *whole 0: what was lent was not right; nothing
// computed in the step may be used, and each sequence holds what is published of its prompt.
// REQUIRES: no step is in flight.
STEMMA_API stemma_status stemma_end_loans(stemma_cache* cache, int32_t* whole);

#ifdef __cplusplus
}
#endif
