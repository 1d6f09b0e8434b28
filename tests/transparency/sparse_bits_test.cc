// I13 for sparse attention with a fixed dial: the tokens and the logits of a request are equal bit
// for bit cold and warm, in any chunks and batches, on any number of threads, in either layout, and
// wherever its pages were. At its dense end the dial gives what dense attention gives, and beyond
// it does not: the sparse path ran.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "base/temp_directory.h"
#include "engine/logits_recorder.h"
#include "engine/served_model.h"
#include "model/random_model.h"
#include "model/sparse_calibration.h"
#include "model/tiny_config.h"
#include "stemma/log.h"
#include "store/redis_process.h"
#include "transparency/served_trial.h"

namespace stemma {
namespace {

constexpr std::int64_t kLongUs = 60'000'000;
constexpr std::chrono::seconds kLong(60);
constexpr SparseDial kQuarter = {.dense_tokens = 32, .kept_tokens = 1, .kept_of = 4};

struct Setting {
  std::optional<SparseDial> dial = kQuarter;
  std::string cache = "radix";
  std::int64_t page_size = 16;
  std::int64_t chunk_tokens = 512;
  std::int64_t concurrency = 4;
  int threads = 1;
  std::string kv_layout = "layer_first";
  std::int64_t kv_tokens = 4096;
  std::string attention = "cpu";
  ServedTierOptions tiers = {};
};

class SparseBits : public testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override {
    set_log_level(LogLevel::kWarning);
    ASSERT_TRUE(write_random_model(directory_.path(), {.config = tiny_model_config(GetParam()),
                                                       .type = WeightType::kBf16})
                    .ok());
    Setting dense;
    dense.dial = std::nullopt;
    const auto model = open(dense);
    const ModelConfig& config = model->runner().config();
    SparseCalibration calibration = {model->runner().weights_sha256(), config.head_dim, {}};
    calibration.channels = {config.layers, config.kv_heads, 8, {}};
    for (std::int64_t i = 0; i < config.layers * config.kv_heads * 8; ++i) {
      calibration.channels.channels.push_back(static_cast<std::int32_t>(i % 8 * 3 + i / 8));
    }
    const std::string path = directory_.file(std::string(kSparseCalibrationFile));
    ASSERT_TRUE(save_sparse_calibration(calibration, path).ok());
  }

  std::unique_ptr<ServedModel> open(const Setting& setting) const {
    const ModelConfig config = tiny_model_config(GetParam());
    const std::int64_t label_elements = setting.dial.has_value() ? 8 : 0;
    ServedModelOptions options = trial_options(directory_.path(), setting);
    options.kv_bytes = setting.kv_tokens * 2 * config.layers * config.kv_heads *
                       (2 * config.head_dim + label_elements);
    options.kv_layout = setting.kv_layout;
    options.attention = setting.attention;
    options.tiers = setting.tiers;
    if (setting.dial.has_value()) options.sparse = SparseOptions{*setting.dial, ""};
    options.engine.kv.tiers = {.write_policy = WritePolicy::kWriteThrough,
                               .load_wait_us = kLongUs,
                               .store_deadline_us = kLongUs};
    return opened_for_trial(ServedModel::open(options));
  }

  // The prompts once, or again after others have pushed them out of the device.
  Outcome run(const Setting& setting, bool come_back = false) const {
    const auto model = open(setting);
    LogitsRecorder recorder(model->runner());
    const auto engine = model->open_engine(&recorder);
    EXPECT_TRUE(engine.ok());
    const auto trial = [&](std::vector<std::vector<TokenId>> prompts) {
      Outcome outcome = run_trial(
          **engine, recorder, {.prompts = std::move(prompts), .digest = model->namespace_digest()});
      (*engine)->settle(kLong);
      return outcome;
    };
    Outcome first = trial(shared_prompts());
    if (!come_back) return first;
    Prng prng(12);
    std::vector<std::vector<TokenId>> others;
    for (int i = 0; i < 16; ++i) others.push_back(random_tokens(prng, 100));
    trial(others);
    return trial(shared_prompts());
  }

  // Nothing cached, one request at a time, one thread, whole prompts.
  Outcome cold(std::optional<SparseDial> dial = kQuarter) const {
    return run({.dial = dial, .cache = "none", .concurrency = 1});
  }

  TempDirectory directory_;
};

TEST_P(SparseBits, WarmInAnyChunksAndBatches) {
  const Outcome plain = cold();
  for (const std::int64_t page_size : {1, 16, 64}) {
    const Outcome warm = run({.page_size = page_size, .concurrency = 1});
    EXPECT_GE(warm.cached_tokens, 15 * 64);
    expect_same_bits(plain, warm);
  }
  for (const std::int64_t chunk_tokens : {1, 7, 33}) {
    SCOPED_TRACE(testing::Message() << "chunks of " << chunk_tokens);
    expect_same_bits(plain, run({.chunk_tokens = chunk_tokens, .concurrency = 1}));
    expect_same_bits(plain, run({.chunk_tokens = chunk_tokens, .concurrency = 6}));
  }
  expect_same_bits(plain, run({.page_size = 1, .concurrency = 8, .threads = 2}));
  expect_same_bits(plain, run({.threads = 3, .kv_layout = "page_first"}));
}

TEST_P(SparseBits, AfterEvictionAndPreemption) {
  const Outcome tight = run({.page_size = 4, .concurrency = 8, .kv_tokens = 220});
  EXPECT_GT(tight.totals.evicted_pages, 0);
  expect_same_bits(cold(), tight);
}

TEST_P(SparseBits, FromHostMemory) {
  const Outcome plain = cold();
  for (const std::string layout : {"layer_first", "page_first"}) {
    Setting setting = {.kv_tokens = 448};
    setting.tiers.host_bytes = std::int64_t{16} << 20;
    setting.tiers.host_layout = layout;
    const Outcome back = run(setting, true);
    EXPECT_GT(back.brought.host, 0);
    expect_same_bits(plain, back);
  }
}

TEST_P(SparseBits, FromDiskAfterARestart) {
  Setting setting;
  setting.tiers.disk_directory = directory_.file("pages");
  const Outcome first = run(setting);
  expect_same_bits(cold(), first);
  const Outcome second = run(setting);
  EXPECT_GT(second.brought.disk, 0);
  expect_same_bits(first, second);
}

TEST_P(SparseBits, FromARedisServer) {
  const TempDirectory directory;
  const auto server = RedisProcess::start({.directory = directory.path()});
  ASSERT_TRUE(server.ok()) << to_string(server.error());
  Setting setting;
  setting.tiers.remote_url = server->unix_url();
  const Outcome first = run(setting);
  expect_same_bits(cold(), first);
  const Outcome second = run(setting);
  EXPECT_GT(second.brought.remote, 0);
  expect_same_bits(first, second);
}

TEST_P(SparseBits, TheDenseEndIsDenseAttention) {
  const Outcome dense = cold(std::nullopt);
  expect_same_bits(dense, cold(SparseDial{0, 1, 1}));
  expect_same_bits(dense, cold(SparseDial{256, 1, 8}));
  EXPECT_NE(dense.logits, cold().logits);
}

INSTANTIATE_TEST_SUITE_P(Families, SparseBits, testing::Values("llama2", "qwen3"),
                         [](const auto& param_info) { return std::string(param_info.param); });

}  // namespace
}  // namespace stemma
