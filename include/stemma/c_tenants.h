// What stays, and whose it is, in the C ABI: quotas of tenants, texts that requests wait for, what
// clients say of coming back, and beginnings of texts that all tenants share. Version
// STEMMA_ABI_VERSION of stemma/c.h; in the library stemma.
//
// Thread:     as the cache.
// Memory:     a copy of each shared beginning, until its namespace's name is another's.
// Cost:       of a text in a namespace behind a shared beginning: a comparison with that.
// Not here:   who a tenant is, and what it may ask for (the engine's own).
#pragma once

#include "stemma/c.h"

#ifdef __cplusplus
extern "C" {
#endif

// A family are the namespaces whose digests begin with the same 8 bytes: a tenant's, say.

// Of its cached pages a family loses none while they are no more than `pages` and eviction finds
// others; what it has beyond them goes as everybody's. Host memory, if there is any, has the same
// share. 0: it is sure of none, as in the beginning.
STEMMA_API stemma_status stemma_set_quota(stemma_cache* cache, const uint8_t family[8],
                                          int64_t pages);

enum { STEMMA_DEVICE, STEMMA_HOST };  // tiers that have a tree
// Each family with a quota of pages of a tier, and how many it has.
typedef void (*stemma_quota_sink)(void* context, const uint8_t* family, int64_t quota_pages,
                                  int64_t pages);
STEMMA_API stemma_status stemma_quotas(const stemma_cache* cache, int32_t tier,
                                       stemma_quota_sink sink, void* context);

// A request waits that will begin with this prompt: what begin would find of it now is evicted
// after all that nobody waits for, and of several the one with the highest turn first. It holds
// nothing, and lasts until all are forgotten. What is cached later is not covered: to be said anew.
STEMMA_API stemma_status stemma_want(stemma_cache* cache, int32_t ns, const int32_t* tokens,
                                     size_t count, int64_t turn);
STEMMA_API stemma_status stemma_forget_wants(stemma_cache* cache);

// How long a client expects to come back to a sequence, and that it will not: weighed by eviction
// policies that learn, left by others.
enum { STEMMA_RETAIN_SHORT, STEMMA_RETAIN_DEFAULT, STEMMA_RETAIN_LONG };
STEMMA_API stemma_status stemma_set_retention(stemma_sequence* sequence, int32_t retention);
STEMMA_API stemma_status stemma_close_session(stemma_sequence* sequence);

// As stemma_namespace_open, of texts that begin with `tokens`: whole pages of one sequence, which
// are cached in the namespace of `shared_digest`, where all who share them find them; what follows
// them is cached for `digest` alone, behind this beginning alone. Both digests name the same model
// and formats, and the shared one's texts go on from no other namespace's. Elsewhere texts of this
// namespace are given whole, and refused if they begin otherwise.
STEMMA_API stemma_status stemma_namespace_open_behind(stemma_cache* cache, const uint8_t digest[32],
                                                      const uint8_t shared_digest[32],
                                                      const int32_t* tokens, size_t count,
                                                      int32_t* ns);

#ifdef __cplusplus
}
#endif
