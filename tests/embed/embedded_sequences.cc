// Calls of sequences and of the namespaces that they begin in.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "embed/embedded_engine.h"
#include "stemma/c_tenants.h"
#include "stemma/c_windows.h"

namespace stemma {

EmbeddedEngine::Live* EmbeddedEngine::any_live() {
  if (live_.empty()) return nullptr;
  return live_[static_cast<std::size_t>(prng_.below(std::ssize(live_)))].get();
}

EmbeddedEngine::Live* EmbeddedEngine::any_unlent() {
  Live* const live = any_live();
  return live == nullptr || live->lent > 0 ? nullptr : live;
}

Text EmbeddedEngine::random_text(const KnownNamespace& known) {
  Text tokens = known.begin;
  const std::int64_t more = 1 + prng_.below(plan_.cache.context_tokens_max);
  while (std::ssize(tokens) < std::ssize(known.begin) + more) {
    tokens.push_back(plan_.alphabet[prng_.below(12) == 0 ? 1 : 0]);
  }
  const bool part = prng_.below(8) == 0;  // of the shared beginning, maybe
  const std::int64_t tokens_max =
      part ? 1 + prng_.below(plan_.cache.context_tokens_max) : plan_.cache.context_tokens_max;
  tokens.resize(static_cast<std::size_t>(std::min<std::int64_t>(std::ssize(tokens), tokens_max)));
  return tokens;
}

// A known namespace that is open, opened if none is; nullopt: none can be.
std::optional<std::size_t> EmbeddedEngine::any_open() {
  const auto first = static_cast<std::size_t>(prng_.below(std::ssize(names_)));
  for (const bool opens : {false, true}) {
    for (std::size_t i = 0; i < names_.size(); ++i) {
      const std::size_t at = (first + i) % names_.size();
      if (opens) try_open(at);
      if (!names_[at].empty()) return at;
    }
  }
  return std::nullopt;
}

void EmbeddedEngine::open_namespace() {
  try_open(static_cast<std::size_t>(prng_.below(std::ssize(names_))));
}

void EmbeddedEngine::try_open(std::size_t at) {
  const KnownNamespace& known = plan_.namespaces[at];
  std::int32_t ns = -1;
  const auto status =
      known.shared.has_value()
          ? stemma_namespace_open_behind(cache_, known.digest.data(), known.shared->data(),
                                         known.begin.data(), known.begin.size(), &ns)
          : stemma_namespace_open(cache_, known.digest.data(), &ns);
  if (status == STEMMA_NO_NAMESPACE) {
    ++tally_["no_namespace"];
    ASSERT_TRUE(names_are_short());
    ASSERT_TRUE(names_[at].empty());
    return;
  }
  ASSERT_EQ(status, STEMMA_OK) << stemma_last_error();
  for (const std::int32_t same : names_[at])
    ASSERT_EQ(same, ns) << "the same as long as it is open";
  names_[at].push_back(ns);
}

void EmbeddedEngine::close_namespace() {
  const auto at = static_cast<std::size_t>(prng_.below(std::ssize(names_)));
  if (names_[at].empty()) return;
  ASSERT_EQ(stemma_namespace_close(cache_, names_[at].back()), STEMMA_OK);
  names_[at].pop_back();
}

void EmbeddedEngine::begin() {
  const auto open = any_open();
  if (open.has_value()) begin_with(*open, random_text(plan_.namespaces[*open]));
}

void EmbeddedEngine::begin_with(std::size_t at, const Text& tokens) {
  const KnownNamespace& known = plan_.namespaces[at];
  auto live = std::make_unique<Live>();
  live->known = at;
  live->root = root_of(known.shared.value_or(known.digest));
  live->own_root = own_root_of(known);
  for (const std::int32_t token : tokens) append(*live, token);
  const std::int32_t ns = names_[at].back();
  std::int64_t probed = -1;
  ASSERT_EQ(stemma_probe(cache_, ns, tokens.data(), tokens.size(), &probed), STEMMA_OK)
      << stemma_last_error();
  const std::string before = std::ssize(live_) < plan_.cache.requests_max ? "" : fingerprint();
  const auto status = stemma_begin(cache_, ns, tokens.data(), tokens.size(), &live->handle);
  if (std::ssize(live_) == plan_.cache.requests_max) {
    ASSERT_EQ(status, STEMMA_NO_ROW);
    ASSERT_EQ(fingerprint(), before) << "nothing has changed";
    return;
  }
  ASSERT_EQ(status, STEMMA_OK) << stemma_last_error();
  live->computed = stemma_cached_tokens(live->handle);
  ASSERT_EQ(live->computed, probed);
  ASSERT_EQ(live->computed, stemma_published_tokens(live->handle));
  ASSERT_EQ(live->computed, stemma_capacity_tokens(live->handle));
  const std::int64_t published = published_of(live->names, live->size() - 1);
  ASSERT_LE(live->computed, published) << "found, and never published";
  const bool loses = names_are_short() || plan_.has_window() || plan_.below != Below::kNothing ||
                     last_evicted_ > 0;
  if (!loses) {
    ASSERT_EQ(live->computed, published) << "published, and not found";
  }
  ++tally_[live->computed > 0 ? "begin_hit" : "begin_miss"];
  live_.push_back(std::move(live));
}

void EmbeddedEngine::store_rows(Live& live, std::int64_t end) {
  const std::int64_t page = plan_.pool.page_size;
  std::vector<std::int32_t> windowed;
  if (plan_.has_window()) windowed = windowed_row(live, live.computed);
  for (; live.computed < end; ++live.computed) {
    const std::uint64_t name = live.names[static_cast<std::size_t>(live.computed)];
    const std::int64_t at = slot(live, live.computed);
    for (std::int64_t layer = 0; layer < plan_.pool.layers; ++layer) {
      ledger_.store(pool_, layer, at, name);
    }
    if (!plan_.has_window()) continue;
    const std::int32_t of = windowed[static_cast<std::size_t>(live.computed / page)];
    ASSERT_GE(of, 0) << "what is computed has a windowed page";
    for (std::int64_t layer = 0; layer < plan_.windowed_pool.layers; ++layer) {
      windowed_ledger_->store(windowed_pool_, layer, of * page + live.computed % page,
                              name ^ kWindowedSalt);
    }
  }
}

void EmbeddedEngine::compute() {
  Live* const live = any_live();
  if (live == nullptr || live->waits) return;
  const std::int64_t page = plan_.pool.page_size;
  const std::int64_t chunk =
      prng_.below(2) == 0 ? plan_.cache.context_tokens_max : 1 + prng_.below(2 * page + 2);
  const std::int64_t end = std::min(live->computed + chunk,
                                    prng_.below(3) == 0 ? plan_.cache.context_tokens_max
                                                        : std::max(live->size(), live->computed));
  if (end == live->computed) return;
  const std::int64_t capacity = stemma_capacity_tokens(live->handle);
  const std::int64_t wanted = std::max<std::int64_t>(0, (end - capacity + page - 1) / page);
  const stemma_stats before = stats();
  const std::string was = fingerprint();
  const auto status = stemma_reserve(live->handle, end);
  const std::int64_t gettable = steps_.empty() ? before.available_pages : before.free_pages;
  if (status == STEMMA_NO_PAGES) {
    ASSERT_GT(wanted, 0);
    if (!plan_.has_window()) {
      ASSERT_GT(wanted, gettable);
    }
    ASSERT_EQ(fingerprint(), was) << "nothing has changed";
    ++tally_["no_pages"];
    return;
  }
  ASSERT_EQ(status, STEMMA_OK) << stemma_last_error();
  ASSERT_LE(wanted, gettable);
  ASSERT_GE(stemma_capacity_tokens(live->handle), end);
  if (prng_.below(10) == 0) return;  // it only has room
  const Text& begin = plan_.namespaces[live->known].begin;
  while (live->size() < end) {
    const bool begins = live->size() < std::ssize(begin);
    append(*live,
           begins ? begin[live->tokens.size()] : plan_.alphabet[prng_.below(4) == 0 ? 1 : 0]);
  }
  store_rows(*live, end);
}

void EmbeddedEngine::commit() {
  Live* const live = any_unlent();
  if (live == nullptr) return;
  const std::int64_t count = prng_.below(4) == 0 ? prng_.below(live->computed + 1) : live->computed;
  note_published(*live, count);
  ASSERT_EQ(stemma_commit(live->handle, live->tokens.data(), static_cast<std::size_t>(count)),
            STEMMA_OK)
      << stemma_last_error();
  const std::int64_t published = stemma_published_tokens(live->handle);
  if (plan_.shares() && live->publishes) {
    ASSERT_GE(published, count - count % plan_.pool.page_size);
  }
}

void EmbeddedEngine::finish() {
  Live* const live = any_unlent();
  if (live == nullptr) return;
  const std::int64_t count = prng_.below(4) == 0 ? prng_.below(live->computed + 1) : live->computed;
  note_published(*live, count);
  ASSERT_EQ(stemma_finish(live->handle, live->tokens.data(), static_cast<std::size_t>(count)),
            STEMMA_OK)
      << stemma_last_error();
  std::erase_if(live_, [live](const auto& other) { return other.get() == live; });
}

void EmbeddedEngine::release() {
  Live* const live = any_live();
  if (live == nullptr) return;
  stemma_release(live->handle);
  std::erase(lent_, live);
  std::erase_if(live_, [live](const auto& other) { return other.get() == live; });
}

void EmbeddedEngine::copy_page(stemma_pool* pool, RowLedger& ledger, const Live& live,
                               std::int64_t from, std::int64_t to, std::uint64_t salt) {
  if (from < 0) return;
  const std::int64_t page = plan_.pool.page_size;
  const std::int64_t first = live.computed - live.computed % page;
  for (std::int64_t layer = 0; layer < ledger.options().layers; ++layer) {
    const stemma_layer rows = view(pool, layer);
    for (std::int64_t at = first; at < live.computed; ++at) {
      const std::uint64_t name = live.names[static_cast<std::size_t>(at)] ^ salt;
      if (salt == 0) {
        ASSERT_EQ(row_at(rows, element_bytes_of(ledger.options().dtype), from * page + at % page),
                  ledger.bytes(name, layer));
      }
      ledger.store(pool, layer, to * page + at % page, name);
    }
  }
}

void EmbeddedEngine::fork() {
  Live* const live = any_unlent();
  if (live == nullptr || !steps_.empty() || !plan_.shares()) return;
  note_published(*live, live->computed);
  ASSERT_EQ(
      stemma_commit(live->handle, live->tokens.data(), static_cast<std::size_t>(live->computed)),
      STEMMA_OK);
  if (live->publishes && stemma_published_tokens(live->handle) !=
                             live->computed - live->computed % plan_.pool.page_size) {
    return;  // more was published than it has computed of them
  }
  auto forked = std::make_unique<Live>(*live);
  stemma_forked_tail tail = {
      .struct_size = sizeof(tail), .from = -1, .to = -1, .windowed_from = -1, .windowed_to = -1};
  const std::string before = fingerprint();
  const stemma_stats then = stats();
  const auto status =
      plan_.has_window()
          ? stemma_fork_windowed(live->handle, live->computed, &forked->handle, &tail)
          : stemma_fork(live->handle, live->computed, &forked->handle, &tail.from, &tail.to);
  const bool amid = live->computed % plan_.pool.page_size != 0;
  if (status != STEMMA_OK) {
    ASSERT_EQ(fingerprint(), before) << "nothing has changed";
    ++tally_["fork_refused"];
    if (std::ssize(live_) == plan_.cache.requests_max) {
      ASSERT_EQ(status, STEMMA_NO_ROW) << stemma_last_error();
      return;
    }
    ASSERT_EQ(status, STEMMA_NO_PAGES) << stemma_last_error();
    const bool short_of_pages = amid && then.available_pages == 0;
    ASSERT_TRUE(!live->publishes || plan_.has_window() || short_of_pages);
    return;
  }
  ++tally_["fork"];
  ASSERT_TRUE(live->publishes);
  ASSERT_EQ(tail.from >= 0, amid);
  ASSERT_EQ(tail.to >= 0, amid);
  ASSERT_EQ(stemma_cached_tokens(forked->handle),
            live->computed - live->computed % plan_.pool.page_size);
  copy_page(pool_, ledger_, *live, tail.from, tail.to, 0);
  if (plan_.has_window()) {
    copy_page(windowed_pool_, *windowed_ledger_, *live, tail.windowed_from, tail.windowed_to,
              kWindowedSalt);
  }
  live_.push_back(std::move(forked));
}

void EmbeddedEngine::advance() {
  Live* const live = any_unlent();
  if (live == nullptr) return;
  ASSERT_EQ(stemma_advance(live->handle, live->computed), STEMMA_OK) << stemma_last_error();
}

void EmbeddedEngine::adopt() {
  Live* const live = any_unlent();
  if (live == nullptr) return;
  note_published(*live, live->computed);
  const std::int64_t computed = cache_->kv->adopt(live->handle->held, live->tokens, live->computed);
  ASSERT_GE(computed, live->computed);
  ASSERT_LE(computed, std::max(live->computed, live->size() - 1));
  if (computed > live->computed) ++tally_["adopt"];
  live->computed = computed;
}

}  // namespace stemma
