// Tenants of the C ABI: quotas, wants, hints, and beginnings that all share (stemma/c_tenants.h).
#include "stemma/c_tenants.h"

#include <span>
#include <utility>

#include "bindings/c_handles.h"
#include "bindings/shared_begin.h"

namespace stemma {

namespace {

static_assert(static_cast<int>(Tier::kDevice) == STEMMA_DEVICE);
static_assert(static_cast<int>(Tier::kHost) == STEMMA_HOST);
static_assert(static_cast<int>(Retention::kShort) == STEMMA_RETAIN_SHORT);
static_assert(static_cast<int>(Retention::kLong) == STEMMA_RETAIN_LONG);

}  // namespace

}  // namespace stemma

stemma_status stemma_set_quota(stemma_cache* cache, const uint8_t family[8], int64_t pages) {
  return stemma::guarded([&] {
    if (cache == nullptr || family == nullptr) return stemma::refuse("cache and family are given");
    if (pages < 0 || pages > cache->kv->total_pages()) {
      return stemma::refuse("a quota is of the cache's pages");
    }
    cache->kv->set_quota(stemma::family_at(family), pages);
    return stemma_status{STEMMA_OK};
  });
}

stemma_status stemma_quotas(const stemma_cache* cache, int32_t tier, stemma_quota_sink sink,
                            void* context) {
  return stemma::guarded([&] {
    stemma::Tier asked;
    if (cache == nullptr || sink == nullptr ||
        !stemma::read_enum(tier, stemma::Tier::kHost, asked)) {
      return stemma::refuse("a cache, a tier of STEMMA_DEVICE and STEMMA_HOST, and a sink");
    }
    for (const stemma::TenantQuota& quota : cache->kv->quotas(asked)) {
      sink(context, quota.family.bytes.data(), quota.quota_pages, quota.pages);
    }
    return stemma_status{STEMMA_OK};
  });
}

stemma_status stemma_want(stemma_cache* cache, int32_t ns, const int32_t* tokens, size_t count,
                          int64_t turn) {
  return stemma::guarded([&] {
    if (const auto status = stemma::check_prompt(cache, ns, tokens, count); status != STEMMA_OK) {
      return status;
    }
    cache->kv->want(stemma::NamespaceId(ns), std::span(tokens, count), turn);
    return stemma_status{STEMMA_OK};
  });
}

stemma_status stemma_forget_wants(stemma_cache* cache) {
  return stemma::guarded([&] {
    if (cache == nullptr) return stemma::refuse("cache is NULL");
    cache->kv->forget_wants();
    return stemma_status{STEMMA_OK};
  });
}

stemma_status stemma_set_retention(stemma_sequence* sequence, int32_t retention) {
  return stemma::guarded([&] {
    stemma::Retention wanted;
    if (!stemma::is_held(sequence) ||
        !stemma::read_enum(retention, stemma::Retention::kLong, wanted)) {
      return stemma::refuse("a sequence, and one of STEMMA_RETAIN_...");
    }
    sequence->held.set_retention(wanted);
    return stemma_status{STEMMA_OK};
  });
}

stemma_status stemma_close_session(stemma_sequence* sequence) {
  return stemma::guarded([&] {
    if (!stemma::is_held(sequence)) return stemma::refuse("no sequence");
    sequence->held.close_session();
    return stemma_status{STEMMA_OK};
  });
}

stemma_status stemma_namespace_open_behind(stemma_cache* cache, const uint8_t digest[32],
                                           const uint8_t shared_digest[32], const int32_t* tokens,
                                           size_t count, int32_t* ns) {
  return stemma::guarded([&] {
    if (cache == nullptr || digest == nullptr || shared_digest == nullptr || ns == nullptr ||
        !stemma::is_array<stemma::TokenId>(tokens, count)) {
      return stemma::refuse("cache, two digests, tokens and ns are given");
    }
    if (std::cmp_greater(count, cache->kv->options().context_tokens_max)) {
      return stemma::fail({stemma::ErrorCode::kTooLarge, "more than context_tokens_max"});
    }
    const auto shared_tokens = static_cast<std::int64_t>(count);
    if (shared_tokens == 0 || shared_tokens % cache->kv->page_size() != 0) {
      return stemma::refuse("a shared beginning is whole pages, at least one");
    }
    const std::span<const stemma::TokenId> begin(tokens, count);
    const stemma::SharedPrefix shared = {.digest = stemma::digest_of(shared_digest),
                                         .tokens = shared_tokens};
    const stemma::NamespaceDigest behind =
        stemma::grafted_on(stemma::digest_of(digest), shared.digest, begin, cache->kv->page_size());
    const auto opened = cache->kv->try_open_namespace(behind, &shared);
    return stemma::name_namespace(*cache, opened, begin, *ns);
  });
}
