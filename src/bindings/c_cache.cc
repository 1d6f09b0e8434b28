// Caches, namespaces, transfers and numbers of the C ABI.
#include <algorithm>
#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/bounded_time.h"
#include "base/clock.h"
#include "base/math.h"
#include "bindings/c_handles.h"
#include "bindings/shared_begin.h"
#include "stemma/metrics.h"
#include "stemma/options.h"

namespace stemma {

namespace {

constexpr stemma_cache_options kCacheDefaults = {.struct_size = sizeof(stemma_cache_options),
                                                 .pages = 0,
                                                 .page_size = 16,
                                                 .requests_max = 16,
                                                 .context_tokens_max = 4096,
                                                 .cache = "radix",
                                                 .eviction = "lru",
                                                 .write_policy = "write-back",
                                                 .host_eviction = "lru",
                                                 .selective_uses = 2,
                                                 .load_wait_us = 40'000,
                                                 .store_deadline_us = 2'000'000,
                                                 .events_pages_max = 0,
                                                 .window_tokens = 0,
                                                 .windowed_pages = 0};

void take_name(const char* name, std::string& into) {
  if (name != nullptr) into = name;
}

stemma_status read_cache(const stemma_cache_options* given, KvCacheOptions& plan) {
  stemma_cache_options options = kCacheDefaults;
  if (const stemma_status status = read_struct(given, options); status != STEMMA_OK) return status;
  plan.pages = options.pages;
  plan.page_size = options.page_size;
  plan.requests_max = options.requests_max;
  plan.context_tokens_max = options.context_tokens_max;
  plan.events_pages_max = options.events_pages_max;
  plan.window_tokens = options.window_tokens;
  plan.windowed_pages = options.windowed_pages;
  take_name(options.cache, plan.cache);
  take_name(options.eviction, plan.eviction);
  take_name(options.host_eviction, plan.tiers.host_eviction);
  plan.tiers.selective_uses = options.selective_uses;
  plan.tiers.load_wait_us = options.load_wait_us;
  plan.tiers.store_deadline_us = options.store_deadline_us;
  if (options.write_policy == nullptr) return STEMMA_OK;
  const auto policy = parse_write_policy(options.write_policy);
  if (!policy.ok()) return fail(policy.error());
  plan.tiers.write_policy = *policy;
  return STEMMA_OK;
}

// Where the cache has pages that the pool has not, a copy would go beyond its end.
stemma_status check_tiers(const KvCacheOptions& options, const stemma_tiers* tiers) {
  if (tiers == nullptr) return STEMMA_OK;
  if (tiers->in_use) return refuse("another cache uses the tiers");
  if (!tiers->opened_in.is_here()) {
    return fail({ErrorCode::kUnsupported, "the tiers are of the process that forked this one"});
  }
  const KvShape& shape = tiers->pool->pool->shape();
  if (shape.pages != options.pages || shape.page_size != options.page_size) {
    return refuse("pages and page_size must be those of the pool above the tiers");
  }
  const stemma_pool* const windowed = tiers->windowed_pool_or_null;
  if (windowed == nullptr || options.window_tokens == 0) return STEMMA_OK;  // or KvCache says so
  if (windowed->pool->shape().pages == options.windowed_pages) return STEMMA_OK;
  return refuse("windowed_pages must be those of the windowed pool above the tiers");
}

// Of batches of a cache.
PageTableAssembly::Extent table_extent(const KvCacheOptions& options) {
  return {
      .requests_max = options.requests_max,
      .pages_max = options.requests_max * ceil_div(options.context_tokens_max, options.page_size),
      .page_size = options.page_size};
}

bool is_open(const stemma_cache* cache, std::int32_t ns) {
  return ns >= 0 && ns < std::ssize(cache->namespaces) &&
         cache->namespaces[static_cast<std::size_t>(ns)].opens > 0;
}

// Hands numbers on with names that end in a zero.
class SinkVisitor final : public MetricVisitor {
 public:
  SinkVisitor(stemma_metric_sink sink, void* context) : sink_(sink), context_(context) {}
  void counter(std::string_view name, std::int64_t value) override { gauge(name, value); }
  void gauge(std::string_view name, std::int64_t value) override {
    sink_(context_, std::string(name).c_str(), value);
  }

 private:
  stemma_metric_sink sink_;
  void* context_;
};

}  // namespace

stemma_status check_prompt(const stemma_cache* cache, std::int32_t ns, const std::int32_t* tokens,
                           std::size_t count) {
  if (cache == nullptr || !is_array<TokenId>(tokens, count) || count == 0) {
    return refuse("a cache, and a prompt of at least one token");
  }
  if (!is_open(cache, ns)) return refuse("the namespace is not open");
  if (std::cmp_greater(count, cache->kv->options().context_tokens_max)) {
    return fail({ErrorCode::kTooLarge, "the prompt is longer than context_tokens_max"});
  }
  const auto& shared = cache->namespaces[static_cast<std::size_t>(ns)].shared_tokens;
  if (!begin_alike(shared, std::span(tokens, count))) {
    return refuse("the prompt does not begin as the texts of its namespace do");
  }
  return STEMMA_OK;
}

stemma_status name_namespace(stemma_cache& cache, std::optional<NamespaceId> opened,
                             std::span<const TokenId> shared_tokens, std::int32_t& ns) {
  if (!opened.has_value()) return STEMMA_NO_NAMESPACE;
  if (opened->index() >= cache.namespaces.size()) cache.namespaces.resize(opened->index() + 1);
  auto& named = cache.namespaces[opened->index()];
  named.shared_tokens.assign(shared_tokens.begin(), shared_tokens.end());
  ++named.opens;
  ns = opened->value();
  return STEMMA_OK;
}

}  // namespace stemma

void stemma_cache_options_init(stemma_cache_options* options, size_t struct_size) {
  stemma::write_struct(stemma::kCacheDefaults, options, struct_size);
}

stemma_status stemma_cache_open(const stemma_cache_options* options, stemma_tiers* tiers,
                                stemma_cache** cache) {
  return stemma::guarded([&] {
    stemma::KvCacheOptions plan;
    if (const auto status = stemma::read_cache(options, plan); status != STEMMA_OK) return status;
    if (cache == nullptr) return stemma::refuse("cache is NULL");
    if (const auto status = stemma::check_tiers(plan, tiers); status != STEMMA_OK) return status;
    auto opened =
        stemma::KvCache::open(plan, nullptr, tiers == nullptr ? nullptr : tiers->tiers.get());
    if (!opened.ok()) return stemma::fail(opened.error());
    auto made = std::make_unique<stemma_cache>();
    made->kv = std::move(opened).value();
    if (tiers != nullptr) made->pool_or_null = tiers->pool;
    made->tiers_or_null = tiers;
    made->sequences = std::vector<stemma_sequence>(static_cast<std::size_t>(plan.requests_max));
    made->promotions.reserve(static_cast<std::size_t>(plan.tiers.promotions_max));
    for (stemma_sequence& sequence : made->sequences) {
      sequence.cache = made.get();
      made->unused.push_back(&sequence);
    }
    made->batch.emplace(stemma::table_extent(plan));
    if (plan.window_tokens > 0) made->windowed_batch.emplace(stemma::table_extent(plan));
    if (tiers != nullptr) tiers->in_use = true;
    *cache = made.release();
    return stemma_status{STEMMA_OK};
  });
}

void stemma_cache_close(stemma_cache* cache) {
  std::unique_ptr<stemma_cache> closed(cache);
  if (closed == nullptr) return;
  stemma_tiers* const tiers = closed->tiers_or_null;
  if (tiers != nullptr && !tiers->opened_in.is_here()) return static_cast<void>(closed.release());
  stemma::guarded([&] {
    closed->loans.close(*closed->kv);
    for (const std::int64_t id : closed->promotions) {
      closed->kv->release_promotion(stemma::PromotionId(id), stemma::PromotionUse::kWaiting);
    }
    return STEMMA_OK;
  });
  closed.reset();
  if (tiers != nullptr) tiers->in_use = false;
}

stemma_status stemma_namespace_open(stemma_cache* cache, const uint8_t digest[32], int32_t* ns) {
  return stemma::guarded([&] {
    if (cache == nullptr || digest == nullptr || ns == nullptr) {
      return stemma::refuse("cache, digest and ns are given");
    }
    const auto opened = cache->kv->try_open_namespace(stemma::digest_of(digest));
    return stemma::name_namespace(*cache, opened, {}, *ns);
  });
}

stemma_status stemma_namespace_close(stemma_cache* cache, int32_t ns) {
  return stemma::guarded([&] {
    if (cache == nullptr || !stemma::is_open(cache, ns)) {
      return stemma::refuse("the namespace is not open");
    }
    --cache->namespaces[static_cast<std::size_t>(ns)].opens;
    cache->kv->close_namespace(stemma::NamespaceId(ns));
    return stemma_status{STEMMA_OK};
  });
}

stemma_status stemma_probe(const stemma_cache* cache, int32_t ns, const int32_t* tokens,
                           size_t count, int64_t* cached_tokens) {
  return stemma::guarded([&] {
    if (cached_tokens == nullptr) return stemma::refuse("cached_tokens is NULL");
    if (const auto status = stemma::check_prompt(cache, ns, tokens, count); status != STEMMA_OK) {
      return status;
    }
    *cached_tokens = cache->kv->probe(stemma::NamespaceId(ns), std::span(tokens, count));
    return stemma_status{STEMMA_OK};
  });
}

stemma_status stemma_evict(stemma_cache* cache, int64_t pages, int64_t* evicted) {
  return stemma::guarded([&] {
    if (cache == nullptr || pages < 0) return stemma::refuse("a cache, and pages");
    if (cache->steps_in_flight > 0) return stemma::refuse("a step is in flight");
    const std::int64_t got = cache->kv->evict(pages);
    if (evicted != nullptr) *evicted = got;
    return stemma_status{STEMMA_OK};
  });
}

stemma_status stemma_purge(stemma_cache* cache, const uint8_t* families, size_t count) {
  return stemma::guarded([&] {
    if (cache == nullptr || !stemma::is_array<stemma::NamespaceFamily>(families, count)) {
      return stemma::refuse("a cache, and families");
    }
    if (cache->steps_in_flight > 0) return stemma::refuse("a step is in flight");
    if (stemma::is_lending(*cache)) return stemma::refuse_loan();
    std::vector<stemma::NamespaceFamily> named(count);
    for (std::size_t i = 0; i < count; ++i) {
      named[i] = stemma::family_at(families + i * named[i].bytes.size());
    }
    const auto purged = cache->kv->purge(named);
    return purged.ok() ? stemma_status{STEMMA_OK} : stemma::fail(purged.error());
  });
}

stemma_status stemma_step_begin(stemma_cache* cache, int64_t* step) {
  return stemma::guarded([&] {
    if (cache == nullptr || step == nullptr) return stemma::refuse("cache and step are given");
    if (cache->steps_in_flight == stemma::kCStepsInFlightMax) {
      return stemma::refuse("as many steps are in flight as there can be");
    }
    cache->last_step = cache->kv->begin_step();
    ++cache->steps_in_flight;
    *step = cache->last_step;
    return stemma_status{STEMMA_OK};
  });
}

stemma_status stemma_step_retire(stemma_cache* cache, int64_t step) {
  return stemma::guarded([&] {
    if (cache == nullptr || cache->steps_in_flight == 0 ||
        step != cache->last_step - cache->steps_in_flight + 1) {
      return stemma::refuse("not the oldest step in flight");
    }
    cache->kv->retire_step(step);
    --cache->steps_in_flight;
    return stemma_status{STEMMA_OK};
  });
}

stemma_status stemma_poll_transfers(stemma_cache* cache) {
  return stemma::guarded([&] {
    if (cache == nullptr) return stemma::refuse("cache is NULL");
    if (stemma::is_lending(*cache)) return stemma::refuse_loan();
    cache->kv->poll_transfers();
    return stemma_status{STEMMA_OK};
  });
}

stemma_status stemma_wait_transfers(stemma_cache* cache, int64_t us) {
  return stemma::guarded([&] {
    if (cache == nullptr || us < 0) return stemma::refuse("a cache, and a time");
    if (stemma::is_lending(*cache)) return stemma::refuse_loan();
    cache->kv->poll_transfers();  // which may begin some
    if (!cache->kv->transfers_underway()) return stemma_status{STEMMA_NOTHING};
    cache->kv->wait_transfers(std::chrono::microseconds(stemma::bounded_us(us)));
    cache->kv->poll_transfers();
    return stemma_status{STEMMA_OK};
  });
}

stemma_status stemma_promote(stemma_cache* cache, int32_t ns, const int32_t* tokens, size_t count,
                             int64_t* promotion) {
  return stemma::guarded([&] {
    if (promotion == nullptr) return stemma::refuse("promotion is NULL");
    if (const auto status = stemma::check_prompt(cache, ns, tokens, count); status != STEMMA_OK) {
      return status;
    }
    const auto id = cache->kv->try_promote(stemma::NamespaceId(ns), std::span(tokens, count));
    if (!id.has_value()) return stemma_status{STEMMA_NOTHING};
    cache->promotions.push_back(id->value());
    *promotion = id->value();
    return stemma_status{STEMMA_OK};
  });
}

int32_t stemma_worth_waiting(const stemma_cache* cache, int64_t promotion) {
  return stemma::guarded([&]() -> stemma_status {
    if (!stemma::is_promotion(cache, promotion)) return stemma::refuse("no such promotion");
    return cache->kv->worth_waiting(stemma::PromotionId(promotion)) ? 1 : 0;
  });
}

stemma_status stemma_promotion_release(stemma_cache* cache, int64_t promotion) {
  return stemma::guarded([&] {
    if (!stemma::is_promotion(cache, promotion)) return stemma::refuse("no such promotion");
    cache->loans.release(*cache->kv, stemma::PromotionId(promotion));
    // One hold of it: two requests of one text may have the same.
    cache->promotions.erase(
        std::find(cache->promotions.begin(), cache->promotions.end(), promotion));
    return stemma_status{STEMMA_OK};
  });
}

stemma_status stemma_settle(stemma_cache* cache, int64_t us_max) {
  return stemma::guarded([&] {
    if (cache == nullptr || us_max < 0) return stemma::refuse("a cache, and a time");
    if (cache->steps_in_flight > 0) return stemma::refuse("a step is in flight");
    if (stemma::is_lending(*cache)) return stemma::refuse_loan();
    cache->kv->settle(stemma::MonotonicClock().now_us() + stemma::bounded_us(us_max));
    return stemma_status{STEMMA_OK};
  });
}

stemma_status stemma_cache_stats(const stemma_cache* cache, stemma_stats* stats) {
  return stemma::guarded([&] {
    if (cache == nullptr) return stemma::refuse("cache is NULL");
    const stemma::PrefixUsage usage = cache->kv->usage();
    return stemma::fill_struct({.struct_size = 0,
                                .pages = cache->kv->total_pages(),
                                .free_pages = cache->kv->free_pages(),
                                .available_pages = cache->kv->available_pages(),
                                .free_rows = cache->kv->free_rows(),
                                .cached_tokens = usage.total_tokens(),
                                .locked_tokens = usage.locked_tokens,
                                .evicted_pages = cache->kv->evicted_pages()},
                               stats);
  });
}

stemma_status stemma_metrics(const stemma_cache* cache, stemma_metric_sink sink, void* context) {
  return stemma::guarded([&] {
    if (cache == nullptr || sink == nullptr) return stemma::refuse("cache and sink are given");
    stemma::SinkVisitor visitor(sink, context);
    cache->kv->visit_metrics(visitor);
    return stemma_status{STEMMA_OK};
  });
}
