// Opening, closing, and what must hold.
#include "embed/embedded_engine.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "stemma/c_windows.h"

namespace stemma {

EmbeddedEngine::EmbeddedEngine(std::uint64_t seed)
    : prng_(mix64(seed)),
      plan_(seed),
      ledger_(plan_.pool),
      near_(seed + 1, plan_.mischief),
      far_(seed + 2, plan_.mischief) {
  if (plan_.has_window()) windowed_ledger_ = std::make_unique<RowLedger>(plan_.windowed_pool);
  names_.resize(plan_.namespaces.size());
  open();
}

EmbeddedEngine::~EmbeddedEngine() {
  close();
}

void EmbeddedEngine::begin_anew() {
  close();
  open();
}

std::vector<stemma_store*> EmbeddedEngine::open_stores() {
  std::vector<stemma_store*> stores;
  if (plan_.below == Below::kDisk) {
    stemma_store* disk = nullptr;
    const std::string place = directory_.file("disk" + std::to_string(disk_number_));
    EXPECT_EQ(stemma_disk_store_open(place.c_str(), 64 << 20, &disk), STEMMA_OK)
        << stemma_last_error();
    stores.push_back(disk);
  }
  if (plan_.below == Below::kStore || plan_.below == Below::kStores) {
    stores.push_back(near_.open(plan_.stores_can_purge, plan_.stores_can_remove));
  }
  if (plan_.below == Below::kStores) stores.push_back(far_.open(true, true));
  return stores;
}

// Host memory of about so many pages: never less than those that it needs at least.
void EmbeddedEngine::open_tiers() {
  stemma_tiers_options options;
  stemma_tiers_options_init(&options, sizeof(options));
  options.layout = plan_.host_layout;
  options.threads = 2;
  const std::string host_file = directory_.file("host");
  const std::string purge_file = directory_.file("purges");
  if (plan_.keeps_host_file) options.host_file = host_file.c_str();
  if (plan_.keeps_purge_file) options.purge_file = purge_file.c_str();
  const Digest digest = plan_.namespaces[0].digest;
  options.digest = digest.data();
  std::int64_t page_bytes = 1;
  std::int64_t pages = 0;
  while (stemma_pages_for_bytes(&plan_.pool, page_bytes, &pages) != STEMMA_OK) page_bytes *= 2;
  options.host_bytes = plan_.host_pages * page_bytes;
  for (;; options.host_bytes *= 2) {
    const std::vector<stemma_store*> stores = open_stores();
    const auto status =
        plan_.has_window()
            ? stemma_tiers_open_windowed(&options, pool_, windowed_pool_, stores.data(),
                                         stores.size(), &tiers_)
            : stemma_tiers_open(&options, pool_, stores.data(), stores.size(), &tiers_);
    if (status == STEMMA_OK) return;
    ASSERT_EQ(status, STEMMA_INVALID_ARGUMENT) << stemma_last_error();
    ASSERT_TRUE(near_.is_closed() && far_.is_closed()) << "taken over also where it fails";
    ASSERT_LT(options.host_bytes, 1 << 30) << stemma_last_error();
  }
}

void EmbeddedEngine::open() {
  ASSERT_EQ(stemma_pool_open(&plan_.pool, &pool_), STEMMA_OK) << stemma_last_error();
  if (plan_.has_window()) {
    ASSERT_EQ(stemma_pool_open(&plan_.windowed_pool, &windowed_pool_), STEMMA_OK)
        << stemma_last_error();
  }
  if (plan_.below != Below::kNothing) open_tiers();
  ASSERT_EQ(stemma_cache_open(&plan_.cache, tiers_, &cache_), STEMMA_OK) << stemma_last_error();
  if (names_are_short()) take_few_names();
}

// The C ABI has no option for it.
void EmbeddedEngine::take_few_names() {
  KvCacheOptions options = cache_->kv->options();
  options.namespaces_max = plan_.namespaces_max;
  cache_->kv.reset();
  cache_->kv =
      KvCache::open(options, nullptr, tiers_ == nullptr ? nullptr : tiers_->tiers.get()).value();
}

void EmbeddedEngine::close() {
  if (prng_.below(2) == 0) {  // else the cache releases them
    for (const auto& live : live_) stemma_release(live->handle);
  }
  live_.clear();
  lent_.clear();
  lending_ = false;
  promotions_.clear();
  steps_.clear();
  for (auto& names : names_) names.clear();
  mirror_ = std::make_unique<EventMirror>();
  last_evicted_ = 0;
  if (plan_.below == Below::kNothing) published_.clear();
  stemma_cache_close(cache_);
  stemma_tiers_close(tiers_);
  EXPECT_TRUE(near_.is_closed() && far_.is_closed());
  stemma_pool_close(windowed_pool_);
  stemma_pool_close(pool_);
  cache_ = nullptr;
  tiers_ = nullptr;
  windowed_pool_ = nullptr;
  pool_ = nullptr;
  // What stores have not confirmed, the next life may find.
  if (purge_unconfirmed_ && !plan_.keeps_purge_file) {
    near_.clear();
    far_.clear();
    ++disk_number_;
    purge_unconfirmed_ = false;
  }
}

// What a namespace's texts grow from: another number after each purge of its family.
std::uint64_t EmbeddedEngine::root_of(const Digest& digest) const {
  const auto found = purges_.find(family_bytes(digest));
  const std::uint64_t purges = found == purges_.end() ? 0 : found->second;
  return mix64(mix64(digest[0] * 256U + digest[31]) ^ mix64(purges + 77));
}

// The same of what goes on from a shared beginning, which stays where that is purged alone.
std::uint64_t EmbeddedEngine::own_root_of(const KnownNamespace& known) const {
  std::uint64_t root = root_of(known.digest);
  if (!known.shared.has_value()) return root;
  const auto wrong = wrong_begins_.find(static_cast<std::size_t>(&known - &plan_.namespaces[0]));
  if (wrong != wrong_begins_.end()) root = mix64(root ^ wrong->second);
  root = mix64(root ^ (*known.shared)[0] * 256U ^ (*known.shared)[31]);
  for (const std::int32_t token : known.begin) {
    root = mix64(root ^ mix64(static_cast<std::uint64_t>(token) + 1));
  }
  return root;
}

std::uint64_t EmbeddedEngine::base_name(const Live& live, std::int32_t token) const {
  std::uint64_t above = live.names.empty() ? live.root : live.names.back();
  if (live.names.size() == plan_.namespaces[live.known].begin.size()) above = live.own_root;
  return mix64(above ^ mix64(static_cast<std::uint64_t>(token) + 1));
}

// A page that was found to be wrong is another one when it is computed again.
void EmbeddedEngine::append(Live& live, std::int32_t token) const {
  std::uint64_t name = base_name(live, token);
  live.tokens.push_back(token);
  const bool ends_page = live.size() % plan_.pool.page_size == 0;
  const auto wrong = ends_page ? wrong_.find(name) : wrong_.end();
  if (wrong != wrong_.end()) name = mix64(name ^ wrong->second);
  live.names.push_back(name);
}

void EmbeddedEngine::note_published(const Live& live, std::int64_t tokens) {
  if (!plan_.shares() || !live.publishes) return;
  const std::int64_t page = plan_.pool.page_size;
  for (std::int64_t end = page; end <= tokens; end += page) {
    published_.insert(live.names[static_cast<std::size_t>(end - 1)]);
  }
}

std::int64_t EmbeddedEngine::published_of(const std::vector<std::uint64_t>& names,
                                          std::int64_t tokens_max) const {
  const std::int64_t page = plan_.pool.page_size;
  std::int64_t end = 0;
  while (end + page <= tokens_max &&
         published_.contains(names[static_cast<std::size_t>(end + page - 1)])) {
    end += page;
  }
  return end;
}

std::int64_t EmbeddedEngine::slot(const Live& live, std::int64_t position) const {
  std::size_t count = 0;
  const std::int32_t* const pages = stemma_pages(live.handle, &count);
  const std::int64_t page = plan_.pool.page_size;
  EXPECT_LT(position / page, static_cast<std::int64_t>(count));
  return pages[position / page] * page + position % page;
}

stemma_layer EmbeddedEngine::view(stemma_pool* pool, std::int64_t layer) const {
  stemma_layer view = {};
  view.struct_size = sizeof(view);
  EXPECT_EQ(stemma_pool_layer(pool, layer, &view), STEMMA_OK) << stemma_last_error();
  return view;
}

std::vector<std::int32_t> EmbeddedEngine::windowed_row(const Live& live,
                                                       std::int64_t first_token) const {
  std::size_t count = 0;
  stemma_pages(live.handle, &count);
  std::vector<std::int32_t> pages(count);
  EXPECT_EQ(stemma_windowed_pages(live.handle, first_token, pages.data(), count), STEMMA_OK)
      << stemma_last_error();
  return pages;
}

void EmbeddedEngine::check_rows(const Live& live) {
  for (std::int64_t layer = 0; layer < plan_.pool.layers; ++layer) {
    const stemma_layer rows = view(pool_, layer);
    for (std::int64_t at = 0; at < live.computed; ++at) {
      const std::string there = row_at(rows, element_bytes_of(plan_.pool.dtype), slot(live, at));
      ASSERT_EQ(there, ledger_.bytes(live.names[static_cast<std::size_t>(at)], layer))
          << "token " << at << " of " << live.computed << ", layer " << layer << ", cached "
          << stemma_cached_tokens(live.handle) << ", published "
          << stemma_published_tokens(live.handle) << ", namespace " << live.known;
    }
  }
  if (plan_.has_window()) check_window(live);
}

// What the next token looks back to is there.
void EmbeddedEngine::check_window(const Live& live) {
  const std::int64_t page = plan_.pool.page_size;
  const std::vector<std::int32_t> pages = windowed_row(live, live.computed);
  const auto first = std::max<std::int64_t>(0, live.computed - plan_.cache.window_tokens + 1);
  for (std::int64_t layer = 0; layer < plan_.windowed_pool.layers; ++layer) {
    const stemma_layer rows = view(windowed_pool_, layer);
    for (std::int64_t at = first; at < live.computed; ++at) {
      const std::int32_t of = pages[static_cast<std::size_t>(at / page)];
      ASSERT_GE(of, 0) << "token " << at << " of " << live.computed << " has no windowed page";
      const std::string there =
          row_at(rows, element_bytes_of(plan_.windowed_pool.dtype), of * page + at % page);
      ASSERT_EQ(there, windowed_ledger_->bytes(
                           live.names[static_cast<std::size_t>(at)] ^ kWindowedSalt, layer))
          << "token " << at << " of " << live.computed << ", windowed layer " << layer;
    }
  }
}

// What a step reads stays as it is.
void EmbeddedEngine::check_steps() {
  for (const Step& step : steps_) {
    const stemma_layer rows = view(pool_, plan_.pool.layers - 1);
    for (const auto& [slot, row] : step.rows) {
      ASSERT_EQ(row_at(rows, element_bytes_of(plan_.pool.dtype), slot), row)
          << "slot " << slot << " changed beneath step " << step.number;
    }
  }
}

stemma_stats EmbeddedEngine::stats() const {
  stemma_stats stats = {};
  stats.struct_size = sizeof(stats);
  EXPECT_EQ(stemma_cache_stats(cache_, &stats), STEMMA_OK);
  return stats;
}

void EmbeddedEngine::check_stats() {
  const stemma_stats now = stats();
  ASSERT_EQ(now.pages, plan_.cache.pages);
  ASSERT_EQ(now.free_rows, plan_.cache.requests_max - std::ssize(live_));
  ASSERT_GE(now.available_pages, now.free_pages);
  ASSERT_LE(now.available_pages, now.pages);
  ASSERT_LE(now.cached_tokens, now.pages * plan_.pool.page_size);
  ASSERT_LE(now.locked_tokens, now.cached_tokens);
  ASSERT_GE(now.evicted_pages, last_evicted_);
  last_evicted_ = now.evicted_pages;
}

void EmbeddedEngine::check() {
  for (const auto& live : live_) {
    std::size_t count = 0;
    stemma_pages(live->handle, &count);
    ASSERT_EQ(static_cast<std::int64_t>(count) * plan_.pool.page_size,
              stemma_capacity_tokens(live->handle));
    ASSERT_LE(stemma_published_tokens(live->handle), stemma_capacity_tokens(live->handle));
    check_rows(*live);
    if (::testing::Test::HasFailure()) return;
  }
  check_steps();
  check_stats();
  if (lending()) return;  // pages on loan are a copy's
  const auto contradiction = cache_->kv->audit();
  ASSERT_FALSE(contradiction.has_value()) << *contradiction << "\n" << cache_->kv->draw();
}

// All that a caller could see.
std::string EmbeddedEngine::fingerprint() const {
  const stemma_stats now = stats();
  std::string all(reinterpret_cast<const char*>(&now), sizeof(now));
  all += cache_->kv->draw();
  for (const auto& live : live_) {
    std::size_t count = 0;
    const std::int32_t* const pages = stemma_pages(live->handle, &count);
    for (std::size_t i = 0; i < count; ++i) all += std::to_string(pages[i]) + " ";
    all += std::to_string(stemma_published_tokens(live->handle));
  }
  return all;
}

}  // namespace stemma
