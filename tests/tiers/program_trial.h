// ProgramTrial: `stemma generate --json --logits` over a tiny random model: what it answered, bit
// by bit, and from which tiers its pages came.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/prng.h"
#include "base/temp_directory.h"
#include "cli/program.h"
#include "model/random_model.h"
#include "stemma/lower_tiers.h"

namespace stemma {

inline std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct ProgramAnswers {
  int exit_code = -1;
  std::string err;
  std::vector<nlohmann::json> token_ids;  // of each request
  std::string logits;                     // the file
  BroughtTokens brought;                  // of all requests
  std::int64_t prompt_tokens = 0;
};

class ProgramTrial {
 public:
  explicit ProgramTrial(std::uint64_t weights_seed = 1) { write_weights(weights_seed); }

  const std::string& model() const { return model_.path(); }
  // Into the files of the model that is there.
  void write_weights(std::uint64_t seed) {
    const Status written = write_random_model(
        model_.path(), {.config = config, .type = WeightType::kBf16, .seed = seed});
    STEMMA_CHECK(written.ok(), "tests can write files");
  }
  // Writes config.json anew, for weights that are there.
  void write_config() {
    std::ofstream(model_.file("config.json"), std::ios::binary) << config_json(config);
  }

  // A file of requests that share prefixes with each other and with those of other seeds.
  std::string prompts(std::uint64_t seed, int requests = 8) {
    Prng common(7);
    Prng own(seed);
    std::string shared;
    for (int i = 0; i < 70; ++i) shared += std::to_string(common.below(256)) + ", ";
    std::string text;
    for (int request = 0; request < requests; ++request) {
      text += R"({"max_tokens": 5, "token_ids": [)" + shared;
      for (int i = 0; i < 60 + request; ++i) text += std::to_string(own.below(256)) + ", ";
      text += "1]}\n";
    }
    std::string path = files_.file("prompts" + std::to_string(seed) + ".jsonl");
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  // What the program is called with.
  std::vector<std::string> words(const std::string& prompts, const std::string& logits) const {
    return {"generate", "--model",   model(), "--prompts",  prompts, "--logits",         logits,
            "--json",   "--threads", "1",     "--kv-bytes", "16MiB", "--context-tokens", "256"};
  }
  // Where it has tiers: all goes down at once, and is waited for.
  static std::vector<std::string> words_of_tiers() {
    return {"--write-policy", "write-through", "--load-wait-ms", "60000"};
  }

  // Runs it to its end, with the tiers that `flags` name.
  ProgramAnswers generate(const std::string& prompts, const std::string& flags) {
    std::string all = flags;
    for (const std::string& word : words_of_tiers()) all += " " + word;
    return run(prompts, all);
  }
  // Without tiers, nothing shared.
  ProgramAnswers cold(const std::string& prompts, const std::string& flags = "") {
    return run(prompts, "--cache none " + flags);
  }
  // With nothing else than `flags`, which go through the shell.
  ProgramAnswers run(const std::string& prompts, const std::string& flags) {
    const std::string logits = files_.file("logits");
    std::string command;
    for (const std::string& word : words(prompts, logits)) command += word + " ";
    const ProgramRun ran = run_stemma(command + flags);
    ProgramAnswers answers;
    answers.exit_code = ran.exit_code;
    answers.err = ran.err;
    if (ran.exit_code != 0) return answers;
    answers.logits = read_bytes(logits);
    std::filesystem::remove(logits);
    for (const nlohmann::json& line : ran.lines()) {
      if (line.contains("summary")) {
        const nlohmann::json& tiers = line["summary"]["tiers"];
        answers.brought = {tiers["host"], tiers["disk"], tiers["remote"]};
        answers.prompt_tokens = line["summary"]["prompt_tokens"];
      } else {
        answers.token_ids.push_back(line["token_ids"]);
      }
    }
    return answers;
  }

  std::string file(const std::string& name) const { return files_.file(name); }

  ModelConfig config = tiny_model_config("llama2");

 private:
  TempDirectory model_;
  TempDirectory files_;
};

inline void expect_same_answers(const ProgramAnswers& a, const ProgramAnswers& b) {
  ASSERT_EQ(a.exit_code, 0) << a.err;
  ASSERT_EQ(b.exit_code, 0) << b.err;
  ASSERT_FALSE(a.token_ids.empty());
  EXPECT_EQ(a.token_ids, b.token_ids);
  EXPECT_GT(a.logits.size(), a.token_ids.size() * 256 * sizeof(float));
  EXPECT_TRUE(a.logits == b.logits) << "logits differ";
}

}  // namespace stemma
