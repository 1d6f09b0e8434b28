// Ranks as processes: `stemma generate` under mpirun answers with two ranks as it does alone, and
// what is wrong on any rank ends all of them with one line of rank 0.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/temp_directory.h"
#include "cli/program.h"
#include "model/random_adapter.h"
#include "model/random_model.h"

namespace stemma {
namespace {

using testing::HasSubstr;

constexpr const char* kTwoRanks = "timeout 120 mpirun -n 2 --oversubscribe";

class Ranks : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system("command -v mpirun >/dev/null 2>&1") != 0) {
      GTEST_SKIP() << "no mpirun (Debian: openmpi-bin)";
    }
    if (run_stemma("generate --model x --prompt a --tensor-parallel 2").err.find("no MPI") !=
        std::string::npos) {
      GTEST_SKIP() << "this build has no MPI (Debian: libopenmpi-dev)";
    }
  }

  // The token ids of each answer; the prompts' tokens that came from tiers below the device.
  static std::vector<std::vector<int>> answers(const std::string& arguments,
                                               const std::string& launcher = {},
                                               std::int64_t* brought_or_null = nullptr) {
    const ProgramRun run = run_stemma("generate --json --threads 1 " + arguments, launcher);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    std::vector<std::vector<int>> ids;
    for (const nlohmann::json& line : run.lines()) {
      if (line.contains("token_ids")) ids.push_back(line["token_ids"].get<std::vector<int>>());
      if (brought_or_null == nullptr || !line.contains("summary")) continue;
      const nlohmann::json& tiers = line["summary"]["tiers"];
      *brought_or_null = tiers["host"].get<int>() + tiers["disk"].get<int>();
    }
    return ids;
  }
};

TEST_F(Ranks, TwoAnswerAsOneDoes) {
  const std::string model = "--model models/scribe-3m --max-tokens 60 --ignore-eos ";
  const std::string prompts = "--prompt 'And it came to pass' --temperature 0.8 --seed 4";
  const auto alone = answers(model + prompts);
  ASSERT_EQ(alone.size(), 1U);
  EXPECT_EQ(alone[0].size(), 60U);
  EXPECT_EQ(answers(model + prompts + " --tensor-parallel 2", kTwoRanks), alone);
}

TEST_F(Ranks, TwoAnswerAsOneDoesWhereRequestsShareBatchesPrefixesAndChunks) {
  TempDirectory directory;
  const std::string file = directory.file("prompts.jsonl");
  std::string lines;
  for (int i = 0; i < 6; ++i) {
    lines += R"({"prompt": "In the beginning God created the heaven and the earth. )" +
             std::string(static_cast<std::size_t>(i % 3), 'A') + "\"}\n";
  }
  ASSERT_TRUE(write_file(file, lines).ok());
  const std::string arguments =
      "--model models/scribe-3m --max-tokens 20 --chunk-tokens 7 "
      "--concurrency 3 --page-size 4 --weights int8 --kv-dtype int8 "
      "--prompts " +
      file;
  const auto alone = answers(arguments);
  ASSERT_EQ(alone.size(), 6U);
  EXPECT_EQ(answers(arguments + " --tensor-parallel 2", kTwoRanks), alone);
}

// Six texts, twice, one at a time: the device keeps two of them, the host memory of both ranks all.
TEST_F(Ranks, WhatTheDevicesDroppedComesBackFromBothRanksHostMemory) {
  const TempDirectory directory;
  const std::string file = directory.file("prompts.jsonl");
  std::string lines;
  for (int i = 0; i < 12; ++i) {
    lines += R"({"prompt": ")" + std::string(1, static_cast<char>('A' + i % 6)) +
             " In the beginning God created the heaven and the earth. And the earth was without "
             "form, and void; and darkness was upon the face of the deep.\"}\n";
  }
  ASSERT_TRUE(write_file(file, lines).ok());
  const std::string arguments =
      "--model models/scribe-3m --max-tokens 12 --page-size 4 "
      "--context-tokens 96 --concurrency 1 --prompts " +
      file;
  const auto alone = answers(arguments);
  ASSERT_EQ(alone.size(), 12U);
  const std::string tiers =
      " --kv-bytes 80KiB --host-bytes 16MiB --write-policy write-through --load-wait-ms 60000";
  std::int64_t from_host = 0;
  const auto ranked = answers(arguments + tiers + " --tensor-parallel 2", kTwoRanks, &from_host);
  EXPECT_EQ(ranked, alone);
  EXPECT_GT(from_host, 0);
}

TEST_F(Ranks, WhatBothStoredOnDiskIsFoundAgainByTheNextTwo) {
  const TempDirectory directory;
  const std::string prompt =
      "--model models/scribe-3m --max-tokens 12 --page-size 4 --prompt 'In the beginning God "
      "created the heaven and the earth.'";
  const auto alone = answers(prompt);
  const std::string ranked = prompt + " --tensor-parallel 2 --load-wait-ms 60000 --disk " +
                             directory.file("pages") + " --write-policy write-through";
  EXPECT_EQ(answers(ranked, kTwoRanks), alone);
  std::int64_t brought = 0;
  EXPECT_EQ(answers(ranked, kTwoRanks, &brought), alone);
  EXPECT_GT(brought, 0);
}

// Requests with either adapter and with none in one batch, their pages in namespaces of their own
// on both ranks' disks. Whatever is found is audited.
TEST_F(Ranks, TwoAnswerWithAdaptersAsOneDoesAndFindTheirPagesAgain) {
  const TempDirectory directory;
  const TempDirectory one;
  const TempDirectory other;
  const ModelConfig config = tiny_model_config("llama3");
  ASSERT_TRUE(write_random_model(directory.path(), {.config = config}).ok());
  ASSERT_TRUE(write_random_adapter(one.path(), {.config = config, .seed = 2}).ok());
  ASSERT_TRUE(write_random_adapter(other.path(), {.config = config, .seed = 3}).ok());
  const std::string file = directory.file("prompts.jsonl");
  std::string lines;
  for (const char* const adapter : {"one", "", "other", "one"}) {
    lines += R"({"prompt": "And it came to pass in those days", "adapter": ")" +
             std::string(adapter) + "\"}\n";
  }
  ASSERT_TRUE(write_file(file, lines).ok());
  const std::string arguments = "--model " + directory.path() + " --adapter one=" + one.path() +
                                " other=" + other.path() +
                                " --context-tokens 256 --max-tokens 12 --ignore-eos --page-size 4 "
                                "--prompts " +
                                file;
  const auto alone = answers(arguments);
  ASSERT_EQ(alone.size(), 4U);
  EXPECT_NE(alone[0], alone[1]);
  EXPECT_NE(alone[0], alone[2]);
  const std::string pages = directory.file("pages");
  const std::string ranked = arguments + " --tensor-parallel 2 --load-wait-ms 60000 --disk " +
                             pages + " --write-policy write-through --shadow-audit 100";
  EXPECT_EQ(answers(ranked, kTwoRanks), alone);
  std::int64_t brought = 0;
  EXPECT_EQ(answers(ranked, kTwoRanks, &brought), alone);
  EXPECT_GT(brought, 0);
  for (const char* const rank : {"/rank0of2", "/rank1of2"}) {
    const ProgramRun listed = run_stemma("inspect " + pages + rank);
    EXPECT_THAT(listed.out, HasSubstr(" adapter_sha256=")) << "a rank says whose pages these are";
  }
}

TEST_F(Ranks, ARankWithLessRoomEndsAllWithTheNumbers) {
  const std::string wanted =
      std::string(STEMMA_BINARY_DIR) +
      "/stemma generate --model models/scribe-3m --prompt a --tensor-parallel 2";
  const ProgramRun run =
      run_stemma("generate --model models/scribe-3m --prompt a --tensor-parallel 2 --kv-bytes 1MiB",
                 "timeout 120 mpirun --oversubscribe -n 1 " + wanted + " : -n 1");
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.err, HasSubstr("stemma: invalid_argument: rank 1: --kv-bytes hold 102 pages"));
}

TEST_F(Ranks, WhatBothHadInHostMemoryTheNextTwoHaveFromTheirFiles) {
  const TempDirectory directory;
  const std::string prompt =
      "--model models/scribe-3m --max-tokens 12 --page-size 4 --prompt 'In the beginning God "
      "created the heaven and the earth.'";
  const auto alone = answers(prompt);
  const std::string ranked = prompt +
                             " --tensor-parallel 2 --load-wait-ms 60000 --host-bytes 4MiB "
                             "--host-file " +
                             directory.file("host") + " --write-policy write-through";
  std::int64_t brought = 0;
  EXPECT_EQ(answers(ranked, kTwoRanks, &brought), alone);
  EXPECT_EQ(brought, 0);
  EXPECT_EQ(answers(ranked, kTwoRanks, &brought), alone);
  EXPECT_GT(brought, 0);
  // One alone has other pages.
  std::filesystem::rename(directory.file("host") + ".rank0of2", directory.file("host"));
  const ProgramRun one = run_stemma("generate --json --threads 1 " + prompt +
                                    " --host-bytes 4MiB --host-file " + directory.file("host"));
  EXPECT_EQ(one.exit_code, 0);
  EXPECT_THAT(one.err, HasSubstr("pages of another model or format"));
}

TEST_F(Ranks, TwoAnswerAsOneDoesWhereAttentionIsSparse) {
  const std::string prompt =
      "--model models/scribe-3m --max-tokens 40 --ignore-eos --sparse-tokens 16 --dense-tokens 8 "
      "--prompt 'In the beginning God created the heaven and the earth.'";
  const auto alone = answers(prompt);
  ASSERT_EQ(alone.size(), 1U);
  EXPECT_EQ(answers(prompt + " --tensor-parallel 2", kTwoRanks), alone);
}

TEST_F(Ranks, AnAdapterThatOneRankCannotReadEndsAll) {
  const std::string command = "generate --model models/scribe-3m --prompt a --tensor-parallel 2";
  const ProgramRun run =
      run_stemma(command + " --adapter x=/nonexistent", "timeout 120 mpirun --oversubscribe -n 1 " +
                                                            std::string(STEMMA_BINARY_DIR) +
                                                            "/stemma " + command + " : -n 1");
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.err, HasSubstr("stemma: not_found: rank 1: /nonexistent/adapter_config.json"));
}

TEST_F(Ranks, AGpuOfANumberIsRefusedForEveryRankTakesItsOwn) {
  const ProgramRun run =
      run_stemma("generate --model models/scribe-3m --prompt a --tensor-parallel 2 --device cuda:1",
                 kTwoRanks);
  EXPECT_NE(run.exit_code, 0);
  EXPECT_THAT(run.err, HasSubstr("stemma: invalid_argument: --device cuda:1: with "
                                 "--tensor-parallel every rank takes the GPU of its own number"));
}

// Of which it is shown none.
TEST_F(Ranks, MoreRanksThanGpusAreRefused) {
  const ProgramRun run =
      run_stemma("generate --model models/scribe-3m --prompt a --tensor-parallel 2 --device cuda",
                 "CUDA_VISIBLE_DEVICES= " + std::string(kTwoRanks));
  EXPECT_NE(run.exit_code, 0);
  EXPECT_TRUE(run.err.find("--tensor-parallel 2: every rank takes a GPU of its own, and there are "
                           "0") != std::string::npos ||
              run.err.find("--device cuda: this build has no CUDA") != std::string::npos)
      << run.err;
}

TEST_F(Ranks, AnErrorBeforeTheModelIsOpenedEndsAll) {
  const ProgramRun run = run_stemma(
      "generate --model models/scribe-3m --prompts no-such-file --tensor-parallel 2", kTwoRanks);
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("stemma: not_found: --prompts: no-such-file"));
}

TEST_F(Ranks, FewerThanWantedAreRefused) {
  const ProgramRun run =
      run_stemma("generate --model models/scribe-3m --prompt a --tensor-parallel 2");
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("--tensor-parallel 2: there are 1 ranks; start it with mpirun"));
}

// With an error on both, where each would else wait for what the other says next.
TEST_F(Ranks, TwoThatWantDifferentNumbersOfRanksAreRefused) {
  const std::string wants = "generate --model models/scribe-3m --prompt a --tensor-parallel ";
  for (const auto& [first, second] : {std::pair("2", "3"), {"3", "2"}}) {
    const ProgramRun run =
        run_stemma(wants + second, std::string("timeout 60 mpirun --oversubscribe -n 1 ") +
                                       STEMMA_BINARY_DIR + "/stemma " + wants + first + " : -n 1");
    EXPECT_NE(run.exit_code, 124) << "it was not ended from outside";
    EXPECT_THAT(run.err, HasSubstr("--tensor-parallel 3: there are 2 ranks"));
  }
}

}  // namespace
}  // namespace stemma
