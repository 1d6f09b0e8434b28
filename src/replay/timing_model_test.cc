// TimingModel: what the parts of a step add up to, where the presets come from, and what a file may
// say.
#include "replay/timing_model.h"

#include <gtest/gtest.h>

#include <fstream>

namespace stemma {
namespace {

constexpr TimingModel kDigits = {.step_ms = 10000,
                                 .prompt_token_ms = 1000,
                                 .attention_pair_ms = 1,
                                 .decode_request_ms = 0.01,
                                 .decode_context_token_ms = 0.001};

std::string file_with(const std::string& text) {
  const std::string path = testing::TempDir() + "stemma_timing.json";
  std::ofstream(path) << text;
  return path;
}

TEST(TimingModel, AnEmptyStepTakesItsFixedPart) {
  EXPECT_EQ(kDigits.step_total_ms({}), 10000);
  EXPECT_EQ(kDigits.added_ms({}), 0);
}

TEST(TimingModel, APromptTokenAttendsToAllBeforeItAndToItself) {
  StepWork work;
  work.add_prompt(4, 7);  // attend to 5, 6 and 7 tokens
  EXPECT_EQ(work.prompt_tokens, 3);
  EXPECT_EQ(work.attention_pairs, 18);
  EXPECT_EQ(kDigits.added_ms(work), 3018);
}

TEST(TimingModel, APromptInChunksIsAsMuchAttentionAsAtOnce) {
  StepWork chunks;
  chunks.add_prompt(0, 10);
  chunks.add_prompt(10, 25);
  StepWork whole;
  whole.add_prompt(0, 25);
  EXPECT_EQ(chunks.attention_pairs, whole.attention_pairs);
}

TEST(TimingModel, ADecodingRequestReadsItsContext) {
  StepWork work;
  work.add_decode(100);
  work.add_decode(20);
  EXPECT_DOUBLE_EQ(kDigits.step_total_ms(work), 10000 + 0.02 + 0.12);
}

TEST(TimingModel, ThePresetOfOneGpuIsWhatItsSheetGives) {
  const TimingModel model = *read_timing_model("llama-8b-h200");
  EXPECT_NEAR(model.step_ms, 15.01 / 3.6, 0.001) << "15 GB of weights at 3.6 TB/s";
  EXPECT_NEAR(model.prompt_token_ms, 13.96 / 494.5, 1e-6) << "14 GFLOP at 494.5 TFLOP/s";
  EXPECT_NEAR(model.attention_pair_ms, 524288 / 494.5e9, 1e-12);
  EXPECT_NEAR(model.decode_context_token_ms, 131072 / 3.6e9, 1e-12);
}

TEST(TimingModel, EveryPresetCanBeNamed) {
  EXPECT_EQ(known_timing_presets(), "llama-8b-h200, llama-70b-8xh200, scribe-3m-cpu");
  for (const char* name : {"llama-8b-h200", "llama-70b-8xh200", "scribe-3m-cpu"}) {
    const auto model = read_timing_model(name);
    ASSERT_TRUE(model.ok()) << name;
    EXPECT_GT(model->step_ms, 0) << name;
    EXPECT_GT(model->attention_pair_ms, 0) << name;
  }
}

TEST(TimingModel, AFileGivesTheParts) {
  const auto model = read_timing_model(file_with(R"({"step_ms": 5, "prompt_token_ms": 0.25})"));
  ASSERT_TRUE(model.ok()) << to_string(model.error());
  EXPECT_EQ(model->step_ms, 5);
  EXPECT_EQ(model->prompt_token_ms, 0.25);
  EXPECT_EQ(model->decode_request_ms, 0);
}

TEST(TimingModel, RefusesWhatIsNoTime) {
  const struct {
    std::string text;
    std::string error;
  } cases[] = {
      {R"({"step_ms": -1})", "stemma_timing.json: step_ms: a number"},
      {R"({"kv_token_bytes": 1e300})", "stemma_timing.json: kv_token_bytes: must be at most 1e9"},
      {R"({"step_ms": "5"})", "stemma_timing.json: step_ms: a number"},
      {R"({"step_us": 5})",
       "stemma_timing.json: step_us: no part of a step's time (known: step_ms, prompt_token_ms, "
       "attention_pair_ms, decode_request_ms, decode_context_token_ms, kv_token_bytes)"},
      {R"({})", "stemma_timing.json: a step takes no time"},
      {R"({"kv_token_bytes": 5, "step_ms": 0})", "stemma_timing.json: a step takes no time"},
      {R"([5])", "stemma_timing.json"},
  };
  for (const auto& c : cases) {
    const auto model = read_timing_model(file_with(c.text));
    ASSERT_FALSE(model.ok()) << c.text;
    EXPECT_NE(to_string(model.error()).find(c.error), std::string::npos)
        << to_string(model.error());
  }
  EXPECT_FALSE(read_timing_model("/nonexistent/timing.json").ok());
  EXPECT_EQ(read_timing_model("h100").error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace stemma
