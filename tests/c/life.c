/* The life of a request through the C ABI, in C99: what an engine in any language says. */
#include <stdio.h>
#include <string.h>

#include "stemma/c.h"
#include "stemma/c_events.h"
#include "stemma/c_loans.h"
#include "stemma/c_tenants.h"
#include "stemma/c_windows.h"

enum { PAGE_SIZE = 16, PAGES = 64, PROMPT = 100 };

/* Ends the program unless a call did what it should. */
#define EXPECT(condition)                                                                     \
  do {                                                                                        \
    if (!(condition)) {                                                                       \
      fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, stemma_last_error()); \
      return 1;                                                                               \
    }                                                                                         \
  } while (0)

static int open_all(stemma_pool** pool, stemma_cache** cache, int32_t* ns) {
  stemma_pool_options pool_options;
  stemma_pool_options_init(&pool_options, sizeof(pool_options));
  pool_options.layers = 2;
  pool_options.pages = PAGES;
  pool_options.page_size = PAGE_SIZE;
  pool_options.heads = 2;
  pool_options.head_dim = 32;
  pool_options.dtype = STEMMA_F32;
  EXPECT(stemma_pool_open(&pool_options, pool) == STEMMA_OK);

  stemma_cache_options cache_options;
  stemma_cache_options_init(&cache_options, sizeof(cache_options));
  cache_options.pages = PAGES;
  cache_options.page_size = PAGE_SIZE;
  cache_options.events_pages_max = PAGES;
  EXPECT(stemma_cache_open(&cache_options, NULL, cache) == STEMMA_OK);

  const stemma_field fields[] = {{"model", "tiny", 4}, {"tenant", "a", 1}};
  uint8_t digest[32];
  EXPECT(stemma_digest(fields, 2, digest) == STEMMA_OK);
  EXPECT(stemma_namespace_open(*cache, digest, ns) == STEMMA_OK);
  return 0;
}

/* Writes rows of K and V for the tokens that nothing is cached of. */
static int compute(stemma_pool* pool, const stemma_sequence* sequence) {
  size_t pages = 0;
  const int32_t* table = stemma_pages(sequence, &pages);
  float row[64];
  EXPECT(pages == (PROMPT + PAGE_SIZE - 1) / PAGE_SIZE);
  memset(row, 0, sizeof(row));
  for (int64_t i = stemma_cached_tokens(sequence); i < PROMPT; ++i) {
    const int64_t slot = (int64_t)table[i / PAGE_SIZE] * PAGE_SIZE + i % PAGE_SIZE;
    EXPECT(stemma_pool_store(pool, 0, &slot, 1, row, row, STEMMA_F32, 64) == STEMMA_OK);
    EXPECT(stemma_pool_store(pool, 1, &slot, 1, row, row, STEMMA_F32, 64) == STEMMA_OK);
  }
  return 0;
}

static int live(stemma_pool* pool, stemma_cache* cache, int32_t ns, int64_t expected_cached) {
  int32_t tokens[PROMPT];
  stemma_sequence* sequence = NULL;
  for (int i = 0; i < PROMPT; ++i) tokens[i] = 7 + i;
  EXPECT(stemma_begin(cache, ns, tokens, PROMPT, &sequence) == STEMMA_OK);
  EXPECT(stemma_cached_tokens(sequence) == expected_cached);
  EXPECT(stemma_reserve(sequence, PROMPT) == STEMMA_OK);
  EXPECT(compute(pool, sequence) == 0);
  EXPECT(stemma_finish(sequence, tokens, PROMPT) == STEMMA_OK);
  return 0;
}

static void count_pages(void* context, const stemma_event* event) {
  if (event->kind == STEMMA_STORED) *(size_t*)context += event->pages;
}

static int follow(stemma_cache* cache) {
  const uint8_t family[8] = {1};
  size_t stored_pages = 0;
  int32_t whole = 0;
  EXPECT(stemma_drain_events(cache, count_pages, &stored_pages) == STEMMA_OK);
  EXPECT(stored_pages == PROMPT / PAGE_SIZE);
  EXPECT(stemma_set_quota(cache, family, PAGES / 2) == STEMMA_OK);
  EXPECT(stemma_end_loans(cache, &whole) == STEMMA_OK && whole == 1);
  return 0;
}

int main(void) {
  stemma_pool* pool = NULL;
  stemma_cache* cache = NULL;
  stemma_stats stats;
  int32_t ns = -1;
  EXPECT(stemma_abi_version() == STEMMA_ABI_VERSION);
  EXPECT(open_all(&pool, &cache, &ns) == 0);
  EXPECT(live(pool, cache, ns, 0) == 0);
  EXPECT(live(pool, cache, ns, 96) == 0);
  EXPECT(stemma_begin(cache, ns + 1, NULL, 0, NULL) == STEMMA_INVALID_ARGUMENT);
  EXPECT(follow(cache) == 0);
  stats.struct_size = sizeof(stats);
  EXPECT(stemma_cache_stats(cache, &stats) == STEMMA_OK);
  EXPECT(stats.cached_tokens == 96 && stats.free_pages == PAGES - 6);
  stemma_cache_close(cache);
  stemma_pool_close(pool);
  printf("stemma %s: the second request computed 4 tokens of %d\n", stemma_version(), PROMPT);
  return 0;
}
