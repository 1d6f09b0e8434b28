// Engines that share pages through real redis-servers: one, and a cluster of three. What the first
// computed the second finds, says so, and answers with equal tokens and logits bit for bit; so it
// does where the server loses its pages or dies meanwhile, where both compute the same at once, and
// where the two are processes of the program.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "engine/served_model.h"
#include "stemma/log.h"
#include "tiers/program_trial.h"
#include "tiers/redis_servers.h"
#include "transparency/engine_trial.h"

namespace stemma {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::chrono::seconds kLong(60);
constexpr std::int64_t kLongUs = 60'000'000;

const std::string kScribe = std::string(STEMMA_SOURCE_DIR) + "/models/scribe-3m";

// An engine as `stemma` opens it.
struct ServedEngine {
  std::unique_ptr<ServedModel> model;
  std::unique_ptr<LogitsRecorder> recorder;
  std::unique_ptr<Engine> engine;

  static ServedEngine open(const ServedModelOptions& options) {
    ServedEngine served;
    auto model = ServedModel::open(options);
    STEMMA_CHECK(model.ok(), "it opens");
    served.model = std::move(model).value();
    served.recorder = std::make_unique<LogitsRecorder>(served.model->runner());
    auto engine = served.model->open_engine(&*served.recorder);
    STEMMA_CHECK(engine.ok(), "it opens");
    served.engine = std::move(engine).value();
    return served;
  }
  Outcome run(const std::function<void(std::int64_t)>& before_step = [](std::int64_t) {}) {
    return run_trial(*engine, *recorder, {.digest = model->namespace_digest()}, before_step);
  }
  void settle() { engine->settle(kLong); }
};

class RemoteSharing : public testing::TestWithParam<std::size_t> {
 protected:
  RemoteSharing() : servers_(GetParam()) { set_log_level(LogLevel::kError); }
  ~RemoteSharing() override { set_log_level(LogLevel::kInfo); }

  ServedModelOptions options(const std::string& model = kScribe) const {
    ServedModelOptions options;
    options.directory = model;
    options.kv_bytes = std::int64_t{32} << 20;
    options.engine.kv.page_size = 8;
    options.engine.kv.requests_max = 2;
    options.engine.kv.context_tokens_max = 256;
    options.engine.kv.tiers = {.write_policy = WritePolicy::kWriteThrough,
                               .load_wait_us = kLongUs,
                               .store_deadline_us = kLongUs};
    options.tiers.remote_url = servers_.url();
    return options;
  }
  // Without tiers.
  Outcome cold() const {
    ServedModelOptions plain = options();
    plain.tiers = {};
    plain.engine.kv.cache = "none";
    return ServedEngine::open(plain).run();
  }
  std::string remote() const { return "--remote " + servers_.url() + " "; }

  RedisServers servers_;
};

TEST_P(RemoteSharing, TheSecondEngineFindsWhatTheFirstComputed) {
  const Outcome plain = cold();
  ServedEngine first = ServedEngine::open(options());
  const Outcome computed = first.run();
  first.settle();
  EXPECT_EQ(computed.brought.remote, 0);
  for (std::size_t i = 0; i < servers_.nodes(); ++i) EXPECT_GT(servers_.values(i), 0);
  ServedEngine second = ServedEngine::open(options());
  const Outcome found = second.run();
  EXPECT_GE(found.brought.remote, 64);
  expect_same_bits(plain, computed);
  expect_same_bits(plain, found);
}

// Neither waits for the other, and both write the same pages.
TEST_P(RemoteSharing, TwoEnginesComputeTheSameAtOnce) {
  const Outcome plain = cold();
  std::vector<Outcome> outcomes(2);
  const auto serve = [&](std::size_t which) {
    ServedModelOptions mine = options();
    mine.engine.kv.tiers.load_wait_us = 0;
    ServedEngine engine = ServedEngine::open(mine);
    outcomes[which] = engine.run();
    engine.settle();
  };
  {
    const std::jthread other(serve, 1);
    serve(0);
  }
  for (const Outcome& outcome : outcomes) expect_same_bits(plain, outcome);
  const Outcome third = ServedEngine::open(options()).run();
  EXPECT_GE(third.brought.remote, 64);
  expect_same_bits(plain, third);
}

// Row 10, of whole engines: whatever a load was about when the pages went.
TEST_P(RemoteSharing, AServerThatLosesItsPagesInTheMiddleCostsTimeOnly) {
  const Outcome plain = cold();
  for (std::int64_t lost_at = 0; lost_at < 12; lost_at += 3) {
    SCOPED_TRACE(testing::Message() << "before step " << lost_at);
    {
      ServedEngine first = ServedEngine::open(options());
      expect_same_bits(plain, first.run());
      first.settle();
    }
    ServedEngine second = ServedEngine::open(options());
    expect_same_bits(plain, second.run([&](std::int64_t step) {
      if (step == lost_at) servers_.flush();
    }));
    second.settle();
    servers_.flush();
  }
}

TEST_P(RemoteSharing, AServerThatDiesInTheMiddleCostsTimeOnly) {
  const Outcome plain = cold();
  ServedEngine first = ServedEngine::open(options());
  expect_same_bits(plain, first.run());
  first.settle();
  ServedEngine second = ServedEngine::open(options());
  expect_same_bits(plain, second.run([&](std::int64_t step) {
    if (step == 3) servers_.kill(0);
  }));
  ServedEngine third = ServedEngine::open(options());
  const Outcome after = third.run();
  if (servers_.nodes() == 1) {
    EXPECT_EQ(after.brought.remote, 0);
  }
  expect_same_bits(plain, after);
}

TEST_P(RemoteSharing, TwoProcessesOfTheProgram) {
  ProgramTrial trial;
  const std::string prompts = trial.prompts(1);
  const ProgramAnswers plain = trial.cold(prompts);
  const ProgramAnswers first = trial.generate(prompts, remote());
  const ProgramAnswers second = trial.generate(prompts, remote() + "--kv-layout page_first");
  EXPECT_EQ(first.brought.remote, 0);
  EXPECT_GE(second.brought.remote, 64);
  expect_same_answers(plain, first);
  expect_same_answers(plain, second);
}

// Row 16: nothing of another model, dtype or page size is found, though the server has it.
TEST_P(RemoteSharing, ProcessesOfOtherModelsShareNothing) {
  ProgramTrial trial;
  ProgramTrial other(2);
  const std::string prompts = trial.prompts(1);
  expect_same_answers(trial.cold(prompts), trial.generate(prompts, remote()));
  for (const std::string flags : {"--kv-dtype f16", "--page-size 8"}) {
    const ProgramAnswers now = trial.generate(prompts, remote() + flags);
    EXPECT_EQ(now.brought.remote, 0) << flags;
    expect_same_answers(trial.cold(prompts, flags), now);
  }
  const ProgramAnswers now = other.generate(prompts, remote());
  EXPECT_EQ(now.brought.remote, 0);
  expect_same_answers(other.cold(prompts), now);
  EXPECT_NE(now.logits, trial.cold(prompts).logits);
}

// Pages that were sealed with one secret are none to whoever has another.
TEST_P(RemoteSharing, OnlyWhoKnowsTheSecretFindsPages) {
  ProgramTrial trial;
  const std::string prompts = trial.prompts(1);
  const ProgramAnswers plain = trial.cold(prompts);
  const auto with_secret = [&](const std::string& secret) {
    const std::string path = trial.file("secret");
    std::ofstream(path, std::ios::binary) << secret << "\n";
    return trial.generate(prompts, remote() + "--remote-secret " + path);
  };
  expect_same_answers(plain, with_secret("sesame"));
  const ProgramAnswers same = with_secret("sesame");
  EXPECT_GE(same.brought.remote, 64);
  expect_same_answers(plain, same);
  const ProgramAnswers another = with_secret("mustard");
  EXPECT_EQ(another.brought.remote, 0);
  expect_same_answers(plain, another);
}

INSTANTIATE_TEST_SUITE_P(Servers, RemoteSharing, testing::Values(1, 3), [](const auto& param_info) {
  return param_info.param == 1 ? std::string("OneServer") : std::string("ClusterOfThree");
});

}  // namespace
}  // namespace stemma
