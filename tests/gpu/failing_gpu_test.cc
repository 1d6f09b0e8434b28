// A model that is served on a GPU of which one call or another fails, or that is lost after one
// kernel or another: who asks gets the right tokens, or an error behind the first of them; what
// has no memory says so; and where the GPU goes on, the next answers are right. What was taken is
// given back: the emulated GPU ends the program where it is not.
//
// With STEMMA_LONG_TESTS=1 many more calls and kernels are tried, of every kind of model.
#ifdef STEMMA_SIMT
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/long_tests_fixture.h"
#include "base/prng.h"
#include "base/temp_directory.h"
#include "cuda/cuda_backend.h"
#include "device/cuda_fixture.h"
#include "device/thread_ranks_fixture.h"
#include "engine/served_model.h"
#include "model/calibration_fixture.h"
#include "model/model_runner.h"
#include "model/random_adapter.h"
#include "model/random_model.h"

namespace stemma {
namespace {

using Tokens = std::vector<TokenId>;

constexpr std::int64_t kPageSize = 4;
constexpr std::int64_t kOutputs = 4;
constexpr const char* kAdapter = "adapter";
constexpr SparseDial kQuarter = {.dense_tokens = 8, .kept_tokens = 1, .kept_of = 4};

// What is served, and what with.
struct Served {
  std::string_view model = "llama2";
  std::string codec = "plain";
  bool disk = false;
  bool sparse = false;      // rows attend to some tokens
  bool adapter = false;     // placed while it runs; every other request names it
  std::int64_t copies = 1;  // of one prompt
};

struct Asked {
  Tokens prompt;
  std::string adapter;
  std::int64_t copies = 1;
};

struct Answer {
  Tokens tokens;
  FinishReason finish = FinishReason::kNone;
  Error error;
};
using Answers = std::vector<Answer>;  // of all requests, in their order

// Which calls fail.
enum class Calls { kTakingMemory, kQueueing };

ErrorCode code_of(Calls calls) {
  return calls == Calls::kTakingMemory ? ErrorCode::kOutOfMemory : ErrorCode::kInternal;
}

// The first that is tried, and how far apart they are.
struct Tried {
  std::int64_t first = 0;
  std::int64_t apart = 1;
};

Tokens drawn_text(std::int64_t tokens, std::uint64_t seed) {
  Prng prng(seed);
  Tokens text(static_cast<std::size_t>(tokens));
  for (TokenId& token : text) token = static_cast<TokenId>(prng.below(256));
  return text;
}

// Prompts that go on from the same tokens, more than the pools hold, each round asked together.
std::vector<std::vector<Asked>> rounds_of(const Served& served) {
  const Tokens common = drawn_text(3 * kPageSize, 5);
  std::vector<std::vector<Asked>> rounds;
  for (const auto& texts : {std::vector<int>{1, 2}, {3, 4}, {1, 6}}) {
    std::vector<Asked>& round = rounds.emplace_back();
    for (const int text : texts) {
      Asked asked = {common, served.adapter && text % 2 == 0 ? kAdapter : "",
                     text == 6 ? served.copies : 1};
      const Tokens own = drawn_text(6 + text, 100 + static_cast<std::uint64_t>(text));
      asked.prompt.insert(asked.prompt.end(), own.begin(), own.end());
      round.push_back(std::move(asked));
    }
  }
  return rounds;
}

// A model with its engine.
struct Life {
  std::unique_ptr<ServedModel> model;
  std::unique_ptr<Engine> engine;

  static Result<Life> open(const ServedModelOptions& options) {
    Life life;
    STEMMA_ASSIGN_OR_RETURN(life.model, ServedModel::open(options));
    if (life.model->leads()) {
      STEMMA_ASSIGN_OR_RETURN(life.engine, life.model->open_engine());
    }
    return life;
  }

  Status place_adapter(const std::string& directory) const {
    if (model->adapters().find(kAdapter)) return {};
    STEMMA_ASSIGN_OR_RETURN(Adapter adapter, model->read_adapter({kAdapter, directory}));
    return model->place_adapter(std::move(adapter));
  }

  // Every request ends once.
  Answers ask(const std::vector<std::vector<Asked>>& rounds) const {
    Answers answers;
    std::map<RequestId, std::size_t> places;
    for (const std::vector<Asked>& round : rounds) {
      for (const Asked& asked : round) submit(asked, answers, places);
      while (!engine->idle()) {
        const StepReport report = engine->step();
        for (const EngineEvent& event : report.events) {
          note(event, answers[places.at(event.request)]);
        }
        if (report.requests == 0) engine->wait_for_work(std::chrono::milliseconds(1));
      }
      engine->settle(std::chrono::hours(1));
      EXPECT_EQ(engine->audit(), std::nullopt);
    }
    return answers;
  }

 private:
  void submit(const Asked& asked, Answers& answers,
              std::map<RequestId, std::size_t>& places) const {
    RequestSpec spec;
    spec.prompt = asked.prompt;
    spec.max_tokens = kOutputs;
    spec.adapter = asked.adapter;
    spec.copies = asked.copies;
    spec.namespace_digest = model->namespace_digest();
    const auto id = engine->submit(std::move(spec));
    ASSERT_TRUE(id.ok()) << to_string(id.error());
    for (std::int64_t copy = 0; copy < asked.copies; ++copy) {
      places[RequestId(id->value() + copy)] = answers.size();
      answers.emplace_back();
    }
  }
  static void note(const EngineEvent& event, Answer& answer) {
    EXPECT_EQ(answer.finish, FinishReason::kNone);
    if (event.token >= 0) answer.tokens.push_back(event.token);
    answer.finish = event.finish;
    answer.error = event.error;
  }
};

class FailingGpu : public CudaFixture {
 protected:
  simt::Machine::Options machine_options() const override {
    simt::Machine::Options options = CudaFixture::machine_options();
    options.multiprocessors = 1;
    if (!long_tests()) options.watch = simt::Watch::kNever;
    return options;
  }

  void TearDown() override {
    backend_.reset();
    CudaFixture::TearDown();
  }

  // Writes it, and learns what is right.
  void serve(const Served& served) {
    served_ = served;
    config_ = tiny_model_config(served.model);
    ASSERT_TRUE(
        write_random_model(model_.path(), {.config = config_, .type = WeightType::kBf16}).ok());
    ASSERT_TRUE(
        write_random_adapter(adapter_.path(), {.config = config_, .targets = {"q_proj"}}).ok());
    if (served.sparse) {
      ASSERT_TRUE(save_calibration(model_.path()).ok());
    }
    rounds_ = rounds_of(served);
    backend_ = make_cuda_backend(device(), {.deterministic = true});
    const auto life = Life::open(options());
    ASSERT_TRUE(life.ok()) << to_string(life.error());
    ASSERT_TRUE(try_place(*life).ok());
    right_ = life->ask(rounds_);
    expect_all_right(right_);
    EXPECT_GT(life->engine->totals().evicted_pages, 0);
  }

  // Of one rank of two: half of each page is its own.
  ServedModelOptions options(RankGroup* group_or_null = nullptr) {
    ServedModelOptions options;
    options.directory = model_.path();
    options.backend = backend_.get();
    options.ranks = group_or_null;
    options.kv_dtype = "bf16";
    options.engine.kv.page_size = kPageSize;
    options.engine.kv.requests_max = 3;
    options.engine.kv.context_tokens_max = 64;
    options.engine.kv.tiers.write_policy = WritePolicy::kWriteThrough;
    options.engine.scheduler.step_tokens_max = 64;
    options.engine.scheduler.chunk_tokens_max = 64;
    options.engine.scheduler.scored_tokens_max = 1;
    const std::int64_t ranks = group_or_null == nullptr ? 1 : group_or_null->ranks();
    options.kv_bytes = 12 * page_bytes() / ranks;
    options.windowed_share = 1;
    if (served_.sparse) options.sparse = SparseOptions{kQuarter, ""};
    options.tiers.host_bytes = 40 * page_bytes() / ranks;
    options.tiers.codec = served_.codec;
    if (!served_.disk) return options;
    disk_.emplace();
    options.tiers.disk_directory = disk_->file("pages");
    options.tiers.disk_bytes = std::int64_t{1} << 20;
    return options;
  }

  Status try_place(const Life& life) const {
    return served_.adapter ? life.place_adapter(adapter_.path()) : Status();
  }

  void fail(Calls calls, std::int64_t passing) {
    if (calls == Calls::kTakingMemory) machine().fail_allocations(1, passing);
    if (calls == Calls::kQueueing) machine().fail_queueing(1, passing);
  }
  // Whether something has failed.
  bool stop_failing() {
    const bool failed = machine().failures_left() == 0;
    machine().fail_allocations(0);
    machine().fail_queueing(0);
    return failed;
  }

  void expect_all_right(const Answers& answers) const {
    for (std::size_t i = 0; i < answers.size(); ++i) {
      EXPECT_EQ(answers[i].finish, FinishReason::kLength) << to_string(answers[i].error);
      EXPECT_EQ(answers[i].tokens, right_[i].tokens) << "request " << i;
    }
  }
  // How many requests failed, with this error.
  int expect_right_or_failed(const Answers& answers, ErrorCode code) const {
    int failed = 0;
    EXPECT_EQ(answers.size(), right_.size());
    for (std::size_t i = 0; i < answers.size(); ++i) {
      const auto& [tokens, finish, error] = answers[i];
      const Tokens& right = right_[i].tokens;
      EXPECT_TRUE(tokens.size() <= right.size() &&
                  std::equal(tokens.begin(), tokens.end(), right.begin()))
          << "request " << i;
      if (finish == FinishReason::kLength && tokens.size() == right.size()) continue;
      EXPECT_EQ(finish, FinishReason::kFailed);
      EXPECT_EQ(error.code, code) << to_string(error);
      ++failed;
    }
    return failed;
  }

  // Of the calls while it opens each one tried is the whole's error, and it opens the next time.
  void expect_opens_behind_errors(Calls calls, const Tried& tried) {
    for (std::int64_t passing = tried.first;; passing += tried.apart) {
      SCOPED_TRACE("behind " + std::to_string(passing) + " calls");
      fail(calls, passing);
      const auto life = Life::open(options());
      if (!stop_failing()) break;
      ASSERT_FALSE(life.ok());
      ASSERT_EQ(life.error().code, code_of(calls)) << to_string(life.error());
    }
    const auto life = Life::open(options());
    ASSERT_TRUE(life.ok()) << to_string(life.error());
    expect_all_right(life->ask({{rounds_[0][0]}}));
  }

  // Of the calls while it serves.
  void expect_goes_on_behind_errors(Calls calls, const Tried& tried) {
    for (std::int64_t passing = tried.first;; passing += tried.apart) {
      SCOPED_TRACE("behind " + std::to_string(passing) + " calls");
      const auto life = Life::open(options());
      ASSERT_TRUE(life.ok()) << to_string(life.error());
      fail(calls, passing);
      const Status placed = try_place(*life);
      if (!placed.ok()) {
        EXPECT_EQ(placed.error().code, code_of(calls)) << to_string(placed.error());
        ASSERT_TRUE(try_place(*life).ok());
      }
      expect_right_or_failed(life->ask(rounds_), code_of(calls));
      if (!stop_failing()) return;
      expect_all_right(life->ask(rounds_));
      if (HasFailure()) return;
    }
  }

  // Behind one kernel or another while it serves the GPU is lost.
  void expect_answers_of_lost_gpu(const Tried& tried) {
    for (std::int64_t kernels = tried.first;; kernels += tried.apart) {
      SCOPED_TRACE("lost behind " + std::to_string(kernels) + " kernels");
      {
        const auto life = Life::open(options());
        ASSERT_TRUE(life.ok()) << to_string(life.error());
        ASSERT_TRUE(try_place(*life).ok());
        machine().fail_after_kernels(kernels);
        if (expect_right_or_failed(life->ask(rounds_), ErrorCode::kInternal) == 0) return;
        const std::int64_t failed_steps = life->engine->totals().failed_steps;
        EXPECT_GT(failed_steps, 0);
        for (const Answer& answer : life->ask({rounds_[0]})) {
          EXPECT_EQ(answer.finish, FinishReason::kFailed);
        }
        EXPECT_GT(life->engine->totals().failed_steps, failed_steps) << "health looks at them";
      }
      TearDown();
      SetUp();
      backend_ = make_cuda_backend(device(), {.deterministic = true});
      if (HasFailure()) return;
    }
  }

  // What two ranks do with their model, each on a device of its own.
  template <typename Work>
  void as_two_ranks(Work work) {
    ThreadRanks(2).run([&](RankGroup& group) {
      const auto own = CudaDevice::open(0);
      ASSERT_TRUE(own.ok());
      const auto backend = make_cuda_backend(**own, {.deterministic = true, .staged_ranks = true});
      ServedModelOptions own_options = options(&group);
      own_options.backend = backend.get();
      work(group, Life::open(own_options));
    });
  }

  std::vector<std::vector<Asked>> rounds_;

 private:
  std::int64_t page_bytes() const {
    std::int64_t bytes = 0;
    for (KvShape shape : {config_.pool_shape(), config_.windowed_pool_shape()}) {
      if (served_.sparse) {
        shape.kind = KvKind::kDoubleSparse;
        shape.label_channels = kCalibratedChannels;
      }
      shape.pages = 1;
      shape.page_size = kPageSize;
      shape.dtype = DType::kBF16;
      if (shape.layers > 0) bytes += shape.page_bytes();
    }
    return bytes;
  }

  Served served_;
  ModelConfig config_;
  TempDirectory model_;
  TempDirectory adapter_;
  std::optional<TempDirectory> disk_;
  std::unique_ptr<DeviceBackend> backend_;
  Answers right_;
};

class OpenedOnFailingGpu : public FailingGpu, public testing::WithParamInterface<Served> {};

class ServedOnFailingGpu : public OpenedOnFailingGpu {};

// Pages of every layer, windowed ones, latent rows that are packed below the device, labels.
std::vector<Served> all_served() {
  return {{.model = "llama2", .disk = true, .adapter = true, .copies = 2},
          {.model = "gemma3"},
          {.model = "deepseek_v2", .codec = "int8"},
          {.model = "qwen3", .sparse = true}};
}
std::vector<Served> some_served() {
  std::vector<Served> all = all_served();
  if (!long_tests()) all.resize(1);
  return all;
}
std::string name_of(const testing::TestParamInfo<Served>& served) {
  return std::string(served.param.model);
}

TEST_P(OpenedOnFailingGpu, OpensOrSaysWhatFailed) {
  ASSERT_NO_FATAL_FAILURE(serve(GetParam()));
  expect_opens_behind_errors(Calls::kTakingMemory, {0, long_tests() ? 1 : 15});
  expect_opens_behind_errors(Calls::kQueueing, {1, long_tests() ? 1 : 26});
}

TEST_P(ServedOnFailingGpu, AnswersRightWithoutMemoryForMore) {
  ASSERT_NO_FATAL_FAILURE(serve(GetParam()));
  expect_goes_on_behind_errors(Calls::kTakingMemory, {0, long_tests() ? 1 : 7});
}

TEST_P(ServedOnFailingGpu, AnswersRightOrFailsWhatWasNotQueued) {
  ASSERT_NO_FATAL_FAILURE(serve(GetParam()));
  expect_goes_on_behind_errors(Calls::kQueueing, {110, long_tests() ? 61 : 470});
}

TEST_P(ServedOnFailingGpu, LostAmidAnythingFailsWhatItCannotAnswer) {
  ASSERT_NO_FATAL_FAILURE(serve(GetParam()));
  expect_answers_of_lost_gpu({90, long_tests() ? 37 : 260});
}

INSTANTIATE_TEST_SUITE_P(All, OpenedOnFailingGpu, testing::ValuesIn(all_served()), name_of);
INSTANTIATE_TEST_SUITE_P(Some, ServedOnFailingGpu, testing::ValuesIn(some_served()), name_of);

TEST_F(FailingGpu, OfTwoRanksNoneOpensWhereOneCannot) {
  ASSERT_NO_FATAL_FAILURE(serve({}));
  const std::int64_t apart = long_tests() ? 1 : 37;
  bool failed = true;
  for (std::int64_t passing = 0; failed; passing += apart) {
    SCOPED_TRACE("behind " + std::to_string(passing) + " calls");
    fail(Calls::kTakingMemory, passing);
    std::vector<std::optional<ErrorCode>> errors(2);
    as_two_ranks([&](RankGroup& group, const Result<Life>& life) {
      if (!life.ok()) errors[static_cast<std::size_t>(group.rank())] = life.error().code;
      const bool follows = life.ok() && group.rank() > 0;
      EXPECT_TRUE(!follows || life->model->follow().ok());
    });
    failed = stop_failing();
    const auto expected = failed ? std::optional(ErrorCode::kOutOfMemory) : std::nullopt;
    EXPECT_EQ(errors, std::vector(2, expected));
  }
}

TEST_F(FailingGpu, OfTwoRanksOneThatCannotGoOnFailsTheStepAndNoLaterOne) {
  ASSERT_NO_FATAL_FAILURE(serve({.copies = 2}));
  const std::int64_t apart = long_tests() ? 83 : 1400;
  bool failed = true;
  for (std::int64_t passing = 300; failed; passing += apart) {
    SCOPED_TRACE("behind " + std::to_string(passing) + " calls");
    as_two_ranks([&](RankGroup& group, const Result<Life>& life) {
      ASSERT_TRUE(life.ok()) << to_string(life.error());
      if (group.rank() > 0) {
        EXPECT_TRUE(life->model->follow().ok());
        return;
      }
      fail(Calls::kQueueing, passing);
      expect_right_or_failed(life->ask(rounds_), ErrorCode::kInternal);
      failed = stop_failing();
      expect_all_right(life->ask(rounds_));
    });
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace stemma
#endif
