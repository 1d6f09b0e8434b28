// I13 over the tiers: the tokens and the logits of a request are equal bit for bit wherever its
// pages were: evicted to host memory and brought back, on disk over a restart, in a real
// redis-server; in either layout, for each page size, chunk size, batch and write policy, also
// where pages land in the middle of the prefill that computes the same tokens. Each case counts
// that pages came from the tier that it is about.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/temp_directory.h"
#include "engine/logits_recorder.h"
#include "engine/served_model.h"
#include "model/random_model.h"
#include "model/tiny_config.h"
#include "pool/kv_pool_factory.h"
#include "sim/metric_of.h"
#include "stemma/log.h"
#include "store/redis_process.h"
#include "transparency/families.h"
#include "transparency/late_tiers.h"
#include "transparency/served_trial.h"
#include "transparency/tier_settings.h"

namespace stemma {
namespace {

struct Setting {
  std::int64_t page_size = 16;
  std::int64_t chunk_tokens = 512;
  std::int64_t concurrency = 3;
  int threads = 1;
  std::string kv_layout = "layer_first";
  std::string kv_dtype = "auto";
  std::int64_t kv_tokens = 4096;
  std::string cache = "radix";
  ServedTierOptions tiers = {};
  TierOptions moves = {.write_policy = WritePolicy::kWriteThrough,
                       .load_wait_us = kLongUs,
                       .store_deadline_us = kLongUs};
};

// An engine with everything below it. Its tiers tell of copies up when they are told to.
struct Serving {
  ThreadPool threads{1};
  MonotonicClock clock;
  std::unique_ptr<ServedModel> model;
  std::unique_ptr<KvPool> pool;
  std::unique_ptr<LowerTiers> tiers;
  std::optional<LateTiers> late;
  std::optional<LogitsRecorder> recorder;
  std::unique_ptr<Engine> engine;

  Outcome run(const std::vector<std::vector<TokenId>>& prompts) {
    return run(prompts, [](std::int64_t) {});
  }
  template <typename BeforeStep>
  Outcome run(const std::vector<std::vector<TokenId>>& prompts, BeforeStep&& before_step,
              std::int64_t steps_apart = 0) {
    return run_trial(
        *engine, *recorder,
        {.prompts = prompts, .digest = model->namespace_digest(), .steps_apart = steps_apart},
        before_step);
  }
};

class TiersBits : public testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override {
    set_log_level(LogLevel::kWarning);
    ASSERT_TRUE(write_random_model(model_.path(), {.config = tiny_model_config(GetParam()),
                                                   .type = WeightType::kBf16})
                    .ok());
  }

  ServedModelOptions options(const Setting& setting) const {
    KvShape shape = tiny_model_config(GetParam()).pool_shape();
    shape.dtype = try_parse_dtype(setting.kv_dtype).value_or(DType::kBF16);
    ServedModelOptions options = trial_options(model_.path(), setting);
    options.kv_bytes = setting.kv_tokens * shape.layers * shape.token_bytes();
    options.kv_dtype = setting.kv_dtype;
    options.kv_layout = setting.kv_layout;
    options.tiers.codec = setting.tiers.codec;  // a part of the namespace
    options.engine.kv.tiers = setting.moves;
    return options;
  }

  std::unique_ptr<Serving> open(const Setting& setting) {
    auto serving = std::make_unique<Serving>();
    const auto failed = [](const Error& error) {
      ADD_FAILURE() << to_string(error);
      return std::unique_ptr<Serving>();
    };
    auto model = ServedModel::open(options(setting));
    if (!model.ok()) return failed(model.error());
    serving->model = std::move(model).value();
    const auto layout = parse_kv_layout(setting.kv_layout);
    auto pool = make_kv_pool(serving->model->pool().shape(), *layout, serving->threads);
    if (!pool.ok()) return failed(pool.error());
    serving->pool = std::move(pool).value();
    auto tiers =
        open_served_tiers(setting.tiers, *serving->pool, nullptr, serving->threads, serving->clock);
    if (!tiers.ok()) return failed(tiers.error());
    serving->tiers = std::move(tiers).value();
    if (serving->tiers != nullptr) serving->late.emplace(*serving->tiers);
    serving->recorder.emplace(serving->model->runner());
    auto engine =
        Engine::open(serving->model->engine_options(),
                     {.runner = *serving->recorder,
                      .pools = {*serving->pool},
                      .vocab_tokens = tiny_model_config(GetParam()).vocab_tokens,
                      .clock = serving->clock,
                      .lower_tiers = serving->late.has_value() ? &*serving->late : nullptr});
    if (!engine.ok()) return failed(engine.error());
    serving->engine = std::move(engine).value();
    return serving;
  }

  // Nothing cached, one request at a time, one thread, whole prompts, no tiers.
  Outcome cold(const std::string& kv_dtype = "auto") {
    const auto plain = open({.concurrency = 1, .kv_dtype = kv_dtype, .cache = "none"});
    return plain->run(shared_prompts());
  }

  // The prompts, then others that push them out of the device, then the prompts again. Returns what
  // the first and the second time gave.
  std::pair<Outcome, Outcome> push_out_and_come_back(const Setting& setting) {
    return come_back(*open(setting));
  }
  static std::pair<Outcome, Outcome> come_back(Serving& serving) {
    Outcome first = serving.run(shared_prompts());
    serving.engine->settle(kLong);
    serving.run(other_prompts());
    serving.engine->settle(kLong);
    return {std::move(first), serving.run(shared_prompts())};
  }

  // Runs the prompts; what can be copied to stores is there afterwards.
  Outcome run_and_close(const Setting& setting) {
    const auto serving = open(setting);
    Outcome outcome = serving->run(shared_prompts());
    serving->engine->settle(kLong);
    return outcome;
  }

  TempDirectory model_;
};

// Small enough that other_prompts() push everything out.
Setting small(Setting setting) {
  setting.kv_tokens = kSmallTokens;
  return setting;
}

// As many pages as make room for the next request's, copied ahead where that is the policy.
TierOptions moves_of(WritePolicy policy, std::int64_t page_size) {
  return {.write_policy = policy,
          .demote_ahead_pages = 160 / page_size + 1,
          .load_wait_us = kLongUs,
          .store_deadline_us = kLongUs};
}

TEST_P(TiersBits, FromHostMemoryUnderEachWritePolicyAndPageSize) {
  const Outcome plain = cold();
  EXPECT_EQ(plain.cached_tokens, 0);
  for (const WritePolicy policy : kPolicies) {
    for (const std::int64_t page_size : {1, 16, 64}) {
      SCOPED_TRACE(testing::Message() << write_policy_name(policy) << ", page size " << page_size);
      const auto [first, second] = push_out_and_come_back(small(
          {.page_size = page_size, .tiers = host_only(), .moves = moves_of(policy, page_size)}));
      EXPECT_GT(second.totals.evicted_pages, 0);
      EXPECT_GT(second.brought.host, 0);
      expect_same_bits(plain, first);
      expect_same_bits(plain, second);
    }
  }
}

TEST_P(TiersBits, FromHostMemoryInEveryLayoutAndType) {
  for (const char* const kv_dtype : {"f32", "f16", "bf16", "fp8_e4m3", "int8"}) {
    const Outcome plain = cold(kv_dtype);
    for (const char* const layout : {"layer_first", "page_first"}) {
      for (const char* const host_layout : {"layer_first", "page_first"}) {
        SCOPED_TRACE(testing::Message() << kv_dtype << ", " << layout << " over " << host_layout);
        const auto [first, second] =
            push_out_and_come_back(small({.threads = 2,
                                          .kv_layout = layout,
                                          .kv_dtype = kv_dtype,
                                          .tiers = host_only(host_layout)}));
        EXPECT_GT(second.brought.host, 0);
        expect_same_bits(plain, first);
        expect_same_bits(plain, second);
      }
    }
  }
}

TEST_P(TiersBits, FromHostMemoryInAnyChunksAndBatches) {
  const Outcome plain = cold();
  for (const std::int64_t chunk_tokens : {1, 7, 33}) {
    for (const std::int64_t concurrency : {1, 2, 8}) {
      SCOPED_TRACE(testing::Message() << "chunks of " << chunk_tokens << ", " << concurrency);
      const auto [first, second] = push_out_and_come_back(small({.page_size = 4,
                                                                 .chunk_tokens = chunk_tokens,
                                                                 .concurrency = concurrency,
                                                                 .tiers = host_only()}));
      EXPECT_GT(second.brought.host, 0);
      expect_same_bits(plain, first);
      expect_same_bits(plain, second);
    }
  }
}

// Steps that begin before the pages are whole read the same bits as those that waited for them.
TEST_P(TiersBits, FromHostMemoryLayerByLayer) {
  const Outcome plain = cold();
  for (const bool by_layer : {true, false}) {
    for (const int threads : {1, 2}) {
      SCOPED_TRACE(testing::Message() << by_layer << ", threads " << threads);
      Setting setting =
          small({.page_size = 4, .concurrency = 2, .threads = threads, .tiers = host_only()});
      setting.moves.load_by_layer = by_layer;
      const auto serving = open(setting);
      expect_same_bits(plain, come_back(*serving).second);
      EXPECT_EQ(metric_of(*serving->engine, "stemma_lent_pages_total") > 0, by_layer);
    }
  }
}

TEST_P(TiersBits, FromDiskAfterARestart) {
  const Outcome plain = cold();
  for (const WritePolicy policy : kPolicies) {
    for (const std::int64_t page_size : {1, 16, 64}) {
      SCOPED_TRACE(testing::Message() << write_policy_name(policy) << ", page size " << page_size);
      const TempDirectory directory;
      const Setting setting = {.page_size = page_size,
                               .tiers = on_disk(directory.path()),
                               .moves = moves_of(policy, page_size)};
      // Under write-back only what makes room for something else is copied.
      Setting before = policy == WritePolicy::kWriteBack ? small(setting) : setting;
      if (page_size == 64 && policy == WritePolicy::kWriteBack) before.moves.demote_ahead_pages = 7;
      expect_same_bits(plain, run_and_close(before));
      const Outcome after = run_and_close(setting);
      EXPECT_GT(after.brought.disk, 0);
      expect_same_bits(plain, after);
    }
  }
}

// What one layout wrote the other reads: a page on disk is the same whatever pool it was in.
TEST_P(TiersBits, FromDiskIntoAnyLayoutInAnyChunks) {
  const Outcome plain = cold();
  const TempDirectory directory;
  const ServedTierOptions tiers = on_disk(directory.path());
  expect_same_bits(plain, run_and_close({.kv_layout = "page_first", .tiers = tiers}));
  for (const char* const layout : {"layer_first", "page_first"}) {
    for (const std::int64_t chunk_tokens : {3, 512}) {
      SCOPED_TRACE(testing::Message() << layout << ", chunks of " << chunk_tokens);
      const Outcome after = run_and_close({.chunk_tokens = chunk_tokens,
                                           .concurrency = 4,
                                           .threads = 2,
                                           .kv_layout = layout,
                                           .tiers = tiers});
      EXPECT_GT(after.brought.disk, 0);
      expect_same_bits(plain, after);
    }
  }
}

TEST_P(TiersBits, FromARedisServer) {
  const Outcome plain = cold();
  for (const WritePolicy policy : kPolicies) {
    for (const std::int64_t page_size : {1, 16, 64}) {
      SCOPED_TRACE(testing::Message() << write_policy_name(policy) << ", page size " << page_size);
      const TempDirectory directory;
      const auto server = RedisProcess::start({.directory = directory.path()});
      ASSERT_TRUE(server.ok()) << to_string(server.error());
      const Setting setting = {.page_size = page_size,
                               .tiers = on_remote(server->unix_url()),
                               .moves = moves_of(policy, page_size)};
      Setting before = policy == WritePolicy::kWriteBack ? small(setting) : setting;
      if (page_size == 64 && policy == WritePolicy::kWriteBack) before.moves.demote_ahead_pages = 7;
      expect_same_bits(plain, run_and_close(before));
      const Outcome after = run_and_close(setting);
      EXPECT_GT(after.brought.remote, 0);
      expect_same_bits(plain, after);
    }
  }
}

// Copies land while the same tokens are computed: after every third step of a prefill in small
// chunks. Nobody waits for them.
class LandInTheMiddle : public TiersBits {
 protected:
  static Setting racing(Setting setting) {
    setting.moves.load_wait_us = 0;
    return setting;
  }
  static Outcome run_late(Serving& serving) {
    LateLanes& lanes = serving.late->lanes();
    lanes.hold();
    return serving.run(shared_prompts(), [&](std::int64_t step) {
      if (step % 3 == 2) lanes.let_land();
    });
  }
  // The first request found nothing when it was admitted: what it did not compute came later.
  static void expect_landed_late(const Outcome& outcome, const BroughtTokens& brought) {
    const RequestStats& first = outcome.stats.front();
    EXPECT_GT(brought.total(), 0);
    EXPECT_GT(first.computed_tokens, 0);
    EXPECT_EQ(first.cached_tokens + first.computed_tokens, first.prompt_tokens);
  }
};

TEST_P(LandInTheMiddle, FromHostMemory) {
  const Outcome plain = cold();
  for (const std::int64_t page_size : {1, 16, 64}) {
    for (const std::int64_t chunk_tokens : {5, 8}) {
      SCOPED_TRACE(testing::Message() << "page size " << page_size << ", chunks " << chunk_tokens);
      const auto serving = open(racing(
          small({.page_size = page_size, .chunk_tokens = chunk_tokens, .tiers = host_only()})));
      expect_same_bits(plain, serving->run(shared_prompts()));
      serving->engine->settle(kLong);
      serving->run(other_prompts());
      serving->engine->settle(kLong);
      const Outcome second = run_late(*serving);
      expect_landed_late(second, {.host = second.stats.front().brought.host});
      expect_same_bits(plain, second);
    }
  }
}

TEST_P(LandInTheMiddle, FromDiskAndFromARedisServer) {
  const Outcome plain = cold();
  const TempDirectory directory;
  const auto server = RedisProcess::start({.directory = directory.path()});
  ASSERT_TRUE(server.ok()) << to_string(server.error());
  const ServedTierOptions disk = on_disk(directory.file("disk"));
  const ServedTierOptions remote = on_remote(server->unix_url());
  for (const std::int64_t page_size : {1, 16, 64}) {
    for (const ServedTierOptions& tiers : {disk, remote}) {
      const bool is_remote = !tiers.remote_url.empty();
      SCOPED_TRACE(testing::Message()
                   << "page size " << page_size << (is_remote ? ", remote" : ", disk"));
      const Setting setting = {.page_size = page_size, .chunk_tokens = 8, .tiers = tiers};
      expect_same_bits(plain, run_and_close(setting));
      const auto serving = open(racing(setting));
      const Outcome second = run_late(*serving);
      const BroughtTokens& brought = second.stats.front().brought;
      expect_landed_late(second, is_remote ? BroughtTokens{.remote = brought.remote}
                                           : BroughtTokens{.disk = brought.disk});
      expect_same_bits(plain, second);
    }
  }
}

// Whoever is first, the lanes or the engine: here they really race, from no wait to as long as it
// takes.
TEST_P(LandInTheMiddle, WithoutAnybodyHoldingThemBack) {
  const Outcome plain = cold();
  const TempDirectory directory;
  Setting setting = {.page_size = 4, .chunk_tokens = 9, .tiers = on_disk(directory.path())};
  expect_same_bits(plain, run_and_close(setting));
  std::int64_t brought = 0;
  for (const std::int64_t load_wait_us : {std::int64_t{0}, std::int64_t{100}, std::int64_t{300},
                                          std::int64_t{1000}, std::int64_t{3000}, kLongUs}) {
    SCOPED_TRACE(testing::Message() << "a wait of " << load_wait_us << " us");
    setting.concurrency = setting.concurrency % 3 + 1;
    setting.moves.load_wait_us = load_wait_us;
    const Outcome raced = run_and_close(setting);
    brought += raced.brought.total();
    expect_same_bits(plain, raced);
  }
  EXPECT_GT(brought, 0);
}

// The second request comes while the first, whose prefix it shares, or which it is equal to, is
// computed or brought up: in each of its steps once.
TEST_P(LandInTheMiddle, APrefixAskedForWhileItIsOnItsWay) {
  const std::vector<std::vector<TokenId>> all = shared_prompts();
  const TempDirectory directory;
  Setting setting = {.page_size = 4, .chunk_tokens = 8, .tiers = on_disk(directory.path())};
  for (const auto& pair : {std::vector{all[0], all[1]}, std::vector{all[1], all[3]}}) {
    const Outcome plain = open({.concurrency = 1, .cache = "none"})->run(pair);
    for (std::int64_t steps_apart = 0; steps_apart <= 20; ++steps_apart) {
      SCOPED_TRACE(testing::Message() << steps_apart << " steps apart");
      Setting now = steps_apart % 2 == 0 ? racing(setting) : setting;
      now.tiers = steps_apart == 0 ? ServedTierOptions() : setting.tiers;
      const auto serving = open(now);
      const Outcome outcome = serving->run(
          pair, [](std::int64_t) {}, steps_apart);
      serving->engine->settle(kLong);
      EXPECT_GT(outcome.cached_tokens, 0);
      expect_same_bits(plain, outcome);
    }
  }
}

// Packed pages come back a little different, and nothing that is exact is ever taken for them.
TEST_P(TiersBits, PackedPagesAreAnothersToEverybodyElse) {
  const Outcome plain = cold();
  const TempDirectory directory;
  Setting packed = {.page_size = 4, .tiers = on_disk(directory.path())};
  packed.tiers.codec = "int8";
  const Setting exact = {.page_size = 4, .tiers = on_disk(directory.path())};
  expect_same_bits(plain, run_and_close(packed));  // all of it computed
  const Outcome first_exact = run_and_close(exact);
  EXPECT_EQ(first_exact.brought.total(), 0);
  expect_same_bits(plain, first_exact);
  const Outcome back = run_and_close(packed);
  EXPECT_GT(back.brought.disk, 0);
  // The row of the first output token, which both compute from the same tokens.
  float largest = 0;
  float error = 0;
  for (std::size_t i = 0; i < 256; ++i) {
    const float value = plain.logits[0][i];
    largest = std::max(largest, std::abs(value));
    error = std::max(error, std::abs(back.logits[0][i] - value));
  }
  EXPECT_LT(error, 0.05f * largest);
  expect_same_bits(plain, run_and_close(exact));
}

// All tiers below one small device, and prompts that are spread over them.
TEST_P(TiersBits, FromAllTiersAtOnce) {
  const Outcome plain = cold();
  const TempDirectory directory;
  const auto server = RedisProcess::start({.directory = directory.path()});
  ASSERT_TRUE(server.ok()) << to_string(server.error());
  ServedTierOptions tiers = on_disk(directory.file("disk"));
  tiers.remote_url = server->unix_url();
  tiers.host_bytes = std::int64_t{1} << 20;
  Setting setting = small({.page_size = 4, .tiers = tiers});
  const auto [first, second] = push_out_and_come_back(setting);
  EXPECT_GT(second.brought.total(), 0);
  expect_same_bits(plain, first);
  expect_same_bits(plain, second);
  const Outcome restarted = run_and_close(setting);
  EXPECT_GT(restarted.brought.disk, 0);
  expect_same_bits(plain, restarted);
  setting.tiers.disk_directory = directory.file("another_disk");
  const Outcome elsewhere = run_and_close(setting);
  EXPECT_GT(elsewhere.brought.remote, 0);
  expect_same_bits(plain, elsewhere);
}

const auto kFamilies = testing::ValuesIn(tiered_families());
const auto kFamilyName = [](const auto& param_info) { return std::string(param_info.param); };
INSTANTIATE_TEST_SUITE_P(Families, TiersBits, kFamilies, kFamilyName);
INSTANTIATE_TEST_SUITE_P(Families, LandInTheMiddle, kFamilies, kFamilyName);

}  // namespace
}  // namespace stemma
