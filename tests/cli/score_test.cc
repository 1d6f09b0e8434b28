// stemma score: the same however it is computed, another where numbers are rounded, and what is
// wrong is named.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "cli/program.h"

namespace stemma {
namespace {

const std::string kModel = std::string(STEMMA_SOURCE_DIR) + "/models/scribe-3m";
const std::string kScore = "score --model " + kModel;

std::string write(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + "stemma_score_" + name;
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

std::string story() {
  std::string text;
  for (int i = 0; i < 40; ++i) text += "And the king sent " + std::to_string(i) + " men to sea. ";
  return write("story.txt", text);
}

// All that it says but the time that it took.
nlohmann::json scored(const std::string& flags) {
  const ProgramRun run = run_stemma(kScore + " --json " + flags);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  nlohmann::json line = run.lines().at(0);
  EXPECT_GT(line["seconds"], 0);
  line.erase("seconds");
  return line;
}

void expect_error(const std::string& flags, int exit_code, const std::string& text) {
  const ProgramRun run = run_stemma(kScore + " " + flags);
  EXPECT_EQ(run.exit_code, exit_code) << run.err;
  EXPECT_NE(run.err.find(text), std::string::npos) << run.err;
}

TEST(Score, HasTheSameBitsHoweverItIsComputed) {
  const std::string text = "--window-tokens 60 --text " + story();
  const nlohmann::json wanted = scored(text + " --concurrency 1 --cache none");
  EXPECT_EQ(scored(text), wanted);
  EXPECT_EQ(scored(text + " --concurrency 5 --chunk-tokens 7 --page-size 1 --threads 2"), wanted);
  EXPECT_EQ(scored(text + " --kv-bytes 128KiB --concurrency 8"), wanted) << "few have room";
}

TEST(Score, SaysWhatOfATextWasForetold) {
  const nlohmann::json line = scored("--window-tokens 60 --text " + story());
  EXPECT_GT(line["pieces"], 5);
  EXPECT_GT(line["tokens"], 300);
  EXPECT_NEAR(line["perplexity"], std::exp(line["nats_per_token"].get<double>()), 1e-9);
  EXPECT_GT(line["bits_per_byte"], 0.5);
  EXPECT_LT(line["bits_per_byte"], 8);
  EXPECT_GT(line["likeliest"], 0);
  EXPECT_LT(line["likeliest"], 1);
}

// Its bytes would make the model look better than it is.
TEST(Score, LeavesOutTheBytesOfAFirstTokenThatNothingForetells) {
  const std::filesystem::path model = testing::TempDir() + "stemma_score_without_beginning";
  std::filesystem::remove_all(model);
  std::filesystem::create_directory(model);
  for (const auto& file : std::filesystem::directory_iterator(kModel)) {
    if (file.path().filename() == "tokenizer_config.json") continue;
    std::filesystem::create_symlink(std::filesystem::absolute(file.path()),
                                    model / file.path().filename());
  }
  std::ofstream(model / "tokenizer_config.json")
      << R"({"tokenizer_class": "LlamaTokenizer", "add_bos_token": false})";
  const std::string text = write("three_tokens.txt", "The seas");
  const nlohmann::json begun = scored("--text " + text);
  ASSERT_EQ(begun["tokens"], 3);
  EXPECT_NEAR(begun["bits_per_byte"], 3 * begun["nats_per_token"].get<double>() / std::log(2) / 8,
              1e-9);
  const ProgramRun run = run_stemma("score --json --model " + model.string() + " --text " + text);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const nlohmann::json line = run.lines().at(0);
  ASSERT_EQ(line["tokens"], 2) << "the first is given";
  EXPECT_NEAR(line["bits_per_byte"], 2 * line["nats_per_token"].get<double>() / std::log(2) / 5,
              1e-9);
}

TEST(Score, ChangesWhereNumbersAreRounded) {
  const std::string text = "--text " + story();
  const double exact = scored(text + " --kv-dtype f32")["nats_per_token"];
  for (const char* const rounded :
       {" --kv-dtype int8", " --kv-dtype fp8_e5m2", " --kv-dtype f32 --weights int8"}) {
    const double score = scored(text + rounded)["nats_per_token"];
    EXPECT_NE(score, exact) << rounded;
    EXPECT_NEAR(score, exact, 0.2) << rounded;
  }
}

// Each line by itself; the first of its tokens is given.
TEST(Score, OfPromptsIsThatOfTheirTokens) {
  const std::string prompts =
      write("prompts.jsonl",
            "{\"token_ids\": [5, 6, 7]}\n{\"token_ids\": [5]}\n{\"prompt\": \"The sea\"}\n");
  const nlohmann::json line = scored("--prompts " + prompts);
  EXPECT_EQ(line["pieces"], 3);
  EXPECT_FALSE(line.contains("bits_per_byte"));
  const std::string alone = write("alone.jsonl", "{\"token_ids\": [5, 6, 7]}\n");
  EXPECT_EQ(scored("--prompts " + alone)["tokens"], 2);
}

TEST(Score, NamesWhatIsWrong) {
  const std::string text = story();
  expect_error("", 2, "--text or --prompts is wanted");
  expect_error("--text " + text + " --prompts " + text, 2, "--text or --prompts is wanted");
  expect_error("--text " + text + " --window-tokens 1", 2, "--window-tokens must be at least 2");
  expect_error("--text /nowhere.txt", 2, "/nowhere.txt");
  expect_error("--text " + write("empty.txt", ""), 1, "no piece has two tokens");
  expect_error("--text " + text + " --use-adapter poet", 1, "adapter 'poet'");
}

}  // namespace
}  // namespace stemma
