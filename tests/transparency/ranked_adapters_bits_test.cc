// I13 with adapters over two ranks: requests of different adapters and of none get the tokens and
// the logits that one rank gives them without a cache, bit for bit: whatever was cached, however
// prompts were chunked and batched, and after the host memory and disks of both ranks. Pages are
// found by whom they are found on one rank.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/temp_directory.h"
#include "model/tiny_config.h"
#include "sim/metric_of.h"
#include "transparency/adapted_model.h"
#include "transparency/ranked_trial.h"
#include "transparency/tier_settings.h"

namespace stemma {
namespace {

struct Setting {
  std::int64_t page_size = 4;
  std::int64_t chunk_tokens = 512;
  std::int64_t concurrency = 3;
  int threads = 1;
  std::string cache = "radix";
  std::int64_t kv_tokens = 8192;  // of all heads: a rank has room for as many of its own
  std::vector<std::string> loaded = {"a", "again", "b"};
  ServedTierOptions tiers = {};
};

class RankedAdapters : public testing::TestWithParam<std::string_view> {
 protected:
  static constexpr int kRanks = 2;

  ServedModelOptions options(const Setting& setting, int ranks) const {
    KvShape shape = config_.pool_shape();
    shape.dtype = DType::kBF16;
    if (shape.kind != KvKind::kMla) shape.heads /= ranks;
    ServedModelOptions options = trial_options(model_.path(), setting);
    options.kv_bytes = setting.kv_tokens * config_.layers * shape.token_bytes();
    options.adapters = model_.sources(setting.loaded);
    options.tiers = setting.tiers;
    options.engine.kv.tiers = {.write_policy = WritePolicy::kWriteThrough,
                               .load_wait_us = kLongUs,
                               .store_deadline_us = kLongUs};
    return options;
  }

  // What one rank gives, with nothing cached, one request at a time.
  Outcome cold() const {
    ServedTrial trial = open_trial(options({.concurrency = 1, .cache = "none"}, 1));
    return trial.run({.adapters = kInTurn});
  }
  template <typename Work>
  void together(const Setting& setting, const Work& work) const {
    serve_on_ranks(kRanks, options(setting, kRanks), work);
  }

  const std::vector<std::string> kInTurn = {"a", "", "b", "again"};
  ModelConfig config_ = tiny_model_config(GetParam());
  AdaptedModel model_{config_};
  TempDirectory disk_;
};

TEST_P(RankedAdapters, CachedInAnyChunksAndBatches) {
  const Outcome plain = cold();
  for (const std::int64_t page_size : {1, 16}) {
    for (const std::int64_t chunk_tokens : {7, 512}) {
      SCOPED_TRACE(testing::Message() << page_size << " a page, chunks of " << chunk_tokens);
      const Setting setting = {.page_size = page_size,
                               .chunk_tokens = chunk_tokens,
                               .threads = chunk_tokens == 7 ? 2 : 1};
      together(setting, [&](ServedTrial& trial) {
        const Outcome cached = trial.run({.adapters = kInTurn});
        EXPECT_GT(cached.cached_tokens, 0);
        expect_same_bits(plain, cached);
      });
    }
  }
}

// The same prompt, by turns: the first of each finds nothing, but for the adapter loaded twice.
TEST_P(RankedAdapters, WhoFindsPagesOfWhom) {
  together({.page_size = 16, .concurrency = 1}, [&](ServedTrial& trial) {
    const auto cached_by = [&](const std::string& adapter) {
      return trial.run({.prompts = {shared_prompts()[0]}, .adapters = {adapter}}).cached_tokens;
    };
    for (const char* adapter : {"", "a", "b"}) EXPECT_EQ(cached_by(adapter), 0) << adapter;
    for (const char* adapter : {"", "a", "b", "again"}) {
      EXPECT_EQ(cached_by(adapter), 112) << adapter;
    }
  });
}

// The prompts, others that push them out, the prompts again.
TEST_P(RankedAdapters, FromTheHostMemoryOfBoth) {
  const Outcome plain = cold();
  Setting setting;
  setting.kv_tokens = kSmallTokens;
  setting.tiers = host_only();
  together(setting, [&](ServedTrial& trial) {
    expect_same_bits(plain, trial.run({.adapters = kInTurn}));
    trial.engine->settle(kLong);
    trial.run({.prompts = other_prompts()});
    trial.engine->settle(kLong);
    const Outcome back = trial.run({.adapters = kInTurn});
    EXPECT_GT(back.brought.host, 0);
    expect_same_bits(plain, back);
  });
}

// As in other processes: what "a" wrote is found by "again", which alone is loaded.
TEST_P(RankedAdapters, FromTheDisksOfBothUnderAnotherName) {
  const Outcome plain = cold();
  Setting setting;
  setting.page_size = 16;
  setting.tiers = on_disk(disk_.path());
  together(setting, [&](ServedTrial& trial) {
    expect_same_bits(plain, trial.run({.adapters = kInTurn}));
    trial.engine->settle(kLong);
  });
  setting.loaded = {"again"};
  setting.concurrency = 1;
  together(setting, [&](ServedTrial& trial) {
    const Outcome found = trial.run({.adapters = {"again", "", "", "again"}});
    EXPECT_GT(metric_of(*trial.engine, "stemma_disk_loaded_pages_total"), 0);
    if (config_.windows.tokens == 0) {
      EXPECT_GT(found.stats[0].brought.disk, 0);
    }
    for (std::size_t request = 0; request < plain.logits.size(); ++request) {
      if (request % 4 == 2) continue;  // of b, which nobody asks for now
      EXPECT_EQ(found.logits[request], plain.logits[request]) << request;
    }
    EXPECT_EQ(metric_of(*trial.engine, "stemma_disk_load_corrupt_pages_total"), 0);
  });
}

INSTANTIATE_TEST_SUITE_P(Families, RankedAdapters,
                         testing::Values("llama3", "qwen3_moe", "deepseek_v2", "gemma2"),
                         [](const auto& family) { return std::string(family.param); });

}  // namespace
}  // namespace stemma
