// Calls that make no sense: each is refused with the error that stemma/c.h names, and changes
// nothing.
#include <gtest/gtest.h>

#include <limits>

#include "embed/embedded_engine.h"
#include "stemma/c_events.h"
#include "stemma/c_loans.h"
#include "stemma/c_tenants.h"
#include "stemma/c_windows.h"

namespace stemma {

namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
using Outcomes = std::vector<std::pair<stemma_status, stemma_status>>;

}  // namespace

Outcomes EmbeddedEngine::wrong_calls_of_cache() {
  const auto open = any_open();
  if (!open.has_value()) return {};
  const std::size_t at = *open;
  const std::int32_t ns = names_[at].back();
  const Text tokens = random_text(plan_.namespaces[at]);
  const Text long_text(static_cast<std::size_t>(plan_.cache.context_tokens_max) + 1, 0);
  const std::size_t count = tokens.size();
  const Family family = {1};
  const Digest digest = plan_.namespaces[0].digest;
  stemma_sequence* none = nullptr;
  std::int64_t number = -1;
  std::int32_t id = -1;
  const std::int32_t* part = nullptr;
  stemma_sequence* const nobody = nullptr;
  const std::int64_t one = 1;
  const auto ignore_quota = [](void*, const std::uint8_t*, std::int64_t, std::int64_t) {};
  Outcomes told = {
      {stemma_begin(cache_, -1, tokens.data(), count, &none), STEMMA_INVALID_ARGUMENT},
      {stemma_begin(cache_, INT32_MAX, tokens.data(), count, &none), STEMMA_INVALID_ARGUMENT},
      {stemma_begin(cache_, ns, tokens.data(), 0, &none), STEMMA_INVALID_ARGUMENT},
      {stemma_begin(cache_, ns, nullptr, count, &none), STEMMA_INVALID_ARGUMENT},
      {stemma_begin(cache_, ns, long_text.data(), long_text.size(), &none), STEMMA_TOO_LARGE},
      {stemma_begin(cache_, ns, tokens.data(), count, nullptr), STEMMA_INVALID_ARGUMENT},
      {stemma_begin(nullptr, ns, tokens.data(), count, &none), STEMMA_INVALID_ARGUMENT},
      {stemma_probe(cache_, ns, long_text.data(), long_text.size(), &number), STEMMA_TOO_LARGE},
      {stemma_probe(cache_, ns, tokens.data(), count, nullptr), STEMMA_INVALID_ARGUMENT},
      {stemma_promote(cache_, ns, long_text.data(), long_text.size(), &number), STEMMA_TOO_LARGE},
      {stemma_want(cache_, -7, tokens.data(), count, 1), STEMMA_INVALID_ARGUMENT},
      {stemma_want(cache_, ns, tokens.data(), SIZE_MAX, 1), STEMMA_INVALID_ARGUMENT},
      {stemma_evict(cache_, -1, &number), STEMMA_INVALID_ARGUMENT},
      {stemma_evict(cache_, kLeast, &number), STEMMA_INVALID_ARGUMENT},
      {stemma_purge(cache_, nullptr, 1), STEMMA_INVALID_ARGUMENT},
      {stemma_purge(cache_, family.data(), SIZE_MAX), STEMMA_INVALID_ARGUMENT},
      {stemma_step_retire(cache_, -1), STEMMA_INVALID_ARGUMENT},
      {stemma_step_retire(cache_, kMost), STEMMA_INVALID_ARGUMENT},
      {stemma_step_begin(cache_, nullptr), STEMMA_INVALID_ARGUMENT},
      {stemma_namespace_close(cache_, -1), STEMMA_INVALID_ARGUMENT},
      {stemma_namespace_close(cache_, 12'345), STEMMA_INVALID_ARGUMENT},
      {stemma_namespace_open(cache_, nullptr, &id), STEMMA_INVALID_ARGUMENT},
      {stemma_namespace_open_behind(cache_, digest.data(), digest.data(), tokens.data(), 0, &id),
       STEMMA_INVALID_ARGUMENT},
      {stemma_namespace_open_behind(cache_, digest.data(), digest.data(), long_text.data(),
                                    long_text.size(), &id),
       STEMMA_TOO_LARGE},
      {stemma_promotion_release(cache_, 1 << 30), STEMMA_INVALID_ARGUMENT},
      {stemma_worth_waiting(cache_, -1), STEMMA_INVALID_ARGUMENT},
      {stemma_settle(cache_, -1), STEMMA_INVALID_ARGUMENT},
      {stemma_wait_transfers(cache_, kLeast), STEMMA_INVALID_ARGUMENT},
      {stemma_set_quota(cache_, family.data(), -1), STEMMA_INVALID_ARGUMENT},
      {stemma_set_quota(cache_, family.data(), plan_.cache.pages + 1), STEMMA_INVALID_ARGUMENT},
      {stemma_set_quota(cache_, nullptr, 0), STEMMA_INVALID_ARGUMENT},
      {stemma_quotas(cache_, 2, ignore_quota, nullptr), STEMMA_INVALID_ARGUMENT},
      {stemma_quotas(cache_, STEMMA_DEVICE, nullptr, nullptr), STEMMA_INVALID_ARGUMENT},
      {stemma_drain_events(cache_, nullptr, nullptr), STEMMA_INVALID_ARGUMENT},
      {stemma_batch_pages(cache_, &nobody, &one, 1, &part, &part, &part), STEMMA_INVALID_ARGUMENT},
      {stemma_batch_pages(cache_, nullptr, nullptr, SIZE_MAX, &part, &part, &part),
       STEMMA_INVALID_ARGUMENT},
      {stemma_end_loans(cache_, nullptr), STEMMA_INVALID_ARGUMENT},
      {stemma_cache_stats(cache_, nullptr), STEMMA_INVALID_ARGUMENT},
      {stemma_metrics(cache_, nullptr, nullptr), STEMMA_INVALID_ARGUMENT},
  };
  return told;
}

// What may not happen while a step is in flight, or while pages are lent.
Outcomes EmbeddedEngine::calls_out_of_time() {
  const Family family = {1};
  std::int64_t number = -1;
  std::int32_t whole = -1;
  Outcomes told;
  if (!steps_.empty()) {
    told.emplace_back(stemma_evict(cache_, 1, &number), STEMMA_INVALID_ARGUMENT);
    told.emplace_back(stemma_purge(cache_, family.data(), 1), STEMMA_INVALID_ARGUMENT);
    told.emplace_back(stemma_settle(cache_, 1), STEMMA_INVALID_ARGUMENT);
    told.emplace_back(stemma_end_loans(cache_, &whole), STEMMA_INVALID_ARGUMENT);
  }
  if (lending()) {
    told.emplace_back(stemma_wait_layer(cache_, -1), STEMMA_INVALID_ARGUMENT);
    told.emplace_back(stemma_wait_layer(cache_, plan_.pool.layers), STEMMA_INVALID_ARGUMENT);
    told.emplace_back(stemma_settle(cache_, 1), STEMMA_INVALID_ARGUMENT);
    told.emplace_back(stemma_purge(cache_, family.data(), 1), STEMMA_INVALID_ARGUMENT);
  }
  return told;
}

Outcomes EmbeddedEngine::wrong_calls_of(Live& live) {
  stemma_sequence* const handle = live.handle;
  const std::int64_t capacity = stemma_capacity_tokens(handle);
  const Text text(static_cast<std::size_t>(capacity) + 1, plan_.alphabet[0]);
  stemma_sequence* none = nullptr;
  std::int32_t from = -1;
  std::int32_t to = -1;
  std::int64_t number = -1;
  const std::int32_t* part = nullptr;
  stemma_forked_tail tail = {};
  const std::int64_t too_many = capacity + 1;
  Outcomes told = {
      {stemma_reserve(handle, -1), STEMMA_INVALID_ARGUMENT},
      {stemma_reserve(handle, kLeast), STEMMA_INVALID_ARGUMENT},
      {stemma_reserve(handle, plan_.cache.context_tokens_max + 1), STEMMA_TOO_LARGE},
      {stemma_reserve(handle, kMost), STEMMA_TOO_LARGE},
      {stemma_commit(handle, text.data(), text.size()), STEMMA_INVALID_ARGUMENT},
      {stemma_commit(handle, nullptr, 1), STEMMA_INVALID_ARGUMENT},
      {stemma_commit(handle, text.data(), SIZE_MAX), STEMMA_INVALID_ARGUMENT},
      {stemma_finish(handle, text.data(), text.size()), STEMMA_INVALID_ARGUMENT},
      {stemma_set_retention(handle, 3), STEMMA_INVALID_ARGUMENT},
      {stemma_set_retention(handle, -1), STEMMA_INVALID_ARGUMENT},
      {stemma_lend(handle, text.data(), 1, 1 << 30, &number), STEMMA_INVALID_ARGUMENT},
      {stemma_batch_pages(cache_, &handle, &too_many, 1, &part, &part, &part),
       STEMMA_INVALID_ARGUMENT},
      {stemma_advance(handle, too_many), STEMMA_INVALID_ARGUMENT},
      {stemma_advance(handle, -1), STEMMA_INVALID_ARGUMENT},
      {stemma_fork_windowed(handle, 1, &none, &tail), STEMMA_INVALID_ARGUMENT},
      {stemma_windowed_pages(handle, -1, &from, 1), STEMMA_INVALID_ARGUMENT},
  };
  if (plan_.has_window()) {
    told.emplace_back(stemma_fork(handle, 0, &none, &from, &to), STEMMA_INVALID_ARGUMENT);
  } else {
    const auto why = plan_.shares() || live.lent > 0 ? STEMMA_INVALID_ARGUMENT : STEMMA_UNSUPPORTED;
    told.emplace_back(stemma_fork(handle, too_many, &none, &from, &to), why);
    told.emplace_back(stemma_fork(handle, -1, &none, &from, &to), why);
    told.emplace_back(stemma_windowed_pages(handle, 0, &from, 1), STEMMA_INVALID_ARGUMENT);
  }
  if (live.lent > 0) {
    told.emplace_back(stemma_commit(handle, text.data(), 0), STEMMA_INVALID_ARGUMENT);
    told.emplace_back(stemma_finish(handle, text.data(), 0), STEMMA_INVALID_ARGUMENT);
    told.emplace_back(stemma_advance(handle, 0), STEMMA_INVALID_ARGUMENT);
  }
  return told;
}

Outcomes EmbeddedEngine::wrong_calls_of_pool() {
  const stemma_pool_options& pool = plan_.pool;
  const std::int64_t stride = pool.heads * pool.head_dim;
  const std::vector<float> row(static_cast<std::size_t>(4 * stride), 1);
  const void* const v = pool.kind == STEMMA_MHA ? row.data() : nullptr;
  const void* const not_v = pool.kind == STEMMA_MHA ? nullptr : row.data();
  const std::int64_t slot = 0;
  const auto store = [&](std::int64_t layer, std::int64_t at, std::int32_t dtype,
                         std::int64_t row_stride) {
    const std::int64_t slots[] = {at, at};
    return stemma_pool_store(pool_, layer, slots, 2, row.data(), v, dtype, row_stride);
  };
  stemma_layer view = {};
  Outcomes told = {
      {store(-1, 0, STEMMA_F32, stride), STEMMA_INVALID_ARGUMENT},
      {store(pool.layers, 0, STEMMA_F32, stride), STEMMA_INVALID_ARGUMENT},
      {store(0, -1, STEMMA_F32, stride), STEMMA_INVALID_ARGUMENT},
      {store(0, kLeast, STEMMA_F32, stride), STEMMA_INVALID_ARGUMENT},
      {store(0, kMost, STEMMA_F32, stride), STEMMA_INVALID_ARGUMENT},
      {store(0, pool.pages * pool.page_size, STEMMA_F32, stride), STEMMA_INVALID_ARGUMENT},
      {store(0, 0, -1, stride), STEMMA_INVALID_ARGUMENT},
      {store(0, 0, 6, stride), STEMMA_INVALID_ARGUMENT},
      {store(0, 0, STEMMA_F32, kMost), STEMMA_INVALID_ARGUMENT},
      {store(0, 0, STEMMA_F32, kLeast), STEMMA_INVALID_ARGUMENT},
      {store(0, 0, STEMMA_F32, -1), STEMMA_INVALID_ARGUMENT},
      {store(0, 0, STEMMA_F32, stride - 1), STEMMA_INVALID_ARGUMENT},
      {stemma_pool_store(pool_, 0, &slot, 1, row.data(), not_v, STEMMA_F32, stride),
       STEMMA_INVALID_ARGUMENT},
      {stemma_pool_store(pool_, 0, nullptr, 1, row.data(), v, STEMMA_F32, stride),
       STEMMA_INVALID_ARGUMENT},
      {stemma_pool_store(pool_, 0, &slot, 1, nullptr, v, STEMMA_F32, stride),
       STEMMA_INVALID_ARGUMENT},
      {stemma_pool_layer(pool_, 0, &view), STEMMA_INVALID_ARGUMENT},
      {stemma_pool_layer(pool_, pool.layers, &view), STEMMA_INVALID_ARGUMENT},
  };
  return told;
}

void EmbeddedEngine::ask_wrongly() {
  any_open();
  const std::string before = fingerprint();
  Outcomes told = wrong_calls_of_cache();
  const Outcomes early = calls_out_of_time();
  told.insert(told.end(), early.begin(), early.end());
  if (Live* const live = any_live()) {
    const Outcomes more = wrong_calls_of(*live);
    told.insert(told.end(), more.begin(), more.end());
  }
  const Outcomes more = wrong_calls_of_pool();
  told.insert(told.end(), more.begin(), more.end());
  for (std::size_t i = 0; i < told.size(); ++i) {
    ASSERT_EQ(told[i].first, told[i].second)
        << "wrong call " << i << " of " << told.size() << ": " << stemma_last_error();
  }
  ASSERT_EQ(fingerprint(), before) << "nothing has changed";
}

}  // namespace stemma
