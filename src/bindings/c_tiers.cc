// Page stores of callers and lower tiers of the C ABI.
#include <algorithm>
#include <span>
#include <utility>

#include "base/clock.h"
#include "base/thread_count.h"
#include "bindings/c_handles.h"
#include "bindings/callback_store.h"
#include "stemma/c_windows.h"
#include "stemma/embed.h"
#include "tier/guarded_store.h"

namespace stemma {

namespace {

constexpr stemma_tiers_options kTiersDefaults = {.struct_size = sizeof(stemma_tiers_options),
                                                 .host_bytes = 0,
                                                 .host_file = nullptr,
                                                 .digest = nullptr,
                                                 .codec = "plain",
                                                 .layout = STEMMA_PAGE_FIRST,
                                                 .threads = 1,
                                                 .purge_file = nullptr};

constexpr stemma_store_callbacks kNoCallbacks = {.struct_size = sizeof(stemma_store_callbacks),
                                                 .context = nullptr,
                                                 .name = nullptr,
                                                 .lookup = nullptr,
                                                 .read = nullptr,
                                                 .write = nullptr,
                                                 .remove = nullptr,
                                                 .purge = nullptr,
                                                 .close = nullptr};

// Each has a thread of its own.
constexpr std::size_t kCStoresMax = 64;

stemma_status read_tiers(const stemma_tiers_options* given, LowerTierOptions& plan, int& threads) {
  stemma_tiers_options options = kTiersDefaults;
  if (const stemma_status status = read_struct(given, options); status != STEMMA_OK) return status;
  if (!read_enum(options.layout, KvLayout::kPageFirst, plan.host_layout)) {
    return refuse("layout is unknown");
  }
  if (const Status status = check_threads(options.threads); !status.ok()) {
    return fail(status.error());
  }
  threads = options.threads;
  plan.host_bytes = options.host_bytes;
  if (options.host_file != nullptr) plan.host_file = options.host_file;
  if (options.purge_file != nullptr) plan.purge_file = options.purge_file;
  if (options.codec != nullptr) plan.codec = options.codec;
  if (options.digest != nullptr) {
    plan.digest = digest_of(options.digest);
  }
  return STEMMA_OK;
}

// Each of them once. Fewer than they are where one is given twice.
std::vector<std::unique_ptr<PageStore>> take_stores(std::span<stemma_store* const> stores) {
  std::vector<std::unique_ptr<PageStore>> taken;
  for (auto store = stores.begin(); store != stores.end(); ++store) {
    if (std::find(stores.begin(), store, *store) != store) continue;
    const std::unique_ptr<stemma_store> handle(*store);
    if (handle != nullptr) taken.push_back(std::move(handle->store));
  }
  return taken;
}

bool is_given(const stemma_store* store) {
  return store != nullptr;
}

// Of whose pages tiers are asked for.
struct TieredPools {
  stemma_pool* pool;
  stemma_pool* windowed_or_null = nullptr;
  bool has_window = false;
};

// Takes the stores over, whatever comes of it, unless there cannot be so many.
stemma_status open_tiers(const stemma_tiers_options* options, const TieredPools& pools,
                         std::span<stemma_store* const> stores, stemma_tiers** tiers) {
  if (stores.size() > kCStoresMax || (stores.data() == nullptr && !stores.empty())) {
    return refuse("stores, and no more than there can be");
  }
  auto taken = take_stores(stores);
  if (std::ssize(taken) != std::count_if(stores.begin(), stores.end(), is_given)) {
    return refuse("a store is given twice");
  }
  if (pools.pool == nullptr || tiers == nullptr) return refuse("pool and tiers are given");
  KvPool& device = *pools.pool->pool;
  KvPool* windowed = nullptr;
  if (pools.has_window) {
    if (pools.windowed_or_null == nullptr) return refuse("windowed_pool is NULL");
    windowed = pools.windowed_or_null->pool.get();
  }
  LowerTierOptions plan;
  int threads = 1;
  if (const auto status = read_tiers(options, plan, threads); status != STEMMA_OK) return status;
  auto opened = open_lower_tiers(plan, device, std::move(taken), threads, windowed);
  if (!opened.ok()) return fail(opened.error());
  *tiers = std::make_unique<stemma_tiers>(
               stemma_tiers{pools.pool, pools.windowed_or_null, std::move(opened).value()})
               .release();
  return STEMMA_OK;
}

}  // namespace

}  // namespace stemma

stemma_status stemma_store_open(const stemma_store_callbacks* callbacks, stemma_store** store) {
  return stemma::guarded([&] {
    static const stemma::MonotonicClock clock;
    stemma_store_callbacks known = stemma::kNoCallbacks;
    if (const auto status = stemma::read_struct(callbacks, known); status != STEMMA_OK) {
      return status;
    }
    if (store == nullptr) return stemma::refuse("store is NULL");
    auto opened = std::make_unique<stemma::GuardedStore>(
        std::make_unique<stemma::CallbackStore>(known), clock);
    *store = std::make_unique<stemma_store>(stemma_store{std::move(opened)}).release();
    return stemma_status{STEMMA_OK};
  });
}

void stemma_store_close(stemma_store* store) {
  const std::unique_ptr<stemma_store> closed(store);
}

void stemma_tiers_options_init(stemma_tiers_options* options, size_t struct_size) {
  stemma::write_struct(stemma::kTiersDefaults, options, struct_size);
}

stemma_status stemma_tiers_open(const stemma_tiers_options* options, stemma_pool* pool,
                                stemma_store* const* stores, size_t stores_count,
                                stemma_tiers** tiers) {
  return stemma::guarded([&] {
    return stemma::open_tiers(options, {.pool = pool}, {stores, stores_count}, tiers);
  });
}

stemma_status stemma_tiers_open_windowed(const stemma_tiers_options* options, stemma_pool* pool,
                                         stemma_pool* windowed_pool, stemma_store* const* stores,
                                         size_t stores_count, stemma_tiers** tiers) {
  return stemma::guarded([&] {
    return stemma::open_tiers(options, {pool, windowed_pool, true}, {stores, stores_count}, tiers);
  });
}

void stemma_tiers_close(stemma_tiers* tiers) {
  const std::unique_ptr<stemma_tiers> closed(tiers);
}
