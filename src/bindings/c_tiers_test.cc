// Covers lower tiers through the C ABI: pages go down to a store, come back into a cache that has
// never seen them, and are the bytes that were stored. Stores are one that the test has written in
// terms of the callbacks, and the disk's.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/forked_child.h"
#include "base/temp_directory.h"
#include "bindings/c_fixture.h"
#include "bindings/c_handles.h"
#include "stemma/c.h"
#include "stemma/c_windows.h"

namespace stemma {
namespace {

// Frames by key, as a program of another language would keep them.
class FrameMap {
 public:
  stemma_store* open(bool purges = true) {
    const stemma_store_callbacks callbacks = {.struct_size = sizeof(stemma_store_callbacks),
                                              .context = this,
                                              .name = "map",
                                              .lookup = lookup,
                                              .read = read,
                                              .write = write,
                                              .remove = remove,
                                              .purge = purges ? purge : nullptr,
                                              .close = close};
    stemma_store* store = nullptr;
    EXPECT_EQ(stemma_store_open(&callbacks, &store), STEMMA_OK) << stemma_last_error();
    return store;
  }
  std::size_t frames() {
    const std::lock_guard lock(mutex_);
    return frames_.size();
  }
  // One bit in the middle of each frame.
  void damage() {
    const std::lock_guard lock(mutex_);
    for (auto& [key, frame] : frames_) {
      char& byte = frame[frame.size() / 2];
      byte = static_cast<char>(byte ^ 1);
    }
  }
  int closed() const { return closed_; }

 private:
  static FrameMap& of(void* context) { return *static_cast<FrameMap*>(context); }
  static std::string key_of(const std::uint8_t* key) {
    return {reinterpret_cast<const char*>(key), 32};
  }
  static std::int64_t lookup(void* context, const std::uint8_t* keys, std::size_t count,
                             std::int64_t) {
    const std::lock_guard lock(of(context).mutex_);
    std::size_t found = 0;
    while (found < count && of(context).frames_.contains(key_of(keys + 32 * found))) ++found;
    return static_cast<std::int64_t>(found);
  }
  static void read(void* context, stemma_stored_page* pages, std::size_t count, std::int64_t) {
    const std::lock_guard lock(of(context).mutex_);
    for (std::size_t i = 0; i < count; ++i) {
      const auto found = of(context).frames_.find(key_of(pages[i].key));
      const bool there =
          found != of(context).frames_.end() && found->second.size() == pages[i].frame_bytes;
      if (there) std::memcpy(pages[i].frame, found->second.data(), pages[i].frame_bytes);
      pages[i].verdict = there ? 0 : 1;
    }
  }
  static void write(void* context, stemma_stored_page* pages, std::size_t count, std::int64_t) {
    const std::lock_guard lock(of(context).mutex_);
    for (std::size_t i = 0; i < count; ++i) {
      of(context).frames_.try_emplace(
          key_of(pages[i].key), static_cast<const char*>(pages[i].frame), pages[i].frame_bytes);
      pages[i].verdict = 0;
    }
  }
  static void remove(void* context, stemma_stored_page* pages, std::size_t count, std::int64_t) {
    const std::lock_guard lock(of(context).mutex_);
    for (std::size_t i = 0; i < count; ++i) of(context).frames_.erase(key_of(pages[i].key));
  }
  static std::int64_t purge(void* context, const std::uint8_t*, std::size_t count, std::int64_t) {
    const std::lock_guard lock(of(context).mutex_);
    EXPECT_EQ(count, 1u);
    const auto removed = static_cast<std::int64_t>(of(context).frames_.size());
    of(context).frames_.clear();
    return removed;
  }
  static void close(void* context) { ++of(context).closed_; }

  std::mutex mutex_;
  std::map<std::string, std::string> frames_;
  int closed_ = 0;
};

stemma_pool* open_pool(std::int64_t pages = TieredLife::kTieredPages) {
  const stemma_pool_options options = pool_options(pages);
  stemma_pool* pool = nullptr;
  EXPECT_EQ(stemma_pool_open(&options, &pool), STEMMA_OK) << stemma_last_error();
  return pool;
}

// An engine with a pool, tiers and a cache of its own.
class Engine {
 public:
  explicit Engine(stemma_store* store) : life_(open_pool(), store) {}
  Engine(stemma_store* store, std::int64_t patience_us, const char* purge_file_or_null = nullptr)
      : life_(open_pool(), store, patience_us, purge_file_or_null) {}

  // Computes and publishes: the rows of a token are the token's number.
  void compute(const Text& tokens) {
    stemma_sequence* const sequence = life_.begin(tokens);
    ASSERT_EQ(stemma_reserve(sequence, std::ssize(tokens)), STEMMA_OK);
    const std::vector<std::int64_t> slots = TieredLife::slots_of(sequence, tokens.size());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const std::vector<float> row(8, static_cast<float>(tokens[i]));
      for (std::int64_t layer = 0; layer < 2; ++layer) {
        ASSERT_EQ(stemma_pool_store(life_.pool(), layer, &slots[i], 1, row.data(), row.data(),
                                    STEMMA_F32, 8),
                  STEMMA_OK);
      }
    }
    ASSERT_EQ(stemma_finish(sequence, tokens.data(), tokens.size()), STEMMA_OK);
  }
  // Of the one namespace there is. Returns when the store has confirmed it.
  void purge() { purge({1}); }
  void purge(const std::array<std::uint8_t, 8>& family) {
    ASSERT_EQ(stemma_purge(life_.cache(), family.data(), 1), STEMMA_OK) << stemma_last_error();
    while (stemma_wait_transfers(life_.cache(), 1'000'000) == STEMMA_OK) continue;
  }
  void settle() { life_.settle(); }
  void lose_the_device(std::int64_t pages) { life_.lose_the_device(pages); }

  // Brings up what tiers have, then tells how many tokens need no computing. They are right.
  std::int64_t cached_after_promotion(const Text& tokens) {
    const std::int64_t promotion = life_.promote(tokens);
    if (promotion >= 0) {
      life_.wait_for(promotion);
      EXPECT_EQ(stemma_promotion_release(life_.cache(), promotion), STEMMA_INVALID_ARGUMENT);
    }
    stemma_sequence* const sequence = life_.begin(tokens);
    const std::int64_t cached = stemma_cached_tokens(sequence);
    const auto slots = TieredLife::slots_of(sequence, static_cast<std::size_t>(cached));
    for (std::size_t i = 0; i < slots.size(); ++i) {
      expect_row(slots[i], static_cast<float>(tokens[i]));
    }
    stemma_release(sequence);
    return cached;
  }
  // The same where a step is in flight as the pages come.
  std::int64_t cached_after_promotion_beside_a_step(const Text& tokens) {
    const std::int64_t promotion = life_.promote(tokens);
    std::int64_t step = -1;
    EXPECT_EQ(stemma_step_begin(life_.cache(), &step), STEMMA_OK);
    EXPECT_EQ(stemma_wait_transfers(life_.cache(), 1'000'000), STEMMA_OK);
    EXPECT_EQ(stemma_poll_transfers(life_.cache()), STEMMA_OK);
    EXPECT_EQ(stemma_worth_waiting(life_.cache(), promotion), 1);
    EXPECT_EQ(stemma_step_retire(life_.cache(), step), STEMMA_OK);
    life_.wait_for(promotion);
    return cached_after_promotion(tokens);
  }
  // The same where it is asked for while a step is in flight, and what it needs is to be evicted.
  std::int64_t cached_after_promotion_amid_a_step(const Text& tokens) {
    std::int64_t step = -1;
    EXPECT_EQ(stemma_step_begin(life_.cache(), &step), STEMMA_OK);
    const std::int64_t promotion = life_.promote(tokens);
    EXPECT_GE(promotion, 0);
    EXPECT_EQ(stemma_worth_waiting(life_.cache(), promotion), 1);
    EXPECT_EQ(stemma_poll_transfers(life_.cache()), STEMMA_OK);
    EXPECT_EQ(stemma_step_retire(life_.cache(), step), STEMMA_OK);
    life_.wait_for(promotion);
    return cached_after_promotion(tokens);
  }
  // Two requests ask for one text: each has a hold of its own on what brings it.
  void promote_twice(const Text& tokens) {
    const std::array<std::int64_t, 2> holds = {life_.promote(tokens), life_.promote(tokens)};
    for (const std::int64_t hold : holds) {
      EXPECT_GE(stemma_worth_waiting(life_.cache(), hold), 0);
      EXPECT_EQ(stemma_promotion_release(life_.cache(), hold), STEMMA_OK);
    }
    EXPECT_EQ(stemma_promotion_release(life_.cache(), holds[1]), STEMMA_INVALID_ARGUMENT);
    EXPECT_EQ(stemma_worth_waiting(life_.cache(), holds[1]), STEMMA_INVALID_ARGUMENT);
  }
  std::map<std::string, std::int64_t> metrics() const {
    std::map<std::string, std::int64_t> numbers;
    const auto sink = [](void* context, const char* name, std::int64_t value) {
      (*static_cast<std::map<std::string, std::int64_t>*>(context))[name] = value;
    };
    EXPECT_EQ(stemma_metrics(life_.cache(), sink, &numbers), STEMMA_OK);
    return numbers;
  }

 private:
  void expect_row(std::int64_t slot, float value) const {
    const stemma_layer layer = life_.layer(1);
    const std::int64_t element = TieredLife::element_of(layer, slot);
    EXPECT_EQ(static_cast<const float*>(layer.k)[element], value);
    EXPECT_EQ(static_cast<const float*>(layer.v)[element + 7], value);
  }

  TieredLife life_;
};

Text prompt() {
  return text(1, 25);
}

// One life computes the prompt, and ends when all of it is stored.
void store_prompt(FrameMap& map) {
  Engine engine(map.open());
  engine.compute(prompt());
  engine.settle();
}

TEST(CTiers, AStoreOfTheCallersOwnKeepsPagesBeyondACache) {
  FrameMap map;
  store_prompt(map);
  EXPECT_EQ(map.frames(), 6u);
  EXPECT_EQ(map.closed(), 1);
  Engine next(map.open());
  EXPECT_EQ(next.cached_after_promotion(prompt()), 24);
  EXPECT_TRUE(next.metrics().contains("stemma_transfers_underway"));
}

// Added to a clock's time they would be in the past.
TEST(CTiers, TimesThatMeanForEverAreNotOverAtOnce) {
  FrameMap map;
  {
    Engine engine(map.open(), INT64_MAX);
    engine.compute(prompt());
    engine.settle();
  }
  EXPECT_EQ(map.frames(), 6u);
  Engine next(map.open(), INT64_MAX);
  EXPECT_EQ(next.cached_after_promotion(prompt()), 24);
}

TEST(CTiers, WhatComesUpIsLeftAloneWhileAStepIsInFlight) {
  FrameMap map;
  store_prompt(map);
  Engine next(map.open());
  EXPECT_EQ(next.cached_after_promotion_beside_a_step(prompt()), 24);
}

// Pages that are evicted during a step are not free before it retires.
TEST(CTiers, WhatIsAskedForWhileAStepIsInFlightComesWhenItHasRetired) {
  FrameMap map;
  Engine engine(map.open());
  engine.compute(prompt());
  engine.lose_the_device(6);
  engine.compute(text(100, 16 * kPageSize - 3));  // all pages but one are cached ones
  engine.settle();
  EXPECT_EQ(engine.cached_after_promotion_amid_a_step(prompt()), 24);
}

TEST(CTiers, RequestsOfOneTextReleaseItEachForThemselves) {
  FrameMap map;
  store_prompt(map);
  Engine next(map.open());
  next.promote_twice(prompt());
}

TEST(CTiers, WhatWasPurgedIsFoundInNoTierAnyMore) {
  FrameMap map;
  Engine engine(map.open());
  engine.compute(prompt());
  engine.settle();
  EXPECT_EQ(map.frames(), 6u);
  engine.purge();
  EXPECT_EQ(map.frames(), 0u);
  EXPECT_EQ(engine.cached_after_promotion(prompt()), 0);
}

// It keeps what it has, and other tenants' purges do not wait for it.
TEST(CTiers, AStoreThatCannotBePurgedIsNotUsedForWhatWas) {
  FrameMap map;
  Engine engine(map.open(/*purges=*/false));
  engine.compute(prompt());
  engine.settle();
  engine.purge();
  EXPECT_EQ(map.frames(), 6u);
  EXPECT_EQ(engine.cached_after_promotion(prompt()), 0);
  for (std::uint8_t tenant = 2; tenant < 102; ++tenant) engine.purge({tenant});
}

TEST(CTiers, WhatAStoreWasToForgetOutlivesTheCacheInAPurgeFile) {
  const TempDirectory directory;
  const std::string file = directory.file("purges");
  FrameMap map;
  {
    Engine engine(map.open(/*purges=*/false), 60'000'000, file.c_str());
    engine.compute(prompt());
    engine.settle();
    engine.purge();
  }
  Engine next(map.open(/*purges=*/false), 60'000'000, file.c_str());
  EXPECT_EQ(next.cached_after_promotion(prompt()), 0);
}

TEST(CTiers, FramesThatWereDamagedAreMisses) {
  FrameMap map;
  store_prompt(map);
  map.damage();
  Engine next(map.open());
  EXPECT_EQ(next.cached_after_promotion(prompt()), 0);
}

TEST(CTiers, AStoreWithoutFunctionsKeepsNothing) {
  stemma_store_callbacks none = {};
  none.struct_size = sizeof(none);
  stemma_store* store = nullptr;
  ASSERT_EQ(stemma_store_open(&none, &store), STEMMA_OK);
  Engine engine(store);
  engine.compute(prompt());
  engine.settle();
  EXPECT_EQ(engine.cached_after_promotion(prompt()), 24);  // where it was computed
}

TEST(CTiers, TheDiskKeepsPagesBeyondACache) {
  TempDirectory directory;
  const auto open = [&] {
    stemma_store* store = nullptr;
    EXPECT_EQ(stemma_disk_store_open(directory.path().c_str(), 1 << 26, &store), STEMMA_OK)
        << stemma_last_error();
    return store;
  };
  {
    Engine engine(open());
    engine.compute(prompt());
    engine.settle();
  }
  Engine next(open());
  EXPECT_EQ(next.cached_after_promotion(prompt()), 24);
}

stemma_tiers_options host_memory() {
  stemma_tiers_options options;
  stemma_tiers_options_init(&options, sizeof(options));
  options.host_bytes = 1 << 20;
  return options;
}

TEST(CTiers, WrongStoresAndTiersAreRefused) {
  stemma_store* store = nullptr;
  EXPECT_EQ(stemma_disk_store_open(nullptr, 1 << 26, &store), STEMMA_INVALID_ARGUMENT);
  EXPECT_EQ(stemma_remote_store_open("ftp://host", nullptr, &store), STEMMA_INVALID_ARGUMENT);
  EXPECT_EQ(stemma_remote_store_open("redis://127.0.0.1:1", nullptr, &store), STEMMA_OK);
  stemma_tiers_options options;
  stemma_tiers_options_init(&options, sizeof(options));
  stemma_tiers* tiers = nullptr;
  EXPECT_EQ(stemma_tiers_open(&options, nullptr, &store, 1, &tiers), STEMMA_INVALID_ARGUMENT);
}

TEST(CTiers, OfStoresThatCannotBeNothingIsOpened) {
  stemma_pool* const pool = open_pool(8);
  const stemma_tiers_options options = host_memory();
  FrameMap map;
  const std::array<stemma_store*, 3> stores = {map.open(), nullptr, nullptr};
  stemma_tiers* tiers = nullptr;
  for (const std::size_t count : kNoCounts) {
    EXPECT_EQ(stemma_tiers_open(&options, pool, stores.data(), count, &tiers),
              STEMMA_INVALID_ARGUMENT);
  }
  EXPECT_EQ(map.closed(), 0) << "how many there are is unknown";
  const std::array<stemma_store*, 3> twice = {stores[0], nullptr, stores[0]};
  EXPECT_EQ(stemma_tiers_open(&options, pool, twice.data(), 3, &tiers), STEMMA_INVALID_ARGUMENT);
  EXPECT_EQ(map.closed(), 1) << "it is taken over, as always";
  EXPECT_EQ(tiers, nullptr);
  stemma_pool_close(pool);
}

TEST(CTiers, PackNoPagesThatArePackedAlready) {
  stemma_pool_options shape = pool_options(8);
  stemma_pool* plain = nullptr;
  ASSERT_EQ(stemma_pool_open(&shape, &plain), STEMMA_OK);
  shape.dtype = STEMMA_INT8;
  stemma_pool* packed = nullptr;
  ASSERT_EQ(stemma_pool_open(&shape, &packed), STEMMA_OK);
  stemma_tiers_options options = host_memory();
  stemma_tiers* tiers = nullptr;
  for (const char* codec : {"int8", "int4"}) {
    options.codec = codec;
    EXPECT_EQ(stemma_tiers_open(&options, packed, nullptr, 0, &tiers), STEMMA_INVALID_ARGUMENT);
    EXPECT_EQ(stemma_tiers_open_windowed(&options, plain, packed, nullptr, 0, &tiers),
              STEMMA_INVALID_ARGUMENT);
  }
  options.codec = "plain";
  ASSERT_EQ(stemma_tiers_open(&options, packed, nullptr, 0, &tiers), STEMMA_OK);
  stemma_tiers_close(tiers);
  stemma_pool_close(packed);
  stemma_pool_close(plain);
}

TEST(CTiers, AreClosedInAChildWithoutAWait) {
  std::optional<TieredLife> life;
  life.emplace(open_pool());
  stemma_sequence* const sequence = life->begin(text(1, 9));
  const int answer = in_forked_child([&] {
    stemma_release(sequence);
    life.reset();
    return 0;
  });
  EXPECT_EQ(answer, 0);
  stemma_release(sequence);
  life->settle();
}

TEST(CTiers, ServeNoCacheInAChild) {
  stemma_pool* const pool = open_pool(8);
  const stemma_tiers_options options = host_memory();
  stemma_tiers* tiers = nullptr;
  ASSERT_EQ(stemma_tiers_open(&options, pool, nullptr, 0, &tiers), STEMMA_OK);
  const int answer = in_forked_child([&] {
    stemma_cache_options cache_options;
    stemma_cache_options_init(&cache_options, sizeof(cache_options));
    cache_options.pages = 8;
    cache_options.page_size = kPageSize;
    stemma_cache* cache = nullptr;
    return -stemma_cache_open(&cache_options, tiers, &cache);
  });
  EXPECT_EQ(-answer, STEMMA_UNSUPPORTED);
  stemma_tiers_close(tiers);
  stemma_pool_close(pool);
}

TEST(CTiers, ServeOneCacheAtATimeThatHasThePagesOfThePoolAboveThem) {
  stemma_pool_options shape;
  stemma_pool_options_init(&shape, sizeof(shape));
  shape.layers = shape.heads = 1;
  shape.pages = shape.head_dim = 8;
  stemma_pool* pool = nullptr;
  ASSERT_EQ(stemma_pool_open(&shape, &pool), STEMMA_OK);
  stemma_tiers_options options;
  stemma_tiers_options_init(&options, sizeof(options));
  options.host_bytes = 1 << 20;
  stemma_tiers* tiers = nullptr;
  ASSERT_EQ(stemma_tiers_open(&options, pool, nullptr, 0, &tiers), STEMMA_OK);
  stemma_cache_options cache_options;
  stemma_cache_options_init(&cache_options, sizeof(cache_options));
  cache_options.pages = 9;
  stemma_cache* cache = nullptr;
  EXPECT_EQ(stemma_cache_open(&cache_options, tiers, &cache), STEMMA_INVALID_ARGUMENT);
  // Two caches would hand out the same pages of host memory.
  cache_options.pages = 8;
  ASSERT_EQ(stemma_cache_open(&cache_options, tiers, &cache), STEMMA_OK);
  stemma_cache* second = nullptr;
  EXPECT_EQ(stemma_cache_open(&cache_options, tiers, &second), STEMMA_INVALID_ARGUMENT);
  EXPECT_EQ(second, nullptr);
  stemma_cache_close(cache);
  EXPECT_EQ(stemma_cache_open(&cache_options, tiers, &second), STEMMA_OK);
  stemma_cache_close(second);
  stemma_tiers_close(tiers);
  stemma_pool_close(pool);
}

TEST(CGuard, WhatIsThrownBelowIsAnError) {
  const auto entry = []() -> stemma_status { return std::string().at(1); };
  EXPECT_EQ(guarded(entry), STEMMA_INTERNAL);
  EXPECT_NE(std::string(stemma_last_error()), "");
}

}  // namespace
}  // namespace stemma
