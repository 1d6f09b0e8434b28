// The program over one directory of pages, again and again: what it answers is equal bit for bit to
// a run without tiers, after a clean end, after being killed at any moment, with weights or formats
// that are not those the pages were made with, and beside another process that has the directory.
// Host memory that survives in a file of its own does the same after a clean end.
// Counters say that pages came from disk where they can and that none did where they must not.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "base/long_tests_fixture.h"
#include "engine/served_model.h"
#include "sim/metric_of.h"
#include "stemma/log.h"
#include "store/child_process.h"
#include "store/directory_files.h"
#include "store/disk_check.h"
#include "tiers/program_trial.h"
#include "transparency/engine_trial.h"

namespace stemma {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::int64_t kLongUs = 60'000'000;

class RestartTest : public testing::Test {
 protected:
  std::string disk() const { return directory_.file("pages"); }
  std::string on_disk() const { return "--disk " + disk() + " "; }

  // Everything in the directory, verified; nothing where no store has been yet. Nobody may have it
  // open.
  DiskCheckReport check() {
    auto files = DirectoryFiles::open(disk(), clock_);
    EXPECT_TRUE(files.ok()) << to_string(files.error());
    const auto report =
        check_disk(**files, {.repair = false, .deadline_us = clock_.now_us() + kLongUs});
    const bool begun = report.ok() || report.error().code != ErrorCode::kNotFound;
    EXPECT_TRUE(report.ok() || !begun) << to_string(report.error());
    return report.ok() ? *report : DiskCheckReport();
  }

  // The program on `prompts`, to be waited for or killed.
  Result<ChildProcess> start_on_disk(const std::string& prompts,
                                     const std::vector<std::string>& flags) {
    std::vector<std::string> words = trial_.words(prompts, trial_.file("killed"));
    words.insert(words.begin(), std::string(STEMMA_BINARY_DIR) + "/stemma");
    words.insert(words.end(), {"--disk", disk()});
    const std::vector<std::string> of_tiers = ProgramTrial::words_of_tiers();
    words.insert(words.end(), of_tiers.begin(), of_tiers.end());
    words.insert(words.end(), flags.begin(), flags.end());
    return ChildProcess::start(words);
  }

  // From the first answer to the last.
  std::int64_t whole_run_us(const std::string& prompts) {
    auto program = start_on_disk(prompts, {"--concurrency", "2"});
    EXPECT_TRUE(program.ok() && program->wait_for("token_ids", kLongUs).ok());
    const std::int64_t began_us = clock_.now_us();
    EXPECT_TRUE(program.ok() && program->wait_for("summary", kLongUs).ok());
    return clock_.now_us() - began_us;
  }

  // Of an engine in this process that waits for its tiers as long as it takes.
  ServedModelOptions patient_options() const {
    ServedModelOptions options;
    options.directory = trial_.model();
    options.kv_bytes = std::int64_t{16} << 20;
    options.engine.kv.context_tokens_max = 256;
    options.engine.kv.tiers = {.load_wait_us = kLongUs, .store_deadline_us = kLongUs};
    return options;
  }

  MonotonicClock clock_;
  TempDirectory directory_;
  ProgramTrial trial_;
};

TEST_F(RestartTest, TheSecondRunFindsWhatTheFirstStored) {
  for (const std::string flags :
       {"", "--page-size 1", "--page-size 64", "--kv-layout page_first --chunk-tokens 7",
        "--kv-dtype f32", "--concurrency 1 --host-bytes 1MiB"}) {
    SCOPED_TRACE(flags);
    std::filesystem::remove_all(disk());
    const std::string prompts = trial_.prompts(1);
    const ProgramAnswers plain =
        trial_.cold(prompts, flags.find("f32") != std::string::npos ? "--kv-dtype f32" : "");
    const ProgramAnswers first = trial_.generate(prompts, on_disk() + flags);
    const ProgramAnswers second = trial_.generate(prompts, on_disk() + flags);
    expect_same_answers(plain, first);
    expect_same_answers(plain, second);
    EXPECT_EQ(first.brought.disk, 0);
    EXPECT_GE(second.brought.disk, 64);
    EXPECT_EQ(check().bad_pages, 0);
  }
}

// Kills the program after a random number of its answers and a random time more, of which the
// longest is what eight answers take here. Each page that its index names is whole then; the next
// run opens the directory by itself and answers as ever. Most cycles go on with the directory of
// the one before, some begin anew. On a busy machine kills may come late: it goes on until as many
// as half of the cycles were in the middle of an answer.
TEST_F(RestartTest, KilledAtAnyMomentAndStartedAgain) {
  const char* const wish = std::getenv("STEMMA_SEED");
  const std::uint64_t seed = wish != nullptr ? std::strtoull(wish, nullptr, 10) : 20'241;
  const int cycles = long_tests() ? 2'000 : 40;
  constexpr int kAnswers = 24;
  std::cout << "seed " << seed << " (STEMMA_SEED)\n";
  Prng prng(seed);
  constexpr int kTexts = 4;
  std::vector<std::string> prompts;
  std::vector<ProgramAnswers> plain;
  for (int text = 0; text < kTexts; ++text) {
    prompts.push_back(trial_.prompts(100 + static_cast<std::uint64_t>(text), kAnswers));
    plain.push_back(trial_.cold(prompts.back()));
  }
  const std::int64_t answer_us = 1 + whole_run_us(prompts.front()) / kAnswers;
  std::int64_t from_disk = 0;
  int killed_in_the_middle = 0;
  for (int cycle = 0; cycle < cycles || killed_in_the_middle <= cycles / 2; ++cycle) {
    SCOPED_TRACE(testing::Message() << "cycle " << cycle);
    ASSERT_LT(cycle, 4 * cycles) << "kills come too late";
    if (prng.below(4) == 0) std::filesystem::remove_all(disk());
    const auto text = static_cast<std::size_t>(prng.below(kTexts));
    auto program = start_on_disk(prompts[text], {"--concurrency", "2"});
    ASSERT_TRUE(program.ok());
    const auto answers = prng.below(kAnswers - 4);
    for (int answer = 0; answer < answers; ++answer) {
      ASSERT_TRUE(program->wait_for("token_ids", kLongUs).ok());
    }
    const Status ended = program->wait_for("summary", 1 + prng.below(8 * answer_us));
    killed_in_the_middle += ended.ok() ? 0 : 1;
    program->kill();
    if (std::filesystem::exists(disk())) {
      EXPECT_EQ(check().bad_pages, 0);
    }
    const ProgramAnswers again = trial_.generate(prompts[text], on_disk());
    expect_same_answers(plain[text], again);
    EXPECT_THAT(again.err, Not(HasSubstr("warning")));
    EXPECT_THAT(again.err, Not(HasSubstr("error")));
    from_disk += again.brought.disk;
    if (HasFailure()) return;
  }
  EXPECT_GT(from_disk, 0);
}

// Row 16: each thing alone. Old pages are not found, and the log says what differs.
TEST_F(RestartTest, PagesOfAnotherModelOrFormatAreNotFoundAndNamed) {
  const std::string prompts = trial_.prompts(1);
  const auto expect_foreign = [&](const std::string& flags, const std::string& differs) {
    SCOPED_TRACE(flags + " " + differs);
    std::filesystem::remove_all(disk());
    const std::string kept = directory_.file("kept");
    std::filesystem::copy(kept, disk(), std::filesystem::copy_options::recursive);
    const ProgramAnswers now = trial_.generate(prompts, on_disk() + flags);
    expect_same_answers(trial_.cold(prompts, flags), now);
    EXPECT_EQ(now.brought.disk, 0);
    EXPECT_THAT(now.err, HasSubstr("tier.disk.foreign_pages"));
    EXPECT_THAT(now.err, HasSubstr(differs));
  };
  expect_same_answers(trial_.cold(prompts), trial_.generate(prompts, on_disk()));
  std::filesystem::rename(disk(), directory_.file("kept"));
  expect_foreign("--kv-dtype f16", "kv_dtype: bf16 -> f16");
  expect_foreign("--kv-dtype int8", "kv_dtype: bf16 -> int8");
  expect_foreign("--page-size 8", "page_size: 16 -> 8");
  expect_foreign("--attention reference", "attention: cpu -> reference");
  trial_.config.rope.theta *= 2;
  trial_.write_config();
  expect_foreign("", "config_sha256: ");
  trial_.config = tiny_model_config("llama2");
  trial_.write_weights(2);
  expect_foreign("", "weights_sha256: ");
  trial_.write_weights(1);
  std::filesystem::remove_all(disk());
  std::filesystem::rename(directory_.file("kept"), disk());
  const ProgramAnswers same = trial_.generate(prompts, on_disk());
  EXPECT_GT(same.brought.disk, 0) << "the model that wrote them finds them still";
  EXPECT_THAT(same.err, Not(HasSubstr("tier.disk.foreign_pages")));
}

// Row 17: weights are read into memory of our own. What is written into their file meanwhile
// changes nothing until the model is opened again, which is then another.
TEST_F(RestartTest, WeightsThatAreReplacedInPlaceTakeEffectWhenTheyAreLoaded) {
  set_log_level(LogLevel::kWarning);
  ServedModelOptions options = patient_options();
  options.engine.kv.tiers.write_policy = WritePolicy::kWriteThrough;
  const auto run = [](ServedModel& model, const std::function<void(std::int64_t)>& before_step) {
    LogitsRecorder recorder(model.runner());
    const auto engine = model.open_engine(&recorder);
    STEMMA_CHECK(engine.ok(), "it opens");
    Outcome outcome =
        run_trial(**engine, recorder, {.digest = model.namespace_digest()}, before_step);
    (*engine)->settle(std::chrono::seconds(60));
    return outcome;
  };
  const auto open = [&] {
    auto model = ServedModel::open(options);
    STEMMA_CHECK(model.ok(), "it opens");
    return std::move(model).value();
  };
  const auto nothing = [](std::int64_t) {};
  const Outcome old_plain = run(*open(), nothing);
  options.tiers.disk_directory = disk();
  NamespaceDigest old_digest;
  {
    const auto model = open();
    old_digest = model->namespace_digest();
    expect_same_bits(old_plain, run(*model, [&](std::int64_t step) {
                       if (step == 3) trial_.write_weights(2);
                     }));
    expect_same_bits(old_plain, run(*model, nothing));
  }
  const auto reopened = open();
  EXPECT_NE(reopened->namespace_digest(), old_digest);
  const Outcome fresh = run(*reopened, nothing);
  EXPECT_EQ(fresh.brought.disk, 0);
  EXPECT_NE(fresh.logits, old_plain.logits);
  options.tiers.disk_directory = "";
  expect_same_bits(run(*open(), nothing), fresh);
}

// Row 28.
TEST_F(RestartTest, TheSecondProcessOnADirectoryIsRefused) {
  const std::string prompts = trial_.prompts(1);
  auto first = start_on_disk(prompts, {});
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(first->wait_for("tier.disk.open", kLongUs).ok());
  first->freeze();
  const ProgramAnswers second = trial_.generate(prompts, on_disk());
  EXPECT_NE(second.exit_code, 0);
  EXPECT_EQ(std::count(second.err.begin(), second.err.end(), '\n'), 1) << second.err;
  EXPECT_THAT(second.err, HasSubstr("--disk: "));
  EXPECT_THAT(second.err, HasSubstr(disk()));
  EXPECT_THAT(second.err, HasSubstr("another process uses this cache directory"));
  first->thaw();
  const auto printed = first->finish(kLongUs);
  ASSERT_TRUE(printed.ok()) << to_string(printed.error());
  EXPECT_GT(trial_.generate(prompts, on_disk()).brought.disk, 0) << "afterwards it may";
}

TEST_F(RestartTest, LimitsOfTheDiskHoldAndTooSmallOnesAreNamed) {
  const std::string prompts = trial_.prompts(1, 40);
  const ProgramAnswers refused = trial_.generate(prompts, on_disk() + "--disk-bytes 64KiB");
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_THAT(refused.err, HasSubstr("--disk-bytes must be at least 524288 (got 65536)"));
  EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
  const ProgramAnswers plain = trial_.cold(prompts);
  for (int run = 0; run < 3; ++run) {
    expect_same_answers(plain, trial_.generate(prompts, on_disk() + "--disk-bytes 600KiB"));
    std::uintmax_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(disk())) {
      bytes += entry.file_size();
    }
    EXPECT_GT(bytes, 100u << 10);
    EXPECT_LE(bytes, 600u << 10);
    EXPECT_EQ(check().bad_pages, 0);
  }
}

// Host memory alone, through its file. A fresh process has no page that is not from there.
TEST_F(RestartTest, HostMemoryIsFoundAgainInItsFile) {
  const std::string file = directory_.file("host");
  const std::string in_host = "--host-bytes 16MiB --host-file " + file + " ";
  for (const std::string flags : {"", "--page-size 1", "--page-size 64",
                                  "--host-layout layer_first --chunk-tokens 7", "--kv-dtype f32"}) {
    SCOPED_TRACE(flags);
    std::filesystem::remove(file);
    const std::string prompts = trial_.prompts(1);
    const ProgramAnswers plain =
        trial_.cold(prompts, flags.find("f32") != std::string::npos ? "--kv-dtype f32" : "");
    const ProgramAnswers first = trial_.generate(prompts, in_host + flags);
    const ProgramAnswers second = trial_.generate(prompts, in_host + flags);
    expect_same_answers(plain, first);
    expect_same_answers(plain, second);
    EXPECT_EQ(first.brought.host, 0);
    EXPECT_GE(second.brought.host, 64);
    EXPECT_THAT(second.err, Not(HasSubstr("warning")));
  }
}

// Bytes flipped all over the file, then its end cut off: equal bits, from fewer pages.
TEST_F(RestartTest, ADamagedFileOfHostMemoryCostsPagesNotAnswers) {
  const std::string file = directory_.file("host");
  const std::string in_host = "--host-bytes 16MiB --host-file " + file + " ";
  const std::string prompts = trial_.prompts(1);
  const ProgramAnswers plain = trial_.cold(prompts);
  expect_same_answers(plain, trial_.generate(prompts, in_host));
  const std::string whole = read_bytes(file);
  const std::uint64_t seed = 20'242;
  SCOPED_TRACE(seed);
  Prng prng(seed);
  std::int64_t brought = 0;
  for (int round = 0; round < 8; ++round) {
    std::string damaged = whole;
    for (int flip = 0; flip < 1 << round; ++flip) {
      const auto at = 4096 + prng.below(std::ssize(whole) - 4096);
      damaged[static_cast<std::size_t>(at)] ^= static_cast<char>(1 << prng.below(8));
    }
    if (round % 2 == 1) damaged.resize(damaged.size() - 1 - damaged.size() / 3);
    std::ofstream(file, std::ios::binary) << damaged;
    const ProgramAnswers now = trial_.generate(prompts, in_host);
    expect_same_answers(plain, now);
    brought += now.brought.host;
  }
  EXPECT_GT(brought, 0);
  std::ofstream(file, std::ios::binary) << whole.substr(0, 20) << "damaged";
  const ProgramAnswers ignored = trial_.generate(prompts, in_host);
  expect_same_answers(plain, ignored);
  EXPECT_EQ(ignored.brought.host, 0);
  EXPECT_THAT(ignored.err, HasSubstr("tier.host_file.ignored"));
  EXPECT_GT(trial_.generate(prompts, in_host).brought.host, 0) << "it was written anew";
}

TEST_F(RestartTest, WhatIsNoFileOfHostMemoryIsRefusedAndStaysAsItIs) {
  const std::string file = directory_.file("somebody's");
  std::ofstream(file) << "text";
  const ProgramAnswers refused =
      trial_.generate(trial_.prompts(1), "--host-bytes 16MiB --host-file \"" + file + "\" ");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--host-file: " + file + ": not a file of host memory"));
  EXPECT_EQ(read_bytes(file), "text");
}

TEST_F(RestartTest, AFileOfAnotherModelsHostMemoryIsIgnored) {
  const std::string in_host = "--host-bytes 16MiB --host-file " + directory_.file("host") + " ";
  const std::string prompts = trial_.prompts(1);
  expect_same_answers(trial_.cold(prompts), trial_.generate(prompts, in_host));
  trial_.write_weights(2);
  const ProgramAnswers now = trial_.generate(prompts, in_host);
  expect_same_answers(trial_.cold(prompts), now);
  EXPECT_EQ(now.brought.host, 0);
  EXPECT_THAT(now.err, HasSubstr("pages of another model or format"));
  const ProgramAnswers alone = trial_.run(prompts, "--host-file " + directory_.file("host"));
  EXPECT_NE(alone.exit_code, 0);
  EXPECT_THAT(alone.err, HasSubstr("--host-file needs --host-bytes"));
}

// The same within a process, and what the counters say: all that one engine had, the next one has.
TEST_F(RestartTest, AnEngineOpensWithThePagesThatAnotherSettled) {
  set_log_level(LogLevel::kWarning);
  ServedModelOptions options = patient_options();
  struct Life {
    Outcome outcome;
    std::int64_t loaded = 0;
    std::int64_t left_out = 0;
    std::int64_t saved = 0;
  };
  const auto live = [&] {
    auto model = ServedModel::open(options);
    STEMMA_CHECK(model.ok(), "it opens");
    LogitsRecorder recorder((*model)->runner());
    const auto engine = (*model)->open_engine(&recorder);
    STEMMA_CHECK(engine.ok(), "it opens");
    Life life{run_trial(**engine, recorder, {.digest = (*model)->namespace_digest()},
                        [](std::int64_t) {}),
              metric_of(**engine, "stemma_host_file_loaded_pages_total"),
              metric_of(**engine, "stemma_host_file_left_out_pages_total")};
    (*engine)->settle(std::chrono::seconds(60));
    life.saved = metric_of(**engine, "stemma_host_file_saved_pages");
    return life;
  };
  const Life plain = live();
  options.tiers.host_bytes = std::int64_t{16} << 20;
  options.tiers.host_file = directory_.file("host");
  const Life first = live();
  const Life second = live();
  expect_same_bits(plain.outcome, first.outcome);
  expect_same_bits(plain.outcome, second.outcome);
  EXPECT_EQ(first.loaded, 0);
  EXPECT_GT(first.saved, 0);
  EXPECT_EQ(second.loaded, first.saved);
  EXPECT_EQ(second.left_out, 0);
  EXPECT_EQ(first.outcome.brought.host, 0);
  EXPECT_GT(second.outcome.brought.host, 0);
}

}  // namespace
}  // namespace stemma
