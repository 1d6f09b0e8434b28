// I13 with adapters: the tokens and the logits of a request are equal bit for bit whatever was
// cached, however its prompt was chunked, on any number of threads, after host memory and disk, and
// whoever shared its batch: requests of the model alone, of other adapters, and of the same adapter
// loaded twice, which share pages, as no two others do.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "base/temp_directory.h"
#include "engine/logits_recorder.h"
#include "engine/served_model.h"
#include "model/tiny_config.h"
#include "transparency/adapted_model.h"
#include "transparency/families.h"
#include "transparency/served_trial.h"

namespace stemma {
namespace {

// How a run differs from the plainest one.
struct Setting {
  std::string cache = "radix";
  std::int64_t page_size = 16;
  std::int64_t chunk_tokens = 512;
  std::int64_t concurrency = 4;
  int threads = 1;
  std::int64_t kv_bytes = std::int64_t{8} << 20;
  double audit_percent = 0;
  std::vector<std::string> loaded = {"a", "again", "b"};
  std::string disk = {};
};

class AdapterBits : public testing::TestWithParam<std::string_view> {
 protected:
  static bool windowed() { return tiny_model_config(GetParam()).windows.tokens > 0; }

  ServedModelOptions options(const Setting& setting) const {
    ServedModelOptions options = trial_options(model_.path(), setting);
    options.adapters = model_.sources(setting.loaded);
    options.kv_bytes = setting.kv_bytes;
    options.engine.shadow_audit_percent = setting.audit_percent;
    if (!setting.disk.empty()) {
      options.tiers.disk_directory = setting.disk;
      options.tiers.disk_bytes = std::int64_t{64} << 20;
      options.engine.kv.tiers = {.write_policy = WritePolicy::kWriteThrough,
                                 .load_wait_us = 60'000'000,
                                 .store_deadline_us = 60'000'000};
    }
    return options;
  }

  // Requests that take their adapters from this list in turn.
  Outcome run(const Setting& setting,
              const std::vector<std::string>& adapters = {"a", "", "b", "again"}) {
    ServedTrial trial = open_trial(options(setting));
    const Outcome outcome = trial.run({.adapters = adapters});
    trial.engine->settle(std::chrono::seconds(60));
    return outcome;
  }

  AdaptedModel model_{tiny_model_config(GetParam())};
  TempDirectory disk_;
};

// Nothing cached, one request at a time, one thread, whole prompts.
const Setting kPlain = {.cache = "none", .concurrency = 1};

TEST_P(AdapterBits, EachRequestIsAsIfThereWereItsOwnAdapterAlone) {
  const Outcome mixed = run(kPlain);
  const std::vector<std::string> cycle = {"a", "", "b", "again"};
  for (std::size_t i = 0; i < cycle.size(); ++i) {
    Setting alone = kPlain;
    alone.loaded.clear();
    if (!cycle[i].empty()) alone.loaded = {cycle[i]};
    const Outcome outcome = run(alone, {cycle[i]});
    for (std::size_t request = i; request < mixed.logits.size(); request += cycle.size()) {
      EXPECT_EQ(outcome.logits[request], mixed.logits[request]) << cycle[i];
      EXPECT_EQ(outcome.tokens[request], mixed.tokens[request]) << cycle[i];
    }
  }
  // They do change what is said.
  const Outcome without = run(kPlain, {""});
  EXPECT_NE(without.logits[0], mixed.logits[0]);
  EXPECT_EQ(without.logits[1], mixed.logits[1]);
  EXPECT_NE(without.logits[2], mixed.logits[2]);
}

TEST_P(AdapterBits, CacheOnAndOff) {
  const Outcome plain = run(kPlain);
  EXPECT_EQ(plain.cached_tokens, 0);
  for (const std::int64_t page_size : {1, 16, 64}) {
    SCOPED_TRACE(testing::Message() << "page size " << page_size);
    const Outcome cached =
        run({.page_size = page_size, .concurrency = 1, .audit_percent = windowed() ? 0.0 : 100.0});
    // All but the first request of each of three namespaces find at least the shared 64 tokens.
    EXPECT_GE(cached.cached_tokens, 13 * 64);
    EXPECT_EQ(cached.totals.shadow_audit_mismatches, 0);
    if (!windowed()) {
      EXPECT_GT(cached.totals.shadow_audits, 3);  // of hits with adapters too
    }
    expect_same_bits(plain, cached);
  }
}

TEST_P(AdapterBits, WhoFindsPagesOfWhom) {
  // The same prompt, by turns: the first of each finds nothing, but for the adapter loaded twice.
  const auto model = ServedModel::open(options({.concurrency = 1}));
  ASSERT_TRUE(model.ok()) << to_string(model.error());
  const auto engine = (*model)->open_engine();
  ASSERT_TRUE(engine.ok());
  const auto cached_by = [&](const std::string& adapter) {
    RequestSpec spec;
    spec.prompt = shared_prompts()[0];
    spec.max_tokens = 1;
    spec.adapter = adapter;
    EXPECT_TRUE((*engine)->submit(std::move(spec)).ok());
    std::int64_t cached = -1;
    while (!(*engine)->idle()) {
      for (const EngineEvent& event : (*engine)->step().events) cached = event.stats.cached_tokens;
    }
    return cached;
  };
  for (const char* adapter : {"", "a", "b"}) EXPECT_EQ(cached_by(adapter), 0) << adapter;
  for (const char* adapter : {"", "a", "b", "again"}) EXPECT_EQ(cached_by(adapter), 112) << adapter;
}

TEST_P(AdapterBits, AnyChunkSizeBatchAndNumberOfThreads) {
  const Outcome plain = run(kPlain);
  for (const std::int64_t chunk_tokens : {1, 7, 33}) {
    SCOPED_TRACE(testing::Message() << "chunks of " << chunk_tokens);
    expect_same_bits(plain, run({.chunk_tokens = chunk_tokens, .concurrency = 3}));
  }
  for (const std::int64_t concurrency : {2, 5, 16}) {
    SCOPED_TRACE(testing::Message() << concurrency << " at a time");
    const Outcome batched = run({.page_size = 1, .concurrency = concurrency, .threads = 2});
    EXPECT_LT(batched.steps, plain.steps);
    expect_same_bits(plain, batched);
  }
  expect_same_bits(plain, run({.cache = "none", .concurrency = 16, .threads = 3}));
}

TEST_P(AdapterBits, AfterEvictionAndPreemption) {
  const Outcome plain = run(kPlain);
  const ModelConfig config = tiny_model_config(GetParam());
  const std::int64_t token_bytes = 2 * config.layers * config.pool_shape().token_elements();
  const Outcome tight = run({.page_size = 4, .concurrency = 8, .kv_bytes = 220 * token_bytes});
  if (config.pool_shape().layers > 0) {
    EXPECT_GT(tight.totals.evicted_pages, 0);
  }
  expect_same_bits(plain, tight);
}

// Those that came and went while requests were computed leave nothing behind: neither in the places
// that the next ones have, nor in what is cached.
TEST_P(AdapterBits, WhereAdaptersComeAndGoBetweenSteps) {
  const Outcome plain = run(kPlain);
  ServedTrial trial = open_trial(options({.loaded = {}}));
  const auto load = [&](const std::string& name, bool in_place = false) {
    auto adapter = trial.model->read_adapter(model_.sources({name}).front());
    ASSERT_TRUE(adapter.ok()) << to_string(adapter.error());
    ASSERT_TRUE(trial.model->place_adapter(std::move(adapter).value(), in_place).ok());
  };
  load("b");
  trial.run({.adapters = {"b", ""}});
  ASSERT_TRUE(trial.model->take_out_adapter("b").ok());
  trial.model->drop_ended_adapters();
  for (const char* name : {"a", "again", "b"}) load(name);
  expect_same_bits(plain, trial.run({.adapters = {"a", "", "b", "again"}}));
  load("b", /*in_place=*/true);
  trial.model->drop_ended_adapters();
  expect_same_bits(plain, trial.run({.adapters = {"a", "", "b", "again"}}));
}

TEST_P(AdapterBits, AfterARestartOverDiskUnderOtherNames) {
  const Outcome plain = run(kPlain);
  run({.loaded = {"a", "b", "again"}, .disk = disk_.path()});
  // As in another process: what "a" wrote is found by "again", which alone is loaded.
  const Setting restarted = {.concurrency = 1, .loaded = {"again"}, .disk = disk_.path()};
  const Outcome found = run(restarted, {"again", "", "", "again"});
  EXPECT_GT(found.stats[0].brought.disk, 0);
  for (std::size_t request = 0; request < plain.logits.size(); ++request) {
    if (request % 4 == 2) continue;  // of b, which nobody asks for now
    EXPECT_EQ(found.logits[request], plain.logits[request]) << request;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, AdapterBits, testing::ValuesIn(every_family()),
                         [](const auto& param_info) { return std::string(param_info.param); });

}  // namespace
}  // namespace stemma
