// The C ABI: pools, caches and tiers for engines in any language (docs/EMBEDDING.md).
//
// Everything here keeps its meaning and layout as long as STEMMA_ABI_VERSION is the same. Structs
// begin with struct_size, which an init function or the caller sets to sizeof: fields that a caller
// does not know yet have their defaults, and fields that the library does not know must be 0.
//
// Thread:     a cache and its sequences belong to one thread at a time. A pool may be stored to
//             from several threads, where their slots differ. The last error is each thread's own.
// Memory:     what is opened is closed by the caller, in reverse order. Strings and arrays that go
//             in are used during the call only; what comes out lives as long as each one says.
// Cost:       begin, commit and release: that of C++ and less than 100 ns; they allocate nothing.
// Not here:   attention, models, serving; what the C++ headers offer beside this.
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define STEMMA_API __attribute__((visibility("default")))
#else
#define STEMMA_API
#endif
#ifdef __cplusplus
extern "C" {
#endif

// Raised when a declaration below changes otherwise than by additions at the end. Programs compare
// it with stemma_abi_version(), which is that of the library they run with.
#define STEMMA_ABI_VERSION 1
STEMMA_API int32_t stemma_abi_version(void);
STEMMA_API const char* stemma_version(void);  // "0.1.0"

// Below 0: an error, with a line for people; INVALID_ARGUMENT are null handles and numbers that
// make no sense, too. Above 0: an ordinary outcome, nothing has changed.
typedef int32_t stemma_status;
enum {
  STEMMA_OK = 0,
  STEMMA_NO_ROW = 1,        // as many sequences are held as the cache was opened for
  STEMMA_NO_PAGES = 2,      // too few pages are free or could be evicted
  STEMMA_NO_NAMESPACE = 3,  // as many namespaces are open as there can be
  STEMMA_NOTHING = 4,       // there is nothing of that
  STEMMA_INVALID_ARGUMENT = -1,
  STEMMA_NOT_FOUND = -2,
  STEMMA_UNSUPPORTED = -3,
  STEMMA_CORRUPT = -4,
  STEMMA_IO = -5,
  STEMMA_OUT_OF_MEMORY = -6,
  STEMMA_TOO_LARGE = -7,
  STEMMA_CANCELLED = -8,
  STEMMA_DEADLINE = -9,
  STEMMA_INTERNAL = -10
};
STEMMA_API const char* stemma_status_name(stemma_status status);  // "no_pages", "io", ...
// Of this thread's last call that failed, "" before. Others may set theirs: it returns `status`.
STEMMA_API const char* stemma_last_error(void);
STEMMA_API stemma_status stemma_set_last_error(stemma_status status, const char* message);

// Gets events from `level` on (0 debug, 1 info, 2 warning, 3 error): lines without their ends, one
// at a time, from any thread. Calls only stemma_set_log. NULL drops all. First: stderr, info.
typedef void (*stemma_log_sink)(void* context, int32_t level, const char* line, size_t bytes);
STEMMA_API void stemma_set_log(stemma_log_sink sink, void* context, int32_t level);

// --- Pools: the bytes of keys and values (stemma/kv_pool.h).
enum { STEMMA_F32, STEMMA_F16, STEMMA_BF16, STEMMA_FP8_E4M3, STEMMA_FP8_E5M2, STEMMA_INT8 };
enum { STEMMA_MHA, STEMMA_MLA };                 // what a row is
enum { STEMMA_LAYER_FIRST, STEMMA_PAGE_FIRST };  // order in memory
typedef struct stemma_pool stemma_pool;
typedef struct stemma_pool_options {
  size_t struct_size;
  int64_t layers;
  int64_t pages;
  int64_t page_size;   // tokens of a page; by default 16
  int64_t heads;       // of K and V; STEMMA_MLA: 1
  int64_t head_dim;    // STEMMA_MLA: of a latent row and its rope
  int64_t latent_dim;  // STEMMA_MLA: the columns of a row that are V too; else 0
  int32_t dtype;       // by default STEMMA_BF16
  int32_t kind;        // by default STEMMA_MHA
  int32_t layout;      // by default STEMMA_LAYER_FIRST
  int32_t threads;     // that touch its memory when it is opened: 1 (the default) to 1024
} stemma_pool_options;

STEMMA_API void stemma_pool_options_init(stemma_pool_options* options, size_t struct_size);
// The pages that fit into `bytes`; options->pages is not read.
STEMMA_API stemma_status stemma_pages_for_bytes(const stemma_pool_options* options, int64_t bytes,
                                                int64_t* pages);
STEMMA_API stemma_status stemma_pool_open(const stemma_pool_options* options, stemma_pool** pool);
STEMMA_API void stemma_pool_close(stemma_pool* pool);  // NULL is fine, as for every close

// A layer as kernels read and write it: the row of K of (page, offset, head) begins at element
// page * page_stride + offset * token_stride + head * head_stride of `k`; V likewise, in rows of
// value_dim. Scaled dtypes: its scale is element page * scale_page_stride + offset + head *
// scale_head_stride of `k_scales`; else NULL. Valid until the pool is closed.
typedef struct stemma_layer {
  size_t struct_size;
  void* k;
  void* v;
  float* k_scales;
  float* v_scales;
  int64_t pages;
  int64_t page_size;
  int64_t heads;
  int64_t head_dim;
  int64_t value_dim;
  int64_t page_stride;
  int64_t token_stride;
  int64_t head_stride;
  int64_t scale_page_stride;
  int64_t scale_head_stride;
} stemma_layer;
STEMMA_API stemma_status stemma_pool_layer(stemma_pool* pool, int64_t layer, stemma_layer* view);

// Row i of k and v, [rows, heads, head_dim] of `dtype`, each row_stride elements behind the one
// before, goes to slots[i] = page * page_size + offset. STEMMA_MLA: rows of `k` alone, `v` is NULL.
STEMMA_API stemma_status stemma_pool_store(stemma_pool* pool, int64_t layer, const int64_t* slots,
                                           size_t rows, const void* k, const void* v, int32_t dtype,
                                           int64_t row_stride);

// --- Page stores: pages by key, outside the memory of the engine (stemma/page_store.h).
typedef struct stemma_store stemma_store;
// Both are of the library stemma_tiers. At most bytes_max in a directory of one engine at a time.
STEMMA_API stemma_status stemma_disk_store_open(const char* directory, int64_t bytes_max,
                                                stemma_store** store);
// Redis or Valkey: "redis://host:6379", "redis-cluster://a:1,b:2", "redis-sentinel://a:1/name".
// Values are sealed with `secret`, unless it is NULL.
STEMMA_API stemma_status stemma_remote_store_open(const char* url, const char* secret,
                                                  stemma_store** store);

// A page of a call to a store of the caller's own.
typedef struct stemma_stored_page {
  const uint8_t* key;  // 32 bytes
  void* frame;         // read fills it; write and remove only look at it
  size_t frame_bytes;
  int32_t verdict;  // to be set: 0 done, 1 missing, 2 refused, 3 corrupt, 4 failed
} stemma_stored_page;
// Called from threads of the tiers: lookup, read and remove by one at a time, write by another.
// Each returns by deadline_us of CLOCK_MONOTONIC. A NULL function: nothing is there, or is kept.
typedef struct stemma_store_callbacks {
  size_t struct_size;
  void* context;
  const char* name;
  // How many of the keys, 32 bytes each, it seems to have, from the first one on; below 0: failed.
  int64_t (*lookup)(void* context, const uint8_t* keys, size_t count, int64_t deadline_us);
  void (*read)(void* context, stemma_stored_page* pages, size_t count, int64_t deadline_us);
  void (*write)(void* context, stemma_stored_page* pages, size_t count, int64_t deadline_us);
  // Removes those of which it still has exactly these bytes.
  void (*remove)(void* context, stemma_stored_page* pages, size_t count, int64_t deadline_us);
  // As stemma_purge: how many it removed; below 0: ask again. NULL: it is not used for these again.
  int64_t (*purge)(void* context, const uint8_t* families, size_t count, int64_t deadline_us);
  void (*close)(void* context);  // after the last call
} stemma_store_callbacks;
STEMMA_API stemma_status stemma_store_open(const stemma_store_callbacks* callbacks,
                                           stemma_store** store);
STEMMA_API void stemma_store_close(stemma_store* store);

// --- Tiers below a pool: host memory, then stores, nearest first (stemma/lower_tiers.h).
typedef struct stemma_tiers stemma_tiers;
typedef struct stemma_tiers_options {
  size_t struct_size;
  int64_t host_bytes;      // at least those of a page; what stores read and write passes through it
  const char* host_file;   // that host memory survives in; by default NULL: none
  const uint8_t* digest;   // 32 bytes: whose pages host_file holds, see stemma_digest; or NULL
  const char* codec;       // "plain" (by default), "int8", "int4": below the device, not exact
  int32_t layout;          // of host memory; by default STEMMA_PAGE_FIRST
  int32_t threads;         // that touch its memory: 1 (the default) to 1024
  const char* purge_file;  // where what stores are to forget yet outlives the cache; or NULL
} stemma_tiers_options;
STEMMA_API void stemma_tiers_options_init(stemma_tiers_options* options, size_t struct_size);
// Takes up to 64 stores over, also where it fails. The pool outlives it, it the cache that uses it.
STEMMA_API stemma_status stemma_tiers_open(const stemma_tiers_options* options, stemma_pool* pool,
                                           stemma_store* const* stores, size_t stores_count,
                                           stemma_tiers** tiers);
STEMMA_API void stemma_tiers_close(stemma_tiers* tiers);

// --- Caches: which prefixes have pages (stemma/kv_cache.h, stemma/options.h).
typedef struct stemma_cache stemma_cache;
typedef struct stemma_cache_options {
  size_t struct_size;
  int64_t pages;               // of the pool
  int64_t page_size;           // by default 16
  int64_t requests_max;        // sequences held at once; by default 16
  int64_t context_tokens_max;  // of a sequence; by default 4096
  const char* cache;           // "radix" (by default) or "none"
  const char* eviction;        // "lru" (by default), "s3fifo", "hazard", ... (docs/EVICTION.md)
  const char* write_policy;    // "write-through", "write-through-selective" or "write-back" (by
                               // default): when pages go down
  const char* host_eviction;   // by default "lru"
  int64_t selective_uses;      // unless write-through; by default 2
  int64_t load_wait_us;        // what worth_waiting allows at most; by default 40,000
  int64_t store_deadline_us;   // of an operation of a store; by default 2,000,000
  int64_t events_pages_max;    // of changes that are kept (stemma/c_events.h); by default 0: none
  int64_t window_tokens;       // of layers with a window (stemma/c_windows.h); by default 0: none
  int64_t windowed_pages;      // of their pool; by default 0
} stemma_cache_options;
STEMMA_API void stemma_cache_options_init(stemma_cache_options* options, size_t struct_size);
// `tiers` may be NULL, and serve one cache at a time.
STEMMA_API stemma_status stemma_cache_open(const stemma_cache_options* options, stemma_tiers* tiers,
                                           stemma_cache** cache);
STEMMA_API void stemma_cache_close(stemma_cache* cache);  // releases what is still held

// SHA-256 of named fields, in their order: all that makes pages valid belongs into it (weights,
// configuration, formats, adapter, tenant, salt). Prefixes of different digests never meet.
typedef struct stemma_field {
  const char* name;
  const void* value;
  size_t value_bytes;
} stemma_field;
STEMMA_API stemma_status stemma_digest(const stemma_field* fields, size_t count,
                                       uint8_t digest[32]);
// A short name of the digest, the same as long as it is open or sequences of it are. NO_NAMESPACE.
STEMMA_API stemma_status stemma_namespace_open(stemma_cache* cache, const uint8_t digest[32],
                                               int32_t* ns);
STEMMA_API stemma_status stemma_namespace_close(stemma_cache* cache, int32_t ns);

// Tokens that begin would find now. Changes nothing.
STEMMA_API stemma_status stemma_probe(const stemma_cache* cache, int32_t ns, const int32_t* tokens,
                                      size_t count, int64_t* cached_tokens);
// Evicts up to `pages` that nobody holds, coldest first. REQUIRES: no step is in flight.
STEMMA_API stemma_status stemma_evict(stemma_cache* cache, int64_t pages, int64_t* evicted);
// In no tier does anybody find pages of namespaces any more whose digests begin with one of these,
// 8 bytes each; where count is 0, of any namespace. REQUIRES: no step is in flight.
STEMMA_API stemma_status stemma_purge(stemma_cache* cache, const uint8_t* families, size_t count);
// Pages freed while a step is in flight stay as they are until it retires: for engines that compute
// asynchronously. Steps retire in the order in which they began; at most 16 are in flight.
STEMMA_API stemma_status stemma_step_begin(stemma_cache* cache, int64_t* step);
STEMMA_API stemma_status stemma_step_retire(stemma_cache* cache, int64_t step);

// --- Sequences: one request's hold on pages.
typedef struct stemma_sequence stemma_sequence;
// Looks the prompt up, all but its last token at most, and holds what is found. NO_ROW.
STEMMA_API stemma_status stemma_begin(stemma_cache* cache, int32_t ns, const int32_t* tokens,
                                      size_t count, stemma_sequence** sequence);
// Makes room for the first `tokens` tokens, evicting if it must; all or nothing. NO_PAGES.
STEMMA_API stemma_status stemma_reserve(stemma_sequence* sequence, int64_t tokens);
// Publishes the full pages of `tokens`: all whose KV has been computed, from the first on. Where
// others were faster their pages are shared, and the page list changes.
STEMMA_API stemma_status stemma_commit(stemma_sequence* sequence, const int32_t* tokens,
                                       size_t count);
// As commit, then gives everything back. The handle is no more, unless it fails.
STEMMA_API stemma_status stemma_finish(stemma_sequence* sequence, const int32_t* tokens,
                                       size_t count);
// Gives everything back and publishes nothing: an aborted request. NULL is fine.
STEMMA_API void stemma_release(stemma_sequence* sequence);

// A second sequence with the first computed_tokens of this one, whose full pages are committed and
// then shared. Where they end amid a page, copy page *from to *to before either goes on; else both
// are -1. NO_ROW; NO_PAGES, also after a purge of its namespace. REQUIRES: no step is in flight.
STEMMA_API stemma_status stemma_fork(const stemma_sequence* sequence, int64_t computed_tokens,
                                     stemma_sequence** fork, int32_t* from, int32_t* to);
// Highest stays longest, under the eviction "priority".
STEMMA_API stemma_status stemma_set_priority(stemma_sequence* sequence, int32_t priority);

STEMMA_API int64_t stemma_cached_tokens(const stemma_sequence* sequence);     // that begin found
STEMMA_API int64_t stemma_published_tokens(const stemma_sequence* sequence);  // in shared pages
STEMMA_API int64_t stemma_capacity_tokens(const stemma_sequence* sequence);   // with a place
// Its pages in token order, as the table of requests has them: nothing is copied. Valid until the
// next reserve, commit or end of this sequence.
STEMMA_API const int32_t* stemma_pages(const stemma_sequence* sequence, size_t* count);

// Where a batch's keys and values lie, as kernels read it (stemma/page_table.h), of the first
// tokens[i] of each sequence: [count + 1] begins in `pages`, pages, [count] tokens in each one's
// last page. Valid until the next such call for the cache.
STEMMA_API stemma_status stemma_batch_pages(stemma_cache* cache, stemma_sequence* const* sequences,
                                            const int64_t* tokens, size_t count,
                                            const int32_t** indptr, const int32_t** pages,
                                            const int32_t** last_page_tokens);

// --- Moving between tiers. Nothing happens where there are none.

// Once between two steps: takes copies that have ended; to the device, none amid a step.
STEMMA_API stemma_status stemma_poll_transfers(stemma_cache* cache);
STEMMA_API stemma_status stemma_wait_transfers(stemma_cache* cache, int64_t us);  // until one ends
// Begins to bring up what tiers have of a prompt beyond what begin would find. NOTHING.
STEMMA_API stemma_status stemma_promote(stemma_cache* cache, int32_t ns, const int32_t* tokens,
                                        size_t count, int64_t* promotion);
// 1: better to wait for it than to compute. 0: begin now. Below 0: an error.
STEMMA_API int32_t stemma_worth_waiting(const stemma_cache* cache, int64_t promotion);
STEMMA_API stemma_status stemma_promotion_release(stemma_cache* cache, int64_t promotion);
// Copies down what tiers lack, has purges confirmed: before the end. REQUIRES: no step in flight.
STEMMA_API stemma_status stemma_settle(stemma_cache* cache, int64_t us_max);

// --- Numbers.
typedef struct stemma_stats {
  size_t struct_size;
  int64_t pages;            // in all
  int64_t free_pages;       // held by nobody, with nothing in them
  int64_t available_pages;  // free, or to be had by eviction
  int64_t free_rows;        // sequences that could begin
  int64_t cached_tokens;    // in the tree
  int64_t locked_tokens;    // of them, held by sequences or copies
  int64_t evicted_pages;    // since it was opened
} stemma_stats;
STEMMA_API stemma_status stemma_cache_stats(const stemma_cache* cache, stemma_stats* stats);
// Every metric of the cache and its tiers: a name as Prometheus knows them, and a number.
typedef void (*stemma_metric_sink)(void* context, const char* name, int64_t value);
STEMMA_API stemma_status stemma_metrics(const stemma_cache* cache, stemma_metric_sink sink,
                                        void* context);

#ifdef __cplusplus
}
#endif
