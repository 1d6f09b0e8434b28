// stemma generate with adapters: named by a flag or by a line, each answered as if it were alone,
// and what is said of a flag, a name or a directory that is wrong.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/temp_directory.h"
#include "cli/program.h"
#include "model/random_adapter.h"

namespace stemma {
namespace {

using testing::HasSubstr;

class GenerateAdapters : public testing::Test {
 protected:
  void SetUp() override {
    const ModelConfig config = tiny_model_config("llama3");
    ASSERT_TRUE(write_random_model(model_.path(), {.config = config}).ok());
    ASSERT_TRUE(write_random_adapter(one_.path(), {.config = config, .seed = 2}).ok());
    ASSERT_TRUE(write_random_adapter(other_.path(), {.config = config, .seed = 3}).ok());
  }

  ProgramRun generate(const std::string& flags) const {
    return run_stemma("generate --model " + model_.path() +
                      " --context-tokens 256 --max-tokens 6 --ignore-eos --json " + flags);
  }
  // One request with an adapter, or with none.
  nlohmann::json tokens_of(const std::string& flags) const {
    const ProgramRun run = generate(kPrompt + flags);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return run.exit_code == 0 ? run.lines()[0]["token_ids"] : nlohmann::json();
  }
  std::string error_of(const std::string& flags) const {
    const ProgramRun run = generate(kPrompt + flags);
    EXPECT_NE(run.exit_code, 0);
    return run.err;
  }

  const std::string kPrompt = "--prompt 'And it came to pass in those days' ";
  TempDirectory model_;
  TempDirectory one_;
  TempDirectory other_;
};

TEST_F(GenerateAdapters, LinesOfOneFileHaveAdaptersOfTheirOwn) {
  const std::string loaded = "--adapter one=" + one_.path() +
                             " --lora-modules other=" + other_.path() + " twin=" + one_.path() +
                             " ";
  const std::string path = model_.file("prompts.jsonl");
  std::ofstream file(path);
  for (const char* adapter : {"one", "other", "", "twin"}) {
    file << R"({"prompt": "And it came to pass in those days", "adapter": ")" << adapter << "\"}\n";
  }
  file << R"({"prompt": "And it came to pass in those days"})" << std::endl;
  const ProgramRun run = generate(loaded + "--use-adapter other --concurrency 1 --prompts " + path);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto lines = run.lines();
  const std::vector<std::int64_t> cached = {0, 0, 0, 32, 32};
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(lines[i]["cached_tokens"], cached[i]) << i;
  EXPECT_EQ(lines[0]["adapter"], "one");
  EXPECT_FALSE(lines[2].contains("adapter"));
  EXPECT_EQ(lines[4]["adapter"], "other") << "that of --use-adapter";
  const std::string one = "--adapter one=" + one_.path();
  EXPECT_EQ(lines[0]["token_ids"], tokens_of(one + " --use-adapter one"));
  EXPECT_EQ(lines[3]["token_ids"], lines[0]["token_ids"]);
  EXPECT_EQ(lines[1]["token_ids"], lines[4]["token_ids"]);
  EXPECT_EQ(lines[2]["token_ids"], tokens_of(""));
  EXPECT_NE(lines[0]["token_ids"], lines[2]["token_ids"]);
  EXPECT_NE(lines[0]["token_ids"], lines[1]["token_ids"]);
}

TEST_F(GenerateAdapters, WhatIsWrongIsNamed) {
  EXPECT_THAT(error_of("--adapter " + one_.path()), HasSubstr("--adapter must be NAME=DIR (got /"));
  EXPECT_THAT(error_of("--adapter =" + one_.path()), HasSubstr("--adapter must be NAME=DIR"));
  EXPECT_THAT(error_of("--use-adapter one"),
              HasSubstr("adapter 'one' is not one of the 0 that there are"));
  EXPECT_THAT(error_of("--adapter one=" + one_.path() + " one=" + other_.path()),
              HasSubstr(other_.path() + ": adapters need names, each its own (got 'one')"));
  EXPECT_THAT(error_of("--adapter one=" + model_.path()), HasSubstr("adapter_config.json"));
  std::ofstream(one_.file("adapter_config.json")) << R"({"peft_type": "LORA", "r": 0})";
  EXPECT_THAT(error_of("--adapter one=" + one_.path()),
              HasSubstr(one_.file("adapter_config.json") + ": r: must be an integer"));
}

}  // namespace
}  // namespace stemma
