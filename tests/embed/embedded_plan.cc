#include "embed/embedded_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/prng.h"
#include "stemma/c_windows.h"

namespace stemma {

namespace {

template <std::size_t kCount>
const char* any_of(Prng& prng, const std::array<const char*, kCount>& names) {
  return names[static_cast<std::size_t>(prng.below(kCount))];
}

std::int64_t any_of(Prng& prng, std::initializer_list<std::int64_t> values) {
  return values.begin()[prng.below(static_cast<std::int64_t>(values.size()))];
}

stemma_pool_options draw_pool(Prng& prng) {
  stemma_pool_options pool;
  stemma_pool_options_init(&pool, sizeof(pool));
  pool.layers = 1 + prng.below(3);
  pool.page_size = any_of(prng, {1, 1, 2, 2, 3, 4, 7, 16});
  pool.pages = 4 + prng.below(pool.page_size > 4 ? 8 : 26);
  pool.kind = prng.below(3) == 0 ? STEMMA_MLA : STEMMA_MHA;
  pool.heads = pool.kind == STEMMA_MLA ? 1 : 1 + prng.below(3);
  pool.head_dim = 1 + prng.below(9);
  if (pool.kind == STEMMA_MLA) {
    pool.head_dim += 1;
    pool.latent_dim = 1 + prng.below(pool.head_dim - 1);
  }
  pool.dtype = static_cast<std::int32_t>(prng.below(6));
  pool.layout = static_cast<std::int32_t>(prng.below(2));
  pool.threads = static_cast<std::int32_t>(1 + prng.below(3));
  return pool;
}

void draw_window(Prng& prng, EmbeddedPlan& plan) {
  if (prng.below(4) != 0) return;
  plan.cache.window_tokens = 1 + prng.below(3 * plan.pool.page_size);
  const std::int64_t least =
      stemma_windowed_pages_max(plan.cache.window_tokens, plan.pool.page_size, 1);
  plan.cache.windowed_pages = least + prng.below(12);
  plan.windowed_pool = draw_pool(prng);
  plan.windowed_pool.pages = plan.cache.windowed_pages;
  plan.windowed_pool.page_size = plan.pool.page_size;
}

void draw_cache(Prng& prng, EmbeddedPlan& plan) {
  stemma_cache_options& cache = plan.cache;
  stemma_cache_options_init(&cache, sizeof(cache));
  cache.pages = plan.pool.pages;
  cache.page_size = plan.pool.page_size;
  cache.requests_max = 1 + prng.below(6);
  cache.context_tokens_max =
      std::max<std::int64_t>(2, plan.pool.page_size * (2 + prng.below(10)) - prng.below(3));
  cache.cache = prng.below(12) == 0 ? "none" : "radix";
  cache.eviction = any_of(prng, std::array{"lru", "lfu", "fifo", "mru", "filo", "slru", "priority",
                                           "gdsf", "tlru", "s3fifo", "hazard"});
  cache.host_eviction = any_of(prng, std::array{"lru", "lfu", "fifo", "mru", "slru", "hazard"});
  cache.write_policy =
      any_of(prng, std::array{"write-through", "write-through-selective", "write-back"});
  cache.selective_uses = 1 + prng.below(3);
  cache.load_wait_us = any_of(prng, {0, 1, 1000, 60'000'000, INT64_MAX});
  cache.store_deadline_us = any_of(prng, {1'000'000, 60'000'000, INT64_MAX});
  cache.events_pages_max = any_of(prng, {0, 1, 5, 1000});
  draw_window(prng, plan);
}

void draw_below(Prng& prng, EmbeddedPlan& plan) {
  if (!plan.shares()) return;
  constexpr std::array kBelow = {Below::kNothing, Below::kHost,   Below::kHost,  Below::kHost,
                                 Below::kStore,   Below::kStore,  Below::kStore, Below::kStores,
                                 Below::kStores,  Below::kStores, Below::kDisk};
  plan.below = kBelow[static_cast<std::size_t>(prng.below(kBelow.size()))];
  plan.host_pages = 1 + prng.below(2 * plan.pool.pages);
  plan.host_layout = static_cast<std::int32_t>(prng.below(2));
  plan.keeps_host_file = prng.below(2) == 0;
  plan.keeps_purge_file = prng.below(3) != 0;
  plan.stores_can_purge = prng.below(4) != 0;
  plan.stores_can_remove = prng.below(4) != 0;
  plan.mischief = any_of(prng, {0, 0, 3, 20});
}

Digest digest_of(std::uint8_t family, std::uint8_t name) {
  Digest digest = {};
  digest[0] = family;
  digest[31] = name;
  return digest;
}

void draw_namespaces(Prng& prng, EmbeddedPlan& plan) {
  constexpr std::array<std::uint8_t, 3> kFamilies = {1, 1, 2};
  for (const std::uint8_t family : kFamilies) {
    const auto name = static_cast<std::uint8_t>(plan.namespaces.size());
    plan.namespaces.push_back({.digest = digest_of(family, name)});
  }
  const Digest shared[] = {digest_of(3, 9), plan.namespaces[0].digest};
  for (std::size_t i = 0; i < 3; ++i) {
    KnownNamespace behind = {.digest = digest_of(static_cast<std::uint8_t>(1 + i % 2), 5),
                             .shared = shared[prng.below(4) == 0 ? 1 : 0]};
    const std::int64_t pages = 1 + prng.below(3);
    for (std::int64_t at = 0; at < pages * plan.pool.page_size; ++at) {
      behind.begin.push_back(plan.alphabet[prng.below(9) == 0 ? 1 : 0]);
    }
    if (std::ssize(behind.begin) <= plan.cache.context_tokens_max) {
      plan.namespaces.push_back(std::move(behind));
    }
  }
}

}  // namespace

EmbeddedPlan::EmbeddedPlan(std::uint64_t seed) {
  Prng prng(seed);
  pool = draw_pool(prng);
  draw_cache(prng, *this);
  draw_below(prng, *this);
  constexpr std::array<std::array<std::int32_t, 2>, 4> kAlphabets = {
      {{0, 1}, {0, 1}, {INT32_MIN, INT32_MAX}, {-1, 151'643}}};
  alphabet = kAlphabets[static_cast<std::size_t>(prng.below(4))];
  draw_namespaces(prng, *this);
  if (prng.below(3) == 0) namespaces_max = 1 + prng.below(5);
}

std::string to_string(const EmbeddedPlan& plan) {
  return fmt::format(
      "pool: {} layers {} pages of {}, {} heads of {} latent {}, dtype {} kind {} layout {}; "
      "cache: "
      "{} {} rows {} context {} {} host {} uses {} wait {} deadline {} events {} window {} of {}; "
      "below: {} host pages {} layout {} file {} purge file {} purges {} removes {} mischief {} "
      "names {}",
      plan.pool.layers, plan.pool.pages, plan.pool.page_size, plan.pool.heads, plan.pool.head_dim,
      plan.pool.latent_dim, plan.pool.dtype, plan.pool.kind, plan.pool.layout, plan.cache.cache,
      plan.cache.eviction, plan.cache.requests_max, plan.cache.context_tokens_max,
      plan.cache.write_policy, plan.cache.host_eviction, plan.cache.selective_uses,
      plan.cache.load_wait_us, plan.cache.store_deadline_us, plan.cache.events_pages_max,
      plan.cache.window_tokens, plan.cache.windowed_pages, static_cast<int>(plan.below),
      plan.host_pages, plan.host_layout, plan.keeps_host_file, plan.keeps_purge_file,
      plan.stores_can_purge, plan.stores_can_remove, plan.mischief, plan.namespaces_max);
}

}  // namespace stemma
