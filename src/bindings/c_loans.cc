// Pages lent while they arrive, of the C ABI (stemma/c_loans.h).
#include "stemma/c_loans.h"

#include <span>

#include "bindings/c_handles.h"
#include "stemma/kv_batch.h"

stemma_status stemma_lend(stemma_sequence* sequence, const int32_t* tokens, size_t count,
                          int64_t promotion, int64_t* named_tokens) {
  return stemma::guarded([&] {
    if (!stemma::is_held(sequence) || !stemma::is_array<stemma::TokenId>(tokens, count) ||
        named_tokens == nullptr) {
      return stemma::refuse("a sequence, tokens and named_tokens are given");
    }
    stemma_cache& cache = *sequence->cache;
    if (!stemma::is_promotion(&cache, promotion)) return stemma::refuse("no such promotion");
    const std::span text(tokens, count);
    if (const auto status = stemma::check_begin(*sequence, text); status != STEMMA_OK) {
      return status;
    }
    const auto named =
        cache.loans.lend(*cache.kv, sequence->held, text, stemma::PromotionId(promotion));
    if (!named.ok()) return stemma::fail(named.error());
    *named_tokens = *named;
    return stemma_status{STEMMA_OK};
  });
}

int32_t stemma_wait_layer(stemma_cache* cache, int64_t layer) {
  return stemma::guarded([&]() -> stemma_status {
    if (cache == nullptr) return stemma::refuse("cache is NULL");
    stemma::LayerGate* const arriving = cache->kv->arriving_or_null();
    if (arriving == nullptr) return 1;
    if (!stemma::has_layer(cache->pool_or_null, layer)) {
      return stemma::refuse("the pool has no such layer");
    }
    return arriving->wait(layer) ? 1 : 0;
  });
}

stemma_status stemma_end_loans(stemma_cache* cache, int32_t* whole) {
  return stemma::guarded([&] {
    if (cache == nullptr || whole == nullptr) return stemma::refuse("cache and whole are given");
    if (cache->steps_in_flight > 0) return stemma::refuse("a step is in flight");
    *whole = cache->loans.end(*cache->kv) ? 1 : 0;
    return stemma_status{STEMMA_OK};
  });
}
