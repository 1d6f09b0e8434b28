// stemma calibrate and the flags of sparse attention: a calibration is written and used, and a
// wrong flag or file is named.
#include <gtest/gtest.h>

#include <fstream>

#include "cli/program.h"

namespace stemma {
namespace {

const std::string kModel = std::string(STEMMA_SOURCE_DIR) + "/models/scribe-3m";

std::string path_of(const std::string& name) {
  return testing::TempDir() + "stemma_calibrate_" + name;
}

std::string prompts() {
  std::string path = path_of("prompts.jsonl");
  std::ofstream file(path, std::ios::binary);
  for (int request = 0; request < 2; ++request) {
    file << R"({"max_tokens": 4, "token_ids": [2042)";
    for (int i = 0; i < 200; ++i) file << ", " << 100 + (i + request) * 37 % 1700;
    file << "]}\n";
  }
  return path;
}

std::string generate(const std::string& flags) {
  return "generate --model " + kModel + " --prompts " + prompts() + " --json " + flags;
}

void expect_error(const std::string& arguments, int exit_code, const std::string& text) {
  const ProgramRun run = run_stemma(arguments);
  EXPECT_EQ(run.exit_code, exit_code) << run.err;
  EXPECT_NE(run.err.find(text), std::string::npos) << run.err;
}

TEST(Calibrate, WritesChannelsThatGenerateUses) {
  const std::string file = path_of("scribe.json");
  const ProgramRun run = run_stemma("calibrate --model " + kModel + " --prompts " + prompts() +
                                    " --out " + file + " --json");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto line = run.lines().at(0);
  EXPECT_EQ(line["file"], file);
  EXPECT_EQ(line["prompt_tokens"], 402);
  for (const char* share : {"1/4", "1/8", "1/16"}) {
    const double chosen = line["recall"][share]["chosen"];
    EXPECT_GT(chosen, 0.0);
    EXPECT_LE(chosen, line["recall"][share]["best"]);
  }
  // The dense end answers as dense attention does; a sparse run answers, cached or not alike.
  const auto answers = [](const ProgramRun& answered) {
    std::vector<nlohmann::json> tokens;
    for (const auto& object : answered.lines()) {
      if (object.contains("token_ids")) tokens.push_back(object["token_ids"]);
    }
    return tokens;
  };
  const auto dense = answers(run_stemma(generate("")));
  ASSERT_EQ(dense.size(), 2u);
  EXPECT_EQ(answers(run_stemma(generate("--sparse-tokens 1/1 --sparse " + file))), dense);
  const std::string sparse = "--sparse-tokens 1/8 --dense-tokens 64 --sparse " + file;
  const auto cached = answers(run_stemma(generate(sparse)));
  ASSERT_EQ(cached.size(), 2u);
  EXPECT_EQ(answers(run_stemma(generate(sparse + " --cache none --chunk-tokens 7"))), cached);
}

TEST(Calibrate, WhatIsWrongIsNamed) {
  const std::string calibrate = "calibrate --model " + kModel + " --prompts " + prompts();
  expect_error(calibrate + " --channels 12", 2, "--channels must be a multiple of 8 (got 12)");
  expect_error(calibrate + " --channels 32", 2,
               "--channels must be below the model's head_dim, 32 (got 32)");
  expect_error(calibrate + " --out " + testing::TempDir(), 2, "is no regular file");
  expect_error(calibrate + " --out /nowhere/c.json", 1, "/nowhere/c.json: cannot be written");
  expect_error(generate("--dense-tokens 64"), 2, "--dense-tokens needs --sparse-tokens");
  expect_error(generate("--sparse x.json"), 2, "--sparse needs --sparse-tokens");
  expect_error(generate("--sparse-tokens 9/8"), 2, "--sparse-tokens must be a number");
  expect_error(generate("--sparse-tokens 1/8 --dense-tokens -1"), 2,
               "--dense-tokens must be at least 0 (got -1)");
  expect_error(generate("--sparse-tokens 1/8 --sparse /nowhere/c.json"), 1,
               "/nowhere/c.json: there is no such file");
  const std::string other = path_of("other.json");
  std::ofstream(other) << R"({"format": 1, "weights_sha256": "00", "layers": 5, "kv_heads": 2,)"
                       << R"( "head_dim": 32, "channels_per_head": 24, "channels": 7})";
  expect_error(generate("--sparse-tokens 1/8 --sparse " + other), 1,
               other + ": channels: must be a list of 5 layers");
}

}  // namespace
}  // namespace stemma
