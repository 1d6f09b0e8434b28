// Events in the C ABI: which pages of the device begin to be found and which stop, for who follows
// a cache from outside, such as a router that sends requests to where their prefixes are. Version
// STEMMA_ABI_VERSION of stemma/c.h; in the library stemma.
//
// Whoever applies each event, in their order, finds what the cache finds.
//
// Thread:     as the cache.
// Memory:     128 bytes and 4 a token for each page of stemma_cache_options.events_pages_max that
// is
//             used: 0, the default, keeps no events and tells of none.
// Cost:       a hash a page that is published; draining: the calls of the sink.
// Not here:   sending them anywhere.
#pragma once

#include "stemma/c.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  STEMMA_CLEARED,  // nothing is found any more
  STEMMA_STORED,   // a run of pages, each continuing the one before, is found from now on
  STEMMA_REMOVED   // pages are found no more, each before those that it continues
};
// What it points to lives as long as the call that hands it over.
typedef struct stemma_event {
  size_t struct_size;
  int32_t kind;
  size_t pages;
  const uint8_t* keys;  // 32 bytes a page: of its namespace and all tokens to its end
  // Of what was stored alone; else NULL and 0.
  const uint8_t* digest;  // 32 bytes, of the namespace
  const uint8_t* parent;  // the key that the first page continues; NULL: the text begins with it
  const int32_t* tokens;  // of all the pages, page_size each
  size_t tokens_count;
} stemma_event;
typedef void (*stemma_event_sink)(void* context, const stemma_event* event);

// Hands over what has changed since the last call; after a loss, because more has changed than is
// kept, everything anew. Once a step. The sink calls nothing of this cache.
STEMMA_API stemma_status stemma_drain_events(stemma_cache* cache, stemma_event_sink sink,
                                             void* context);
// The next drain hands over everything: for who follows from now on.
STEMMA_API stemma_status stemma_resend_events(stemma_cache* cache);

#ifdef __cplusplus
}
#endif
