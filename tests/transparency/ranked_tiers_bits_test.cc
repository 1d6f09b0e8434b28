// I13 over the tiers of two ranks: the tokens and the logits of a request are those of one rank
// without tiers, bit for bit, wherever its pages were: in the host memory of both, on disk over a
// restart of both, in a real redis-server; where windowed pages go along, and where a request
// forks. Each case counts that pages came from the tier that it is about.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/flip_bit.h"
#include "base/temp_directory.h"
#include "model/calibration_fixture.h"
#include "model/random_model.h"
#include "model/tiny_config.h"
#include "sim/metric_of.h"
#include "stemma/log.h"
#include "store/redis_process.h"
#include "tier/page_frame.h"
#include "transparency/ranked_trial.h"
#include "transparency/served_trial.h"
#include "transparency/tier_settings.h"

namespace stemma {
namespace {

constexpr int kRanks = 2;

struct Setting {
  std::int64_t page_size = 16;
  std::int64_t chunk_tokens = 512;
  std::int64_t concurrency = 3;
  int threads = 1;
  std::int64_t kv_tokens = 4096;
  std::string kv_dtype = "auto";
  std::string cache = "radix";
  ServedTierOptions tiers = {};
  WritePolicy policy = WritePolicy::kWriteThrough;
  bool by_layer = true;
  std::optional<SparseDial> dial = std::nullopt;  // after a calibration
};

// So few that other_prompts() push everything out.
Setting small(Setting setting) {
  setting.kv_tokens = kSmallTokens;
  return setting;
}

class RankedTiersBits : public testing::TestWithParam<std::string_view> {
 protected:
  using Work = std::function<void(ServedTrial& trial)>;

  void SetUp() override {
    set_log_level(LogLevel::kWarning);
    ASSERT_TRUE(
        write_random_model(model_.path(), {.config = config_, .type = WeightType::kBf16}).ok());
  }

  // Of each of `ranks`.
  ServedModelOptions options(const Setting& setting, int ranks) const {
    KvShape shape = config_.pool_shape();
    shape.dtype = try_parse_dtype(setting.kv_dtype).value_or(DType::kBF16);
    if (shape.kind != KvKind::kMla) shape.heads /= ranks;
    ServedModelOptions options = trial_options(model_.path(), setting);
    options.kv_bytes = setting.kv_tokens * config_.layers * shape.token_bytes();
    options.kv_dtype = setting.kv_dtype;
    options.tiers = setting.tiers;
    if (setting.dial.has_value()) options.sparse = SparseOptions{*setting.dial, ""};
    options.engine.kv.tiers = {.write_policy = setting.policy,
                               .demote_ahead_pages = 160 / setting.page_size + 1,
                               .load_wait_us = kLongUs,
                               .load_by_layer = setting.by_layer,
                               .store_deadline_us = kLongUs};
    return options;
  }

  // What an engine alone does, with nothing cached, one request at a time.
  void alone(const Work& work, const Setting& setting = {}) const {
    Setting plain = {.concurrency = 1, .kv_dtype = setting.kv_dtype, .cache = "none"};
    plain.tiers.codec = setting.tiers.codec;
    plain.dial = setting.dial;
    ServedTrial trial = open_trial(options(plain, 1));
    work(trial);
  }
  Outcome cold(const Setting& setting = {}) const {
    Outcome outcome;
    alone([&](ServedTrial& trial) { outcome = trial.run(); }, setting);
    return outcome;
  }

  // What an engine over two ranks does. All of them have ended when this returns.
  void together(const Setting& setting, const Work& work) const {
    serve_on_ranks(kRanks, options(setting, kRanks), work);
  }
  // The prompts, which are to get what an engine alone gives; what can be copied to stores is there
  // afterwards. How many pages came from stores, of whatever layers.
  std::int64_t run_and_close(const Setting& setting, const Outcome& plain) const {
    std::int64_t loaded = 0;
    together(setting, [&](ServedTrial& trial) {
      expect_same_bits(plain, trial.run());
      trial.engine->settle(kLong);
      for (const char* const tier : {"disk", "remote", "windowed"}) {
        const std::string name = "stemma_" + std::string(tier) + "_loaded_pages_total";
        const bool counted = tier != std::string_view("windowed") || config_.windows.tokens > 0;
        if (counted) loaded += metric_of(*trial.engine, name);
      }
    });
    return loaded;
  }
  // The prompts, others that push them out, the prompts again.
  static std::pair<Outcome, Outcome> come_back(ServedTrial& trial) {
    Outcome first = trial.run();
    trial.engine->settle(kLong);
    trial.run({.prompts = other_prompts()});
    trial.engine->settle(kLong);
    return {std::move(first), trial.run()};
  }
  void expect_back_from_host(const Setting& setting, const Outcome& plain) const {
    together(setting, [&](ServedTrial& trial) {
      const auto [first, second] = come_back(trial);
      EXPECT_GT(second.totals.evicted_pages, 0);
      expect_same_bits(plain, first);
      expect_same_bits(plain, second);
      EXPECT_GT(second.brought.host, 0)
          << write_policy_name(setting.policy) << ", page size " << setting.page_size;
    });
  }

  TempDirectory model_;
  ModelConfig config_ = tiny_model_config(GetParam());
};

TEST_P(RankedTiersBits, FromHostMemoryUnderEachWritePolicyAndPageSize) {
  const Outcome plain = cold();
  for (const WritePolicy policy : kPolicies) {
    for (const std::int64_t page_size : {4, 16}) {
      SCOPED_TRACE(testing::Message() << write_policy_name(policy) << ", page size " << page_size);
      expect_back_from_host(small({.page_size = page_size, .tiers = host_only(), .policy = policy}),
                            plain);
    }
  }
}

TEST_P(RankedTiersBits, FromHostMemoryOfEightBits) {
  const Setting setting = {.page_size = 4, .chunk_tokens = 9, .kv_dtype = "int8"};
  const Outcome plain = cold(setting);
  Setting tiered = small(setting);
  tiered.tiers = host_only();
  expect_back_from_host(tiered, plain);
}

// Labels go where their keys go; each rank chooses tokens for its own heads.
TEST_P(RankedTiersBits, FromHostMemoryWithSparseAttention) {
  if (config_.windows.tokens > 0 || config_.latent.rank > 0) {
    GTEST_SKIP() << "sparse attention is not for windows or latent rows";
  }
  const auto dense = opened_for_trial(ServedModel::open(options({}, 1)));
  ASSERT_TRUE(save_calibration_of(dense->runner(), model_.path()).ok());
  const SparseDial quarter = {.dense_tokens = 16, .kept_tokens = 1, .kept_of = 4};
  Setting setting = small({.page_size = 4, .tiers = host_only(), .dial = quarter});
  const Outcome plain = cold(setting);
  expect_back_from_host(setting, plain);
}

// Steps that begin before pages are whole: each rank waits for the layers of its own.
TEST_P(RankedTiersBits, FromHostMemoryLayerByLayer) {
  const Outcome plain = cold();
  for (const bool by_layer : {true, false}) {
    const Setting setting =
        small({.page_size = 4, .concurrency = 2, .tiers = host_only(), .by_layer = by_layer});
    together(setting, [&](ServedTrial& trial) {
      expect_same_bits(plain, come_back(trial).second);
      const bool lends = by_layer && config_.windows.tokens == 0;
      EXPECT_EQ(metric_of(*trial.engine, "stemma_lent_pages_total") > 0, lends);
    });
  }
}

TEST_P(RankedTiersBits, FromDiskAfterARestartOfAll) {
  const Outcome plain = cold();
  const TempDirectory directory;
  const Setting setting = {.page_size = 4, .tiers = on_disk(directory.file("disk"))};
  EXPECT_EQ(run_and_close(setting, plain), 0);
  EXPECT_GT(run_and_close(setting, plain), 0);
}

// What one rank lost is nobody's: it is computed, and stored anew.
TEST_P(RankedTiersBits, ADiskThatOneRankLostIsAMissAndFillsAgain) {
  const Outcome plain = cold();
  const TempDirectory directory;
  const Setting setting = {.page_size = 4, .tiers = on_disk(directory.file("disk"))};
  EXPECT_EQ(run_and_close(setting, plain), 0);
  std::filesystem::remove_all(directory.file("disk") + "/rank1of2");
  EXPECT_EQ(run_and_close(setting, plain), 0);
  EXPECT_GT(run_and_close(setting, plain), 0);
}

TEST_P(RankedTiersBits, AnotherRanksDiskIsNeverTakenForItsOwn) {
  const Outcome plain = cold();
  const TempDirectory directory;
  const Setting setting = {.page_size = 4, .tiers = on_disk(directory.file("disk"))};
  EXPECT_EQ(run_and_close(setting, plain), 0);
  std::filesystem::remove_all(directory.file("disk") + "/rank1of2");
  std::filesystem::copy(directory.file("disk") + "/rank0of2", directory.file("disk") + "/rank1of2",
                        std::filesystem::copy_options::recursive);
  together(setting, [&](ServedTrial& trial) {
    const Outcome outcome = trial.run();
    EXPECT_EQ(outcome.brought.disk, 0);
    expect_same_bits(plain, outcome);
    EXPECT_GT(metric_of(*trial.engine, "stemma_disk_load_corrupt_pages_total"), 0);
  });
}

// Where something is written, and not zeros up to the next page frame.
std::size_t middle_of(const std::string& file) {
  return std::filesystem::file_size(file) / 2 / kFrameAlignment * kFrameAlignment;
}

// What one life saved in the files of both ranks the next one has; what one of them lost, cannot
// read or took from the other costs time alone.
TEST_P(RankedTiersBits, FromTheFilesOfBothHostMemoriesAfterARestart) {
  const Outcome plain = cold();
  const TempDirectory directory;
  Setting setting = {.page_size = 4, .tiers = host_only()};
  setting.tiers.host_file = directory.file("host");
  struct Life {
    std::int64_t loaded = 0;  // pages of the file that was there
    std::int64_t saved = 0;   // to the one that the next life has
  };
  const auto live = [&] {
    Life life;
    together(setting, [&](ServedTrial& trial) {
      life.loaded = metric_of(*trial.engine, "stemma_host_file_loaded_pages_total");
      const Outcome outcome = trial.run();
      expect_same_bits(plain, outcome);
      EXPECT_EQ(outcome.brought.host > 0, life.loaded > 0);
      trial.engine->settle(kLong);
      life.saved = metric_of(*trial.engine, "stemma_host_file_saved_pages");
      EXPECT_GT(life.saved, 0);
    });
    return life;
  };
  const std::string own = setting.tiers.host_file + ".rank1of2";
  Life before = live();
  EXPECT_EQ(before.loaded, 0);
  Life now = live();
  EXPECT_EQ(now.loaded, before.saved);
  std::filesystem::remove(own);
  now = live();
  EXPECT_EQ(now.loaded, 0) << "one of them lost its own";
  before = std::exchange(now, live());
  EXPECT_EQ(now.loaded, before.saved) << "it was written anew";
  std::filesystem::copy_file(setting.tiers.host_file + ".rank0of2", own,
                             std::filesystem::copy_options::overwrite_existing);
  now = live();
  EXPECT_EQ(now.loaded, 0) << "one of them has the other's";
  flip_bit(own, middle_of(own));
  before = std::exchange(now, live());
  EXPECT_LT(now.loaded, before.saved);
  std::filesystem::resize_file(own, std::filesystem::file_size(own) / 2);
  before = std::exchange(now, live());
  EXPECT_LT(now.loaded, before.saved);
  before = std::exchange(now, live());
  EXPECT_EQ(now.loaded, before.saved);
  if (config_.windows.tokens == 0) return;
  flip_bit(own + ".windows", middle_of(own + ".windows"));
  before = std::exchange(now, live());
  EXPECT_LT(now.loaded, before.saved) << "of its layers with a window";
}

TEST_P(RankedTiersBits, FromARedisServerThatBothShare) {
  const Outcome plain = cold();
  const TempDirectory directory;
  const auto server = RedisProcess::start({.directory = directory.path()});
  ASSERT_TRUE(server.ok()) << to_string(server.error());
  const Setting setting = {.page_size = 4, .tiers = on_remote(server->unix_url())};
  EXPECT_EQ(run_and_close(setting, plain), 0);
  EXPECT_GT(run_and_close(setting, plain), 0);
}

// Requests that fork while pages come and go: copies of pages and of tiers are told in one order.
TEST_P(RankedTiersBits, ForksAnswerAsTheyDoAlone) {
  using Answers = std::vector<std::vector<TokenId>>;
  const auto ask = [](ServedTrial& trial) {
    Answers answers;
    const auto prompts = shared_prompts();
    for (int round = 0; round < 3; ++round) {
      for (std::size_t i = 0; i < 4; ++i) {
        RequestSpec spec;
        spec.prompt = prompts[i];
        spec.max_tokens = 6;
        spec.copies = 3;
        spec.sampling.temperature = 0.9f;
        spec.sampling.seed = 5 + i;
        spec.namespace_digest = trial.model->namespace_digest();
        const auto first = trial.engine->submit(std::move(spec));
        STEMMA_CHECK(first.ok(), "the request is right");
        Answers copies(3);
        while (!trial.engine->idle()) {
          for (const EngineEvent& event : trial.engine->step().events) {
            EXPECT_NE(event.finish, FinishReason::kFailed) << to_string(event.error);
            const std::size_t copy = event.request.index() - first->index();
            if (event.token >= 0) copies[copy].push_back(event.token);
          }
        }
        answers.insert(answers.end(), copies.begin(), copies.end());
      }
      trial.engine->settle(kLong);
      trial.run({.prompts = other_prompts()});
    }
    return answers;
  };
  Answers expected;
  alone([&](ServedTrial& trial) { expected = ask(trial); });
  together(small({.page_size = 4, .tiers = host_only()}), [&](ServedTrial& trial) {
    EXPECT_EQ(ask(trial), expected);
    EXPECT_GT(metric_of(*trial.engine, "stemma_host_loaded_pages_total"), 0);
  });
}

// Nobody waits for what is under way when the engine goes, and nothing of it is left behind.
TEST_P(RankedTiersBits, EndingWithCopiesUnderWayEndsThemOnAllRanks) {
  const TempDirectory directory;
  Setting setting = small({.page_size = 4, .tiers = on_disk(directory.file("disk"))});
  setting.tiers.host_bytes = std::int64_t{1} << 20;
  const Outcome plain = cold();
  for (int life = 0; life < 6; ++life) {
    together(setting, [&](ServedTrial& trial) { expect_same_bits(plain, trial.run()); });
  }
}

INSTANTIATE_TEST_SUITE_P(Families, RankedTiersBits,
                         testing::Values("llama3", "deepseek_v2", "gemma3"),
                         [](const auto& family) { return std::string(family.param); });

}  // namespace
}  // namespace stemma
