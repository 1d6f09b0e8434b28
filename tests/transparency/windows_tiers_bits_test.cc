// I13 over the tiers for models whose layers look back over a window: the tokens and the logits of
// a request are equal bit for bit whether its windowed pages were computed or brought up from host
// memory, from disk or the file of host memory after a restart, or from a real redis-server. Each
// case counts that windowed pages came.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/temp_directory.h"
#include "model/random_model.h"
#include "model/tiny_config.h"
#include "sim/metric_of.h"
#include "stemma/log.h"
#include "store/redis_process.h"
#include "transparency/families.h"
#include "transparency/served_trial.h"
#include "transparency/tier_settings.h"

namespace stemma {
namespace {

struct Setting {
  std::int64_t page_size = 4;
  std::int64_t chunk_tokens = 512;
  std::int64_t concurrency = 2;
  int threads = 1;
  std::int64_t kv_tokens = 4096;
  std::string kv_layout = "layer_first";
  std::string cache = "radix";
  ServedTierOptions tiers = {};
};

class WindowsTiersBits : public testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override {
    set_log_level(LogLevel::kWarning);
    ASSERT_TRUE(write_random_model(model_.path(), {.config = tiny_model_config(GetParam()),
                                                   .type = WeightType::kBf16})
                    .ok());
  }

  // What can be copied to stores is there afterwards.
  static Outcome run(ServedTrial& trial, const std::vector<std::vector<TokenId>>& prompts) {
    const Outcome outcome = trial.run({.prompts = prompts});
    trial.engine->settle(kLong);
    return outcome;
  }
  static std::int64_t loaded(const ServedTrial& trial) {
    return metric_of(*trial.engine, "stemma_windowed_loaded_pages_total");
  }

  // An engine with everything below it.
  ServedTrial open(const Setting& setting) const {
    const ModelConfig config = tiny_model_config(GetParam());
    ServedModelOptions options = trial_options(model_.path(), setting);
    options.kv_bytes = setting.kv_tokens * 2 * config.layers * config.pool_shape().token_elements();
    options.kv_layout = setting.kv_layout;
    options.tiers = setting.tiers;
    options.engine.kv.tiers = {.write_policy = WritePolicy::kWriteThrough,
                               .load_wait_us = kLongUs,
                               .store_deadline_us = kLongUs};
    return open_trial(options);
  }

  // Nothing cached, one request at a time, one thread, whole prompts, no tiers.
  Outcome cold() const {
    ServedTrial trial = open({.concurrency = 1, .cache = "none"});
    return run(trial, shared_prompts());
  }

  // One life computes the prompts, another finds them; how many windowed pages that one brought up.
  std::int64_t expect_same_after_restart(const Outcome& plain, const Setting& setting) const {
    {
      ServedTrial first = open(setting);
      expect_same_bits(plain, run(first, shared_prompts()));
    }
    ServedTrial second = open(setting);
    expect_same_bits(plain, run(second, shared_prompts()));
    return loaded(second);
  }

  TempDirectory model_;
};

// Texts that share nothing with any other push the prompts out of a small device.
TEST_P(WindowsTiersBits, FromHostMemory) {
  const Outcome plain = cold();
  Prng prng(12);
  std::vector<std::vector<TokenId>> others;
  for (int i = 0; i < 16; ++i) others.push_back(random_tokens(prng, 100));
  for (const std::int64_t page_size : {1, 4, 16}) {
    for (const std::int64_t chunk_tokens : {9, 512}) {
      SCOPED_TRACE(testing::Message() << "page size " << page_size << ", chunks " << chunk_tokens);
      Setting setting = {
          .page_size = page_size, .chunk_tokens = chunk_tokens, .threads = 2, .kv_tokens = 448};
      setting.tiers.host_bytes = std::int64_t{16} << 20;
      ServedTrial trial = open(setting);
      expect_same_bits(plain, run(trial, shared_prompts()));
      // One by one, each is copied down before the next one may push it out.
      for (const auto& prompt : shared_prompts()) run(trial, {prompt});
      run(trial, others);
      expect_same_bits(plain, run(trial, shared_prompts()));
      EXPECT_GT(loaded(trial), 0);
    }
  }
}

TEST_P(WindowsTiersBits, FromDiskAfterARestart) {
  const Outcome plain = cold();
  for (const std::int64_t page_size : {1, 4, 16}) {
    SCOPED_TRACE(testing::Message() << "page size " << page_size);
    const TempDirectory directory;
    Setting setting = {.page_size = page_size};
    setting.tiers.disk_directory = directory.path();
    EXPECT_GT(expect_same_after_restart(plain, setting), 0);
  }
}

TEST_P(WindowsTiersBits, FromTheFilesOfHostMemoryAfterARestart) {
  const Outcome plain = cold();
  for (const std::int64_t page_size : {1, 4, 16}) {
    SCOPED_TRACE(testing::Message() << "page size " << page_size);
    const TempDirectory directory;
    Setting setting = {.page_size = page_size};
    setting.tiers.host_bytes = std::int64_t{16} << 20;
    setting.tiers.host_file = directory.file("host");
    EXPECT_GT(expect_same_after_restart(plain, setting), 0);
  }
}

TEST_P(WindowsTiersBits, FromARedisServer) {
  const Outcome plain = cold();
  const TempDirectory directory;
  const auto server = RedisProcess::start({.directory = directory.path()});
  ASSERT_TRUE(server.ok()) << to_string(server.error());
  for (const std::int64_t page_size : {1, 4, 16}) {
    SCOPED_TRACE(testing::Message() << "page size " << page_size);
    Setting setting = {.page_size = page_size, .kv_layout = "page_first"};
    setting.tiers.remote_url = server->unix_url();
    EXPECT_GT(expect_same_after_restart(plain, setting), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, WindowsTiersBits, testing::ValuesIn(windowed_families()),
                         [](const auto& param_info) { return std::string(param_info.param); });

}  // namespace
}  // namespace stemma
