// I13 over KV of 8 bits: codes and scales of a token depend on the token alone, so the tokens and
// the logits of a request are equal bit for bit whatever was cached, however its prompt was
// chunked, whoever shared its batch, on any number of threads, after eviction, and from every tier:
// host memory, disk after a restart, a real redis-server. Each case counts that its path ran.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <tuple>
#include <vector>

#include "base/temp_directory.h"
#include "model/random_model.h"
#include "model/tiny_config.h"
#include "pool/kv_pool_factory.h"
#include "stemma/log.h"
#include "store/redis_process.h"
#include "transparency/served_trial.h"

namespace stemma {
namespace {

constexpr std::int64_t kLongUs = 60'000'000;
constexpr std::chrono::seconds kLong(60);

struct Setting {
  std::string cache = "radix";
  std::int64_t page_size = 16;
  std::int64_t chunk_tokens = 512;
  std::int64_t concurrency = 4;
  int threads = 1;
  std::string kv_layout = "layer_first";
  std::int64_t kv_tokens = 4096;
  ServedTierOptions tiers = {};
};

// A family and a dtype.
using Param = std::tuple<std::string_view, std::string_view>;

class ScaledBits : public testing::TestWithParam<Param> {
 protected:
  void SetUp() override {
    set_log_level(LogLevel::kWarning);
    ASSERT_TRUE(
        write_random_model(model_.path(), {.config = config(), .type = WeightType::kBf16}).ok());
  }

  static ModelConfig config() { return tiny_model_config(std::get<0>(GetParam())); }

  ServedTrial open(const Setting& setting, std::string_view dtype = std::get<1>(GetParam())) const {
    KvShape token = config().pool_shape();
    token.dtype = parse_kv_dtype(dtype).value();
    ServedModelOptions options = trial_options(model_.path(), setting);
    options.kv_bytes = setting.kv_tokens * config().layers * token.token_bytes();
    options.kv_dtype = dtype;
    options.kv_layout = setting.kv_layout;
    options.tiers = setting.tiers;
    options.engine.kv.tiers = {.write_policy = WritePolicy::kWriteThrough,
                               .load_wait_us = kLongUs,
                               .store_deadline_us = kLongUs};
    return open_trial(options);
  }

  // What can be copied to stores is there afterwards.
  static Outcome run(ServedTrial& trial, const std::vector<std::vector<TokenId>>& prompts) {
    const Outcome outcome = trial.run({.prompts = prompts});
    trial.engine->settle(kLong);
    return outcome;
  }
  Outcome run(const Setting& setting) const {
    ServedTrial trial = open(setting);
    return run(trial, shared_prompts());
  }

  // Nothing cached, one request at a time, one thread, whole prompts, no tiers.
  Outcome cold() const { return run({.cache = "none", .concurrency = 1}); }

  // One life computes the prompts, another finds them: what that one brought up.
  BroughtTokens expect_same_after_restart(const Outcome& plain, const Setting& setting) const {
    expect_same_bits(plain, run(setting));
    const Outcome second = run(setting);
    expect_same_bits(plain, second);
    return second.brought;
  }

 private:
  TempDirectory model_;
};

TEST_P(ScaledBits, WhateverIsCachedAndHoweverItIsCut) {
  const Outcome plain = cold();
  EXPECT_EQ(plain.cached_tokens, 0);
  for (const std::int64_t page_size : {1, 16, 64}) {
    for (const std::int64_t chunk_tokens : {3, 33}) {
      SCOPED_TRACE(testing::Message() << "page size " << page_size << ", chunks " << chunk_tokens);
      const Outcome cached =
          run({.page_size = page_size, .chunk_tokens = chunk_tokens, .concurrency = 1});
      EXPECT_GT(cached.cached_tokens, 0);
      expect_same_bits(plain, cached);
    }
  }
}

TEST_P(ScaledBits, WhoeverSharesTheBatchOnAnyNumberOfThreads) {
  const Outcome plain = cold();
  for (const int threads : {1, 3}) {
    for (const std::int64_t concurrency : {3, 8}) {
      SCOPED_TRACE(testing::Message() << concurrency << " at a time, threads " << threads);
      const Outcome batched = run({.chunk_tokens = 24,
                                   .concurrency = concurrency,
                                   .threads = threads,
                                   .kv_layout = threads == 3 ? "page_first" : "layer_first"});
      EXPECT_LT(batched.steps, plain.steps * 2);
      expect_same_bits(plain, batched);
    }
  }
}

TEST_P(ScaledBits, AfterEvictionAndPreemption) {
  const Outcome tight = run({.page_size = 4, .concurrency = 8, .kv_tokens = 220});
  EXPECT_GT(tight.totals.evicted_pages, 0);
  expect_same_bits(cold(), tight);
}

// Texts that share nothing with any other push the prompts out of a small device.
TEST_P(ScaledBits, FromHostMemory) {
  const Outcome plain = cold();
  Prng prng(12);
  std::vector<std::vector<TokenId>> others;
  for (int i = 0; i < 16; ++i) others.push_back(random_tokens(prng, 100));
  for (const char* const host_layout : {"layer_first", "page_first"}) {
    SCOPED_TRACE(host_layout);
    Setting setting = {.page_size = 4, .chunk_tokens = 9, .threads = 2, .kv_tokens = 700};
    setting.tiers.host_bytes = std::int64_t{16} << 20;
    setting.tiers.host_layout = host_layout;
    ServedTrial trial = open(setting);
    expect_same_bits(plain, run(trial, shared_prompts()));
    run(trial, others);
    const Outcome again = run(trial, shared_prompts());
    EXPECT_GT(again.brought.host, 0);
    expect_same_bits(plain, again);
  }
}

TEST_P(ScaledBits, FromDiskAfterARestart) {
  const Outcome plain = cold();
  for (const std::int64_t page_size : {1, 16}) {
    SCOPED_TRACE(testing::Message() << "page size " << page_size);
    const TempDirectory directory;
    Setting setting = {.page_size = page_size};
    setting.tiers.disk_directory = directory.path();
    setting.tiers.host_bytes = page_size == 1 ? std::int64_t{16} << 20 : 0;
    EXPECT_GT(expect_same_after_restart(plain, setting).disk, 0);
  }
}

TEST_P(ScaledBits, FromARedisServer) {
  const Outcome plain = cold();
  const TempDirectory directory;
  const auto server = RedisProcess::start({.directory = directory.path()});
  ASSERT_TRUE(server.ok()) << to_string(server.error());
  Setting setting = {.page_size = 16, .kv_layout = "page_first"};
  setting.tiers.remote_url = server->unix_url();
  EXPECT_GT(expect_same_after_restart(plain, setting).remote, 0);
}

// A page of one dtype is nothing to another: not even where its bytes are as many.
TEST_P(ScaledBits, PagesOfAnotherDtypeAreNotFound) {
  const TempDirectory directory;
  Setting setting = {};
  setting.tiers.disk_directory = directory.path();
  const std::string_view dtype = std::get<1>(GetParam());
  const std::string_view other = dtype == "int8" ? "fp8_e4m3" : "int8";
  const Outcome plain = cold();
  {
    ServedTrial first = open(setting, other);
    run(first, shared_prompts());
  }
  ServedTrial second = open(setting);
  const Outcome found = run(second, shared_prompts());
  EXPECT_EQ(found.brought.disk, 0);
  expect_same_bits(plain, found);
}

INSTANTIATE_TEST_SUITE_P(Families, ScaledBits,
                         testing::Combine(testing::Values("llama2", "gemma2", "deepseek_v2"),
                                          testing::Values("fp8_e4m3", "fp8_e5m2", "int8")),
                         [](const auto& param_info) {
                           return std::string(std::get<0>(param_info.param)) + "_" +
                                  std::string(std::get<1>(param_info.param));
                         });

}  // namespace
}  // namespace stemma
