// Calls that are no sequence's own: what is forgotten, what moves between tiers, steps in flight,
// and what is told.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "cache/audit_hold.h"
#include "embed/embedded_engine.h"
#include "prefix/page_key.h"
#include "prefix/tree_listing.h"
#include "stemma/c_events.h"
#include "stemma/c_loans.h"
#include "stemma/c_tenants.h"

namespace stemma {

// The last page of what is found of a text is wrong.
void EmbeddedEngine::quarantine() {
  if (!steps_.empty() || lending() || !plan_.shares()) return;
  KvCache& kv = *cache_->kv;
  const auto open = any_open();
  if (!open.has_value()) return;
  const std::size_t at = *open;
  const KnownNamespace& known = plan_.namespaces[at];
  const Text tokens = random_text(known);
  CachedText text;
  {
    const auto found = kv.begin(NamespaceId(names_[at].back()), tokens);
    if (!found.has_value() || found->published_tokens() == 0) return;
    kv.copy_text(*found, text);
  }
  const std::int64_t page = plan_.pool.page_size;
  const std::int64_t end = page * (1 + prng_.below(std::ssize(text.tokens) / page));
  AuditRow row;
  text.tokens.resize(static_cast<std::size_t>(end));
  if (!kv.try_hold(text, row).has_value()) return;
  kv.quarantine(text, end);
  ++tally_["quarantine"];
  purge_unconfirmed_ = true;
  Live wrong;
  wrong.known = at;
  wrong.root = root_of(known.shared.value_or(known.digest));
  wrong.own_root = own_root_of(known);
  for (const std::int32_t token : std::span(text.tokens).first(text.tokens.size() - 1)) {
    append(wrong, token);
  }
  ++wrong_[base_name(wrong, text.tokens.back())];
  const Digest& digest =
      known.shared.has_value() && end <= std::ssize(known.begin) ? *known.shared : known.digest;
  const bool in_shared = !known.shared.has_value() || end <= std::ssize(known.begin);
  for (std::size_t i = 0; in_shared && i < plan_.namespaces.size(); ++i) {
    const KnownNamespace& behind = plan_.namespaces[i];
    if (behind.shared == digest && std::ssize(behind.begin) >= end &&
        std::equal(text.tokens.begin(), text.tokens.end(), behind.begin.begin())) {
      ++wrong_begins_[i];
    }
  }
  // Who holds such pages is given up, and who has computed from them.
  std::erase_if(live_, [&](const auto& live) {
    const std::int64_t tokens_alike = std::mismatch(live->tokens.begin(), live->tokens.end(),
                                                    text.tokens.begin(), text.tokens.end())
                                          .first -
                                      live->tokens.begin();
    const bool goes = kv.is_quarantined(live->handle->held) || tokens_alike >= end;
    if (goes) stemma_release(live->handle);
    return goes;
  });
}

void EmbeddedEngine::prefetch() {
  const auto open = any_open();
  if (!open.has_value()) return;
  const std::size_t at = *open;
  const Text tokens = random_text(plan_.namespaces[at]);
  static_cast<void>(cache_->kv->try_prefetch(NamespaceId(names_[at].back()), tokens));
}

void EmbeddedEngine::ask_in_cpp() {
  KvCache& kv = *cache_->kv;
  const auto open = any_open();
  if (!open.has_value()) return;
  const std::size_t at = *open;
  const NamespaceId ns(names_[at].back());
  const Text tokens = random_text(plan_.namespaces[at]);
  const std::string before = fingerprint();
  const std::int64_t probed = kv.probe(ns, tokens);
  if (plan_.shares()) {
    ASSERT_GE(kv.why_ends(ns, tokens).matched_tokens, probed);
  }
  ASSERT_GE(kv.available_pages_beside(ns, tokens), 0);
  ASSERT_LE(kv.available_pages_beside(ns, tokens), kv.available_pages());
  ASSERT_GE(kv.probe_host(ns, tokens), 0);
  ASSERT_GE(kv.probe_stores(ns, tokens), 0);
  static_cast<void>(kv.can_promote(ns, tokens));
  static_cast<void>(kv.asks_stores(ns));
  static_cast<void>(kv.holds());
  static_cast<void>(kv.list_nodes(Tier::kDevice, 5));
  static_cast<void>(kv.list_nodes(Tier::kHost, 5));
  ASSERT_EQ(fingerprint(), before) << "nothing has changed";
  if (prng_.below(3) == 0) kv.keep_free(prng_.below(5));
}

void EmbeddedEngine::evict() {
  if (!steps_.empty()) return;
  const bool loses_all = prng_.below(3) == 0;  // but what lower tiers have
  if (loses_all) settle();
  const stemma_stats before = stats();
  const std::int64_t pages = loses_all ? INT64_MAX : prng_.below(6);
  std::int64_t evicted = -1;
  ASSERT_EQ(stemma_evict(cache_, pages, &evicted), STEMMA_OK) << stemma_last_error();
  const stemma_stats after = stats();
  ASSERT_EQ(evicted, std::min(pages, before.available_pages - before.free_pages));
  ASSERT_EQ(after.free_pages, before.free_pages + evicted);
  ASSERT_EQ(after.evicted_pages, before.evicted_pages + evicted);
}

void EmbeddedEngine::purge() {
  if (!steps_.empty() || lending()) return;
  std::vector<Family> families;
  const std::int64_t count = prng_.below(3);
  for (std::int64_t i = 0; i < count; ++i) {
    families.push_back({static_cast<std::uint8_t>(1 + prng_.below(3))});
  }
  if (prng_.below(2) == 0) settle();
  const std::string before = fingerprint();
  const auto status =
      stemma_purge(cache_, families.empty() ? nullptr : families[0].data(), families.size());
  if (status != STEMMA_OK) {
    ASSERT_EQ(status, STEMMA_TOO_LARGE) << stemma_last_error();
    ASSERT_EQ(fingerprint(), before) << "nothing has changed";
    ++tally_["purge_refused"];
    return;
  }
  ++tally_["purge"];
  purge_unconfirmed_ = true;
  if (families.empty()) families = {{1}, {2}, {3}};
  for (const Family& family : families) ++purges_[family];
  for (const auto& live : live_) {
    const KnownNamespace& known = plan_.namespaces[live->known];
    const auto is_purged = [&](const Digest& digest) {
      return std::find(families.begin(), families.end(), family_bytes(digest)) != families.end();
    };
    if (is_purged(known.digest) || (known.shared.has_value() && is_purged(*known.shared))) {
      live->publishes = false;
    }
  }
  look_everywhere();
}

// Whatever tiers still had of these texts would be found.
void EmbeddedEngine::look_everywhere() {
  for (std::size_t at = 0; at < names_.size(); ++at) {
    if (names_[at].empty()) try_open(at);
    if (names_[at].empty() || ::testing::Test::HasFailure()) continue;
    const Text tokens = random_text(plan_.namespaces[at]);
    promote_with(at, tokens);
    if (::testing::Test::HasFailure()) return;
    begin_with(at, tokens);
    if (::testing::Test::HasFailure()) return;
    check();
    if (prng_.below(2) == 0) release();
  }
}

void EmbeddedEngine::want() {
  if (prng_.below(3) == 0) {
    ASSERT_EQ(stemma_forget_wants(cache_), STEMMA_OK);
    return;
  }
  const auto open = any_open();
  if (!open.has_value()) return;
  const std::size_t at = *open;
  const Text tokens = random_text(plan_.namespaces[at]);
  ASSERT_EQ(stemma_want(cache_, names_[at].back(), tokens.data(), tokens.size(), turn_++),
            STEMMA_OK);
}

void EmbeddedEngine::say_something() {
  Live* const live = any_live();
  if (prng_.below(2) == 0 || live == nullptr) {
    const Family family = {static_cast<std::uint8_t>(1 + prng_.below(3))};
    ASSERT_EQ(stemma_set_quota(cache_, family.data(), prng_.below(plan_.cache.pages + 1)),
              STEMMA_OK);
    return;
  }
  ASSERT_EQ(stemma_set_priority(live->handle, static_cast<std::int32_t>(prng_.below(5)) - 2),
            STEMMA_OK);
  ASSERT_EQ(stemma_set_retention(live->handle, static_cast<std::int32_t>(prng_.below(3))),
            STEMMA_OK);
  if (prng_.below(3) == 0) {
    ASSERT_EQ(stemma_close_session(live->handle), STEMMA_OK);
  }
}

void EmbeddedEngine::begin_step() {
  std::int64_t number = -1;
  const auto status = stemma_step_begin(cache_, &number);
  if (std::ssize(steps_) == 16) {
    ASSERT_EQ(status, STEMMA_INVALID_ARGUMENT);
    return;
  }
  ASSERT_EQ(status, STEMMA_OK);
  Step step = {.number = number, .rows = {}};
  for (const auto& live : live_) {
    for (std::int64_t at = 0; live->lent == 0 && at < live->computed; ++at) {
      step.rows.emplace_back(
          slot(*live, at),
          ledger_.bytes(live->names[static_cast<std::size_t>(at)], plan_.pool.layers - 1));
    }
  }
  steps_.push_back(std::move(step));
}

void EmbeddedEngine::retire_step() {
  if (steps_.empty()) return;
  ASSERT_EQ(stemma_step_retire(cache_, steps_.front().number), STEMMA_OK) << stemma_last_error();
  steps_.erase(steps_.begin());
}

void EmbeddedEngine::poll() {
  if (lending()) {
    ASSERT_EQ(stemma_poll_transfers(cache_), STEMMA_INVALID_ARGUMENT);
    ASSERT_EQ(stemma_wait_transfers(cache_, 1), STEMMA_INVALID_ARGUMENT);
    return;
  }
  if (prng_.below(2) == 0) {
    ASSERT_EQ(stemma_poll_transfers(cache_), STEMMA_OK);
    return;
  }
  ASSERT_GE(stemma_wait_transfers(cache_, prng_.below(3000)), STEMMA_OK);
}

void EmbeddedEngine::promote() {
  const auto open = any_open();
  if (open.has_value()) promote_with(*open, random_text(plan_.namespaces[*open]));
}

void EmbeddedEngine::promote_with(std::size_t at, const Text& tokens) {
  std::int64_t promotion = -1;
  const auto status =
      stemma_promote(cache_, names_[at].back(), tokens.data(), tokens.size(), &promotion);
  ++tally_[status == STEMMA_OK ? "promote" : "promote_nothing"];
  if (status == STEMMA_NOTHING) return;
  ASSERT_EQ(status, STEMMA_OK) << stemma_last_error();
  ASSERT_GE(stemma_worth_waiting(cache_, promotion), 0);
  promotions_.push_back(promotion);
  if (prng_.below(2) == 0 || lending() || !steps_.empty()) return;
  for (int i = 0; i < 15 && stemma_worth_waiting(cache_, promotion) == 1; ++i) {
    ASSERT_GE(stemma_wait_transfers(cache_, 1000), STEMMA_OK);
  }
}

void EmbeddedEngine::release_promotion() {
  if (promotions_.empty()) return;
  const auto at = prng_.below(std::ssize(promotions_));
  const std::int64_t promotion = promotions_[static_cast<std::size_t>(at)];
  ASSERT_GE(stemma_worth_waiting(cache_, promotion), 0);
  ASSERT_EQ(stemma_promotion_release(cache_, promotion), STEMMA_OK) << stemma_last_error();
  promotions_.erase(promotions_.begin() + at);
}

void EmbeddedEngine::settle() {
  if (!steps_.empty() || lending()) return;
  const std::int64_t us_max = prng_.below(4) == 0 ? prng_.below(100) : 30'000;
  ASSERT_EQ(stemma_settle(cache_, us_max), STEMMA_OK) << stemma_last_error();
  ++tally_["settle"];
}

// A request begins before what it waits for is whole.
void EmbeddedEngine::lend() {
  if (plan_.below == Below::kNothing || plan_.has_window() || !steps_.empty()) return;
  if (!lending() && prng_.below(2) == 0) {  // what is there is below alone
    while (!live_.empty()) release();
    settle();
    ASSERT_EQ(stemma_evict(cache_, INT64_MAX, nullptr), STEMMA_OK) << stemma_last_error();
  }
  const std::size_t before = live_.size();
  begin();
  if (live_.size() == before || ::testing::Test::HasFailure()) return;
  Live& live = *live_.back();
  std::int64_t promotion = -1;
  const std::int32_t ns = names_[live.known].back();
  if (stemma_promote(cache_, ns, live.tokens.data(), live.tokens.size(), &promotion) == STEMMA_OK) {
    promotions_.push_back(promotion);
  }
  if (promotions_.empty()) return;
  std::int64_t named = -1;
  const auto status =
      stemma_lend(live.handle, live.tokens.data(), live.tokens.size(), promotions_.back(), &named);
  ASSERT_EQ(status, STEMMA_OK) << stemma_last_error();
  ASSERT_EQ(named, stemma_capacity_tokens(live.handle));
  ASSERT_LE(named, live.size() - 1);
  if (named == live.computed) return;
  ++tally_["lend"];
  live.lent = named - live.computed;
  lent_.push_back(&live);
  lending_ = true;
  for (std::int64_t layer = 0; layer < plan_.pool.layers; ++layer) {
    const auto there = stemma_wait_layer(cache_, layer);
    ASSERT_GE(there, 0) << stemma_last_error();
    if (there == 0) live.waits = true;
  }
  if (!live.waits) live.computed = named;
}

void EmbeddedEngine::end_loans() {
  if (!lending() || !steps_.empty()) return;
  std::int32_t whole = -1;
  ASSERT_EQ(stemma_end_loans(cache_, &whole), STEMMA_OK) << stemma_last_error();
  ++tally_[whole == 1 ? "loan_whole" : "loan_void"];
  lending_ = false;
  for (Live* const live : std::exchange(lent_, {})) {
    live->lent = 0;
    live->waits = false;
    if (whole == 1) {
      ASSERT_GE(live->computed, stemma_published_tokens(live->handle));
      continue;
    }
    live->computed = stemma_published_tokens(live->handle);
    ASSERT_GE(live->computed, stemma_cached_tokens(live->handle));
  }
}

// What the events told so far is what is found.
void EmbeddedEngine::drain_events() {
  if (!plan_.shares()) return;
  if (prng_.below(6) == 0) {
    ASSERT_EQ(stemma_resend_events(cache_), STEMMA_OK);
  }
  const auto take = [](void* context, const stemma_event* event) {
    PrefixEvent told;
    told.kind = static_cast<PrefixEvent::Kind>(event->kind);
    told.keys = {reinterpret_cast<const PageKey*>(event->keys), event->pages};
    if (event->digest != nullptr) told.digest = stemma::digest_of(event->digest);
    if (event->parent != nullptr) {
      told.parent = PageKey();
      std::copy_n(event->parent, 32, told.parent->bytes.begin());
    }
    told.tokens = {event->tokens, event->tokens_count};
    static_cast<EventMirror*>(context)->take(told);
  };
  ASSERT_EQ(stemma_drain_events(cache_, take, mirror_.get()), STEMMA_OK);
  if (plan_.cache.events_pages_max == 0) {
    ASSERT_TRUE(mirror_->pages.empty());
    return;
  }
  // What was purged and is held still lies in the tree, and is not found.
  ASSERT_LE(std::ssize(mirror_->pages) * plan_.pool.page_size, stats().cached_tokens);
  EventMirror anew;
  ASSERT_EQ(stemma_resend_events(cache_), STEMMA_OK);
  ASSERT_EQ(stemma_drain_events(cache_, take, &anew), STEMMA_OK);
  ASSERT_EQ(anew.pages, mirror_->pages);
  if (plan_.has_window()) return;
  const auto open = any_open();
  if (!open.has_value()) return;
  const std::size_t at = *open;
  const KnownNamespace& known = plan_.namespaces[at];
  if (known.shared.has_value()) return;
  const Text tokens = random_text(known);
  std::int64_t probed = -1;
  ASSERT_EQ(stemma_probe(cache_, names_[at].back(), tokens.data(), tokens.size(), &probed),
            STEMMA_OK);
  PageKeyChain chain(stemma::digest_of(known.digest.data()));
  const auto page = static_cast<std::size_t>(plan_.pool.page_size);
  std::size_t end = 0;
  while (end + page < tokens.size() &&
         mirror_->pages.contains(chain.append(std::span(tokens).subspan(end, page)))) {
    end += page;
  }
  ASSERT_EQ(probed, static_cast<std::int64_t>(end)) << "found, and told";
}

void EmbeddedEngine::tell_batch() {
  std::vector<stemma_sequence*> sequences;
  std::vector<std::int64_t> tokens;
  for (const auto& live : live_) {
    if (prng_.below(2) == 0) continue;
    sequences.push_back(live->handle);
    tokens.push_back(prng_.below(stemma_capacity_tokens(live->handle) + 1));
  }
  const std::int32_t* indptr = nullptr;
  const std::int32_t* pages = nullptr;
  const std::int32_t* last = nullptr;
  ASSERT_EQ(stemma_batch_pages(cache_, sequences.data(), tokens.data(), tokens.size(), &indptr,
                               &pages, &last),
            STEMMA_OK)
      << stemma_last_error();
  const std::int64_t page = plan_.pool.page_size;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::int64_t count = (tokens[i] + page - 1) / page;
    ASSERT_EQ(indptr[i + 1] - indptr[i], count);
    const std::int32_t* const row = stemma_pages(sequences[i], nullptr);
    for (std::int64_t at = 0; at < count; ++at) ASSERT_EQ(pages[indptr[i] + at], row[at]);
    if (count > 0) {
      ASSERT_EQ(last[i], tokens[i] - (count - 1) * page);
    }
  }
}

void EmbeddedEngine::call() {
  using Call = void (EmbeddedEngine::*)();
  struct Weighed {
    int weight;
    Call call;
  };
  static constexpr Weighed kCalls[] = {
      {3, &EmbeddedEngine::open_namespace}, {2, &EmbeddedEngine::close_namespace},
      {26, &EmbeddedEngine::begin},         {34, &EmbeddedEngine::compute},
      {12, &EmbeddedEngine::commit},        {26, &EmbeddedEngine::finish},
      {4, &EmbeddedEngine::release},        {5, &EmbeddedEngine::fork},
      {5, &EmbeddedEngine::advance},        {5, &EmbeddedEngine::adopt},
      {2, &EmbeddedEngine::quarantine},     {3, &EmbeddedEngine::prefetch},
      {3, &EmbeddedEngine::ask_in_cpp},     {8, &EmbeddedEngine::evict},
      {1, &EmbeddedEngine::purge},          {3, &EmbeddedEngine::want},
      {3, &EmbeddedEngine::say_something},  {3, &EmbeddedEngine::begin_step},
      {5, &EmbeddedEngine::retire_step},    {12, &EmbeddedEngine::poll},
      {10, &EmbeddedEngine::promote},       {8, &EmbeddedEngine::release_promotion},
      {2, &EmbeddedEngine::settle},         {10, &EmbeddedEngine::lend},
      {8, &EmbeddedEngine::end_loans},      {5, &EmbeddedEngine::drain_events},
      {3, &EmbeddedEngine::tell_batch},     {6, &EmbeddedEngine::ask_wrongly},
  };
  int all = 0;
  for (const Weighed& weighed : kCalls) all += weighed.weight;
  std::int64_t drawn = prng_.below(all);
  for (const Weighed& weighed : kCalls) {
    drawn -= weighed.weight;
    if (drawn < 0) {
      return (this->*weighed.call)();
    }
  }
}

}  // namespace stemma
