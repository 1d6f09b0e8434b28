// I13 over the whole engine: the tokens and the logits of a request are equal bit for bit whatever
// was cached, however its prompt was chunked, whoever shared its batch, whatever was evicted and
// computed again, and on any number of threads. Random models of every family, prompts that share
// prefixes; every case counts that the path it is about ran.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <numeric>
#include <vector>

#include "base/prng.h"
#include "base/temp_directory.h"
#include "cli/logits_recorder.h"
#include "engine/served_model.h"
#include "model/random_model.h"

namespace stemma {
namespace {

constexpr std::int64_t kOutputTokens = 5;

// How a run differs from the plainest one.
struct Setting {
  std::string cache = "radix";
  std::int64_t page_size = 16;
  std::int64_t chunk_tokens = 512;
  std::int64_t concurrency = 4;
  int threads = 1;
  std::string kv_layout = "layer_first";
  std::int64_t kv_bytes = std::int64_t{8} << 20;
  SchedulePolicy policy = SchedulePolicy::kFcfs;
};

// What a run gave, request by request, and what it cost.
struct Outcome {
  std::vector<std::vector<TokenId>> tokens;
  std::map<RequestId, std::vector<float>> logits;
  std::int64_t cached_tokens = 0;
  std::int64_t steps = 0;
  EngineTotals totals;
};

std::vector<TokenId> random_tokens(Prng& prng, std::int64_t count) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(count));
  for (TokenId& token : tokens) token = static_cast<TokenId>(prng.below(256));
  return tokens;
}

// Sixteen prompts: all share 70 tokens, pairs share 40 more, one in four is the same as another.
std::vector<std::vector<TokenId>> shared_prompts() {
  Prng prng(11);
  const std::vector<TokenId> common = random_tokens(prng, 70);
  std::vector<std::vector<TokenId>> prompts;
  std::vector<TokenId> pair;
  for (int i = 0; i < 16; ++i) {
    if (i % 2 == 0) pair = random_tokens(prng, 40);
    std::vector<TokenId> prompt = common;
    prompt.insert(prompt.end(), pair.begin(), pair.end());
    const std::vector<TokenId> own = random_tokens(prng, 3 + i);
    prompt.insert(prompt.end(), own.begin(), own.end());
    prompts.push_back(i % 4 == 3 ? prompts[static_cast<std::size_t>(i) - 2] : prompt);
  }
  return prompts;
}

class EngineBits : public testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(write_random_model(directory_.path(), {.config = tiny_model_config(GetParam()),
                                                       .type = WeightType::kBf16})
                    .ok());
  }

  Outcome run(const Setting& setting) {
    ServedModelOptions options;
    options.directory = directory_.path();
    options.kv_bytes = setting.kv_bytes;
    options.kv_layout = setting.kv_layout;
    options.threads = setting.threads;
    options.engine.kv.page_size = setting.page_size;
    options.engine.kv.requests_max = setting.concurrency;
    options.engine.kv.context_tokens_max = 256;
    options.engine.kv.cache = setting.cache;
    options.engine.scheduler.policy = setting.policy;
    options.engine.scheduler.chunk_tokens_max = setting.chunk_tokens;
    options.engine.scheduler.step_tokens_max = std::max(setting.chunk_tokens, setting.concurrency);
    const auto model = ServedModel::open(options);
    if (!model.ok()) {
      ADD_FAILURE() << to_string(model.error());
      return {};
    }
    LogitsRecorder recorder((*model)->runner());
    const auto engine = (*model)->open_engine(&recorder);
    if (!engine.ok()) {
      ADD_FAILURE() << to_string(engine.error());
      return {};
    }
    Outcome outcome = drive(**engine);
    outcome.logits = recorder.rows();
    return outcome;
  }

 private:
  static Outcome drive(Engine& engine) {
    Outcome outcome;
    for (std::vector<TokenId>& prompt : shared_prompts()) {
      RequestSpec spec;
      spec.prompt = std::move(prompt);
      spec.max_tokens = kOutputTokens;
      EXPECT_TRUE(engine.submit(std::move(spec)).ok());
      outcome.tokens.emplace_back();
    }
    for (bool idle = false; !idle; idle = engine.idle()) {
      for (const EngineEvent& event : engine.step().events) {
        EXPECT_NE(event.finish, FinishReason::kFailed) << to_string(event.error);
        if (event.token >= 0) outcome.tokens[event.request.index()].push_back(event.token);
        if (event.finish != FinishReason::kNone) outcome.cached_tokens += event.stats.cached_tokens;
      }
      ++outcome.steps;
    }
    EXPECT_EQ(engine.audit(), std::nullopt);
    outcome.totals = engine.totals();
    return outcome;
  }

  TempDirectory directory_;
};

void expect_same_bits(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.tokens, b.tokens);
  ASSERT_EQ(a.logits.size(), b.logits.size());
  for (const auto& [request, rows] : a.logits) {
    const std::vector<float>& others = b.logits.at(request);
    ASSERT_EQ(rows.size(), others.size());
    EXPECT_EQ(std::memcmp(rows.data(), others.data(), rows.size() * sizeof(float)), 0)
        << "request " << request;
  }
}

// Nothing cached, one request at a time, one thread, whole prompts.
const Setting kPlain = {.cache = "none", .concurrency = 1};

TEST_P(EngineBits, CacheOnAndOff) {
  const Outcome plain = run(kPlain);
  ASSERT_EQ(plain.tokens.size(), 16u);
  for (const auto& tokens : plain.tokens) EXPECT_EQ(tokens.size(), 5u);
  EXPECT_EQ(plain.cached_tokens, 0);
  for (const std::int64_t page_size : {1, 16, 64}) {
    SCOPED_TRACE(testing::Message() << "page size " << page_size);
    const Outcome cached = run({.page_size = page_size, .concurrency = 1});
    EXPECT_GE(cached.cached_tokens, 15 * 64);  // the cached path ran: at least the shared 64
    expect_same_bits(plain, cached);
  }
}

TEST_P(EngineBits, AnyChunkSize) {
  const Outcome plain = run(kPlain);
  for (const std::int64_t chunk_tokens : {1, 2, 3, 7, 16, 33, 100}) {
    SCOPED_TRACE(testing::Message() << "chunks of " << chunk_tokens);
    const Outcome chunked = run({.chunk_tokens = chunk_tokens, .concurrency = 1});
    if (chunk_tokens <= 7) {
      EXPECT_GT(chunked.steps, plain.steps);  // prompts were really cut
    }
    EXPECT_GT(chunked.cached_tokens, 0);
    expect_same_bits(plain, chunked);
  }
}

TEST_P(EngineBits, AnyBatch) {
  const Outcome plain = run(kPlain);
  for (const std::int64_t concurrency : {2, 3, 5, 8, 16}) {
    SCOPED_TRACE(testing::Message() << concurrency << " at a time");
    const Outcome batched = run({.page_size = 1, .concurrency = concurrency});
    EXPECT_LT(batched.steps, plain.steps);  // several requests shared a step
    expect_same_bits(plain, batched);
    expect_same_bits(plain, run({.cache = "none", .concurrency = concurrency}));
  }
}

TEST_P(EngineBits, MixedStepsOfPromptsAndOutputs) {
  const Outcome plain = run(kPlain);
  for (const SchedulePolicy policy : {SchedulePolicy::kLpm, SchedulePolicy::kShortestUncachedFirst,
                                      SchedulePolicy::kDfsWeight, SchedulePolicy::kRandom}) {
    expect_same_bits(plain, run({.chunk_tokens = 24, .concurrency = 6, .policy = policy}));
  }
}

TEST_P(EngineBits, AnyNumberOfThreadsAndEitherLayout) {
  const Outcome plain = run(kPlain);
  expect_same_bits(plain, run({.threads = 2}));
  expect_same_bits(plain, run({.page_size = 1, .threads = 3, .kv_layout = "page_first"}));
}

TEST_P(EngineBits, AfterEvictionAndPreemption) {
  const Outcome plain = run(kPlain);
  const ModelConfig config = tiny_model_config(GetParam());
  const std::int64_t token_bytes = 2 * 2 * config.layers * config.kv_heads * config.head_dim;
  const Outcome tight = run({.page_size = 4, .concurrency = 8, .kv_bytes = 220 * token_bytes});
  EXPECT_GT(tight.totals.evicted_pages, 0);
  expect_same_bits(plain, tight);
}

INSTANTIATE_TEST_SUITE_P(Families, EngineBits, testing::ValuesIn(tiny_model_names()),
                         [](const auto& param_info) { return std::string(param_info.param); });

}  // namespace
}  // namespace stemma
