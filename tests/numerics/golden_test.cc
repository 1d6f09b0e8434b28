// Logits against figures from outside the engine: the bundled model's from an independent forward
// in float32 (tests/golden/scribe-3m.json), and those of tools/make_test_models.py, whose forward,
// tensor names and files are written in Python. Each is skipped with a message where it is not
// there.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/temp_directory.h"
#include "device/row_ops.h"
#include "model/model_runner.h"
#include "model/runner_trial.h"
#include "pool/kv_pool_factory.h"

namespace stemma {
namespace {

using Json = nlohmann::json;

// The prompt's token ids continued by `chosen`, all but the last of which are fed: logits of every
// row.
class GoldenRun {
 public:
  GoldenRun(const std::string& directory, const Json& prompt) {
    tokens_ = prompt.at("prompt_token_ids").get<std::vector<TokenId>>();
    prompt_tokens_ = tokens_.size();
    chosen_ = prompt.at("greedy_token_ids").get<std::vector<TokenId>>();
    tokens_.insert(tokens_.end(), chosen_.begin(), chosen_.end() - 1);
    auto runner = ModelRunner::load(directory, {.outputs_max = 512}, threads_);
    EXPECT_TRUE(runner.ok()) << to_string(runner.error());
    KvShape shape = (*runner)->pool_shape();
    shape.page_size = 16;
    shape.pages = 64;
    vocab_tokens_ = static_cast<std::size_t>((*runner)->config().vocab_tokens);
    const auto pool = make_kv_pool(shape, KvLayout::kLayerFirst, threads_);
    RunnerTrial trial(**runner, **pool);
    EXPECT_TRUE(trial.finish(trial.add(tokens_), 512).ok());
    logits_ = trial.logits(0);
  }

  std::span<const float> row(std::size_t token) const {
    return std::span(logits_).subspan(token * vocab_tokens_, vocab_tokens_);
  }
  std::span<const float> last_prompt_row() const { return row(prompt_tokens_ - 1); }

  // The stated continuation is the one that the logits choose.
  void expect_greedy() const {
    for (std::size_t i = 0; i < chosen_.size(); ++i) {
      EXPECT_EQ(argmax(row(prompt_tokens_ - 1 + i)), chosen_[i]) << "after " << i << " tokens";
    }
  }

 private:
  ThreadPool threads_{2};
  std::vector<TokenId> tokens_;
  std::vector<TokenId> chosen_;
  std::size_t prompt_tokens_ = 0;
  std::size_t vocab_tokens_ = 0;
  std::vector<float> logits_;
};

TEST(Golden, TheBundledModel) {
  const std::string root = STEMMA_SOURCE_DIR;
  const std::string golden_path = root + "/tests/golden/scribe-3m.json";
  if (!std::filesystem::exists(golden_path) ||
      !std::filesystem::exists(root + "/models/scribe-3m/model.safetensors")) {
    GTEST_SKIP() << "the bundled model or " << golden_path << " is not there";
  }
  const Json golden = Json::parse(std::ifstream(golden_path));
  for (const Json& prompt : golden.at("prompts")) {
    SCOPED_TRACE(prompt.at("prompt").get<std::string>());
    const GoldenRun run(root + "/models/scribe-3m", prompt);
    const double top = prompt.at("top_logits").at(0).at("logit").get<double>();
    for (const Json& entry : prompt.at("top_logits")) {
      const auto token = entry.at("token_id").get<std::size_t>();
      EXPECT_NEAR(static_cast<double>(run.last_prompt_row()[token]),
                  entry.at("logit").get<double>(), 1e-3 * std::abs(top));
    }
    run.expect_greedy();
  }
}

class GoldenFamily : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenFamily, AgreesWithTheModelsMadeInPython) {
  const TempDirectory directory;
  const std::string command =
      std::string("python3 " STEMMA_SOURCE_DIR "/tools/make_test_models.py") +
      " --golden --dtype bf16 --shards 2 --family " + GetParam() + " --out " + directory.path() +
      " > /dev/null 2>&1";
  if (std::system(command.c_str()) != 0) {
    GTEST_SKIP() << "python3 or tools/make_test_models.py is not there";
  }
  const Json golden = Json::parse(std::ifstream(directory.file("golden.json")));
  for (const Json& prompt : golden.at("prompts")) {
    SCOPED_TRACE(prompt.at("prompt").get<std::string>());
    const GoldenRun run(directory.path(), prompt);
    const auto expected = prompt.at("last_logits").get<std::vector<double>>();
    double top = 0;
    for (const double value : expected) {
      top = std::max(top, std::abs(value));
    }
    ASSERT_EQ(expected.size(), run.last_prompt_row().size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(run.last_prompt_row()[i]), expected[i], 1e-4 * top);
    }
    run.expect_greedy();
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenFamily,
                         ::testing::Values("llama2", "llama3", "qwen2", "qwen3", "qwen3_moe",
                                           "deepseek_v2", "deepseek_v3", "mistral", "gemma2",
                                           "gemma3"));

}  // namespace
}  // namespace stemma
