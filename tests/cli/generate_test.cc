// stemma generate: what it prints, that the cache changes costs and never tokens or logits, and
// what it refuses.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/sanitizers.h"
#include "base/temp_directory.h"
#include "cli/program.h"

namespace stemma {
namespace {

using ::testing::HasSubstr;

const std::string kModel = std::string(STEMMA_SOURCE_DIR) + "/models/scribe-3m";

std::string write(const std::string& name, const std::string& text) {
  std::string path = testing::TempDir() + "stemma_generate_" + name;
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Four prompts that share their first 120 tokens.
std::string shared_prompts() {
  std::string text;
  for (int request = 0; request < 4; ++request) {
    text += R"({"max_tokens": 6, "token_ids": [)";
    for (int i = 0; i < 120; ++i) text += std::to_string(100 + i * 7 % 800) + ", ";
    text += std::to_string(50 + request) + ", 60]}\n";
  }
  return write("shared.jsonl", text);
}

std::string generate(const std::string& flags) {
  return "generate --model " + kModel + " " + flags;
}

TEST(Generate, PrintsEachRequestAndASummary) {
  const ProgramRun run =
      run_stemma(generate("--prompt 'And it came to pass' --max-tokens 5 --json"));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto lines = run.lines();
  ASSERT_EQ(lines.size(), 2u);
  for (const char* key :
       {"index", "prompt_tokens", "cached_tokens", "computed_tokens", "output_tokens", "token_ids",
        "text", "finish_reason", "ttft_ms", "total_ms"}) {
    EXPECT_TRUE(lines[0].contains(key)) << key;
  }
  EXPECT_EQ(lines[0]["cached_tokens"], 0);
  EXPECT_EQ(lines[0]["token_ids"].size(), lines[0]["output_tokens"].get<std::size_t>());
  for (const char* key : {"requests", "prompt_tokens", "cached_tokens", "computed_tokens",
                          "output_tokens", "total_ms"}) {
    EXPECT_TRUE(lines[1]["summary"].contains(key)) << key;
  }
}

TEST(Generate, AnswersAreWhatTheyHaveToBe) {
  const std::string schema = write(
      "schema.json", R"({"type":"object","properties":{"a":{"type":"boolean"}},"required":["a"]})");
  const ProgramRun json =
      run_stemma(generate("--prompt 'It is' --max-tokens 40 --json --json-schema " + schema));
  ASSERT_EQ(json.exit_code, 0) << json.err;
  const auto answer = json.lines()[0];
  EXPECT_EQ(answer["finish_reason"], "stop");
  EXPECT_TRUE(nlohmann::json::parse(answer["text"].get<std::string>())["a"].is_boolean());
  const ProgramRun code = run_stemma(generate("--prompt 'It is' --json --regex '[A-C]{2}x'"));
  const auto text = code.lines()[0]["text"].get<std::string>();
  EXPECT_EQ(text.size(), 3U);
  EXPECT_EQ(text.find_first_not_of("ABC"), 2U) << text;
  const std::string rules = write("rules.gbnf", "root ::= pair pair\npair ::= [xy] \"-\"\n");
  const ProgramRun pairs = run_stemma(generate("--prompt 'It is' --json --grammar " + rules));
  const auto two = pairs.lines()[0]["text"].get<std::string>();
  EXPECT_EQ(two.size(), 4U) << two;
  EXPECT_EQ(two.find_first_not_of("xy-"), std::string::npos) << two;
  const std::string tag =
      write("tag.json",
            R"({"format":{"type":"tag","begin":"[","end":"]","content":{"type":"any_text"}}})");
  const ProgramRun tagged =
      run_stemma(generate("--prompt 'It is' --max-tokens 40 --json --structural-tag " + tag));
  ASSERT_EQ(tagged.exit_code, 0) << tagged.err;
  EXPECT_TRUE(tagged.lines()[0]["text"].get<std::string>().starts_with("["));
}

TEST(Generate, AFormThatCannotBeIsRefused) {
  const auto refusal = [](const std::string& flags) {
    const ProgramRun run = run_stemma(generate("--prompt 'It is' " + flags));
    EXPECT_NE(run.exit_code, 0);
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
    return run.err;
  };
  const std::string schema = write("bad_schema.json", R"({"type":"what"})");
  EXPECT_THAT(refusal("--json-schema " + schema), HasSubstr(".type: \"what\" is no type"));
  EXPECT_THAT(refusal("--json-schema /nowhere/s.json"), HasSubstr("/nowhere/s.json"));
  EXPECT_THAT(refusal("--regex '('"), HasSubstr("--regex: at 1: a ( without a )"));
  EXPECT_THAT(refusal("--regex a --json-schema " + schema), HasSubstr("not several"));
  const std::string tag = write("bad_tag.json", R"({"format":{"type":"what"}})");
  EXPECT_THAT(refusal("--structural-tag " + tag), HasSubstr("bad_tag.json.format.type: \"what\""));
  const std::string rules = write("bad_rules.gbnf", "root ::= pair\n");
  EXPECT_THAT(refusal("--grammar " + rules), HasSubstr("bad_rules.gbnf: line 1: no rule is pair"));
}

TEST(Generate, TheCacheChangesCostsAndNeitherTokensNorLogits) {
  const std::string prompts = "--prompts " + shared_prompts() + " --json --concurrency 2 ";
  const std::string on = testing::TempDir() + "stemma_logits_on";
  const std::string off = testing::TempDir() + "stemma_logits_off";
  const ProgramRun cached = run_stemma(generate(prompts + "--logits " + on));
  const ProgramRun plain = run_stemma(generate(
      prompts + "--cache none --page-size 64 --chunk-tokens 7 --threads 1 --logits " + off));
  ASSERT_EQ(cached.exit_code, 0) << cached.err;
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  const auto a = cached.lines();
  const auto b = plain.lines();
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(a[i]["token_ids"], b[i]["token_ids"]);
  EXPECT_EQ(a[4]["summary"]["cached_tokens"], 3 * 112);  // pages of 16 within 120 shared tokens
  EXPECT_EQ(b[4]["summary"]["cached_tokens"], 0);
  EXPECT_GT(read(on).size(), 4u * 2048u);
  EXPECT_EQ(read(on), read(off));
}

TEST(Generate, AShadowAuditFindsNothingAndChangesNothing) {
  const std::string prompts = "--prompts " + shared_prompts() + " --json --concurrency 2 ";
  const ProgramRun plain = run_stemma(generate(prompts));
  const ProgramRun audited = run_stemma(generate(prompts + "--shadow-audit 100"));
  ASSERT_EQ(audited.exit_code, 0) << audited.err;
  EXPECT_FALSE(plain.lines()[4]["summary"].contains("shadow_audit"));
  const auto summary = audited.lines()[4]["summary"];
  EXPECT_EQ(summary["shadow_audit"]["audits"], 3) << "three of four find something";
  EXPECT_EQ(summary["shadow_audit"]["mismatches"], 0);
  EXPECT_EQ(summary["shadow_audit"]["skipped"], 0);
  EXPECT_EQ(summary["cached_tokens"], plain.lines()[4]["summary"]["cached_tokens"]);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(audited.lines()[i]["token_ids"], plain.lines()[i]["token_ids"]);
  }
}

TEST(Generate, ASeedGivesTheSameTokensWhateverTheBatch) {
  const std::string prompts = "--prompts " + shared_prompts() +
                              " --json --temperature 1 --top-p 0.9 --seed 5 --concurrency ";
  const ProgramRun one = run_stemma(generate(prompts + "1"));
  const ProgramRun four = run_stemma(generate(prompts + "4"));
  ASSERT_EQ(one.exit_code, 0) << one.err;
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(one.lines()[i]["token_ids"], four.lines()[i]["token_ids"]);
  }
}

TEST(Generate, AStopStringEndsAnAnswerBeforeIt) {
  const std::string prompt = "--prompt 'And it came to pass' --max-tokens 20 --json ";
  const std::string text = run_stemma(generate(prompt)).lines()[0]["text"];
  ASSERT_GT(text.size(), 8u);
  const std::string stop = text.substr(5, 3);
  const ProgramRun run = run_stemma(generate(prompt + "--stop '" + stop + "'"));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.lines()[0]["finish_reason"], "stop");
  EXPECT_EQ(run.lines()[0]["text"], text.substr(0, text.find(stop)));
}

TEST(Generate, RefusesWithOneLineThatNamesTheField) {
  const struct {
    std::string flags;
    std::string error;
  } cases[] = {
      {"", "--prompt or --prompts"},
      {"--prompt a --prompts b", "--prompt or --prompts"},
      {"--prompt ''", "prompt"},
      {"--prompts " + write("empty.jsonl", ""), "holds no prompts"},
      {"--prompts " + write("broken.jsonl", "{\"prompt\": 1}"), "prompt: a text is wanted"},
      {"--prompts " + write("range.jsonl", "{\"token_ids\": [99999999]}"), "99999999"},
      {"--prompts " + write("none.jsonl", "{\"token_ids\": []}"), "prompt"},
      {"--prompts /nonexistent", "--prompts: /nonexistent"},
      {"--prompt a --use-adapter q", "--use-adapter: adapter 'q' is not one"},
      {"--prompt a --top-p 0", "--top-p: top_p must be"},
      {"--prompt a --top-k -1", "--top-k: top_k must be"},
      {"--prompt a --json-schema /nonexistent", "--json-schema: /nonexistent"},
      {"--prompt a --structural-tag /nonexistent", "--structural-tag: /nonexistent"},
      {"--prompt a --grammar " + write("wrong.gbnf", "root ::= pair\n"), "--grammar: "},
      {"--prompt a --regex '('", "--regex: at 1"},
      {"--prompt a --page-size 0", "--page-size must be at least 1"},
      {"--prompt a --page-size 72057594037927936", "--page-size must be at most 2147483647"},
      {"--prompt a --page-size 2147483647", "--kv-bytes: kv_bytes must hold at least one page"},
      {"--prompt a --max-tokens 0", "--max-tokens must be at least 1"},
      {"--prompt a --max-tokens 99999", "context"},
      {"--prompt a --kv-bytes 1KiB", "--kv-bytes: kv_bytes must hold at least one page"},
      {"--prompt a --kv-bytes 64KiB --max-tokens 2000", "pages"},
      {"--prompt a --kv-bytes lots", "--kv-bytes wants a size"},
      {"--prompt a --kv-dtype fp3", "--kv-dtype: unknown KV dtype 'fp3'"},
      {"--prompt a --kv-layout sideways", "--kv-layout: unknown KV layout 'sideways'"},
      {"--prompt a --weights magic", "--weights: "},
      {"--prompt a --cache magic", "--cache: magic not in {radix,none}"},
      {"--prompt a --eviction magic", "--eviction: eviction: unknown order"},
      {"--prompt a --policy magic", "--policy: schedule policy 'magic' is unknown"},
      {"--prompt a --attention magic", "--attention: magic not in {cpu,reference}"},
      {"--prompt a --chunk-tokens 99999999999", "--chunk-tokens: step_tokens_max must be"},
      {"--prompt a --concurrency 99999999", "--concurrency: requests_max must be at most 65536"},
      {"--prompt a --temperature -1", "--temperature: temperature must be"},
      {"--prompt a --concurrency 0", "--concurrency must be at least 1"},
      {"--prompt a --shadow-audit 101", "--shadow-audit must be from 0 to 100"},
      {"--prompt a --shadow-audit -1", "--shadow-audit must be from 0 to 100"},
      {"--prompt a --device gpu", "--device must be cpu, cuda or cuda:N (got gpu)"},
      {"--prompt a --device cuda:x", "--device must be cpu, cuda or cuda:N (got cuda:x)"},
      {"--prompt a --device cuda:77", "cuda"},  // which nobody has
      {"--prompt a --capture ''", "--capture: is empty"},
      {"--prompt a --threads ''", "--threads: is empty"},
      {"--prompt a --top-p nan", "--top-p: nan is no finite number"},
      {"--prompt a --logits /tmp/none --capture /tmp/./none", "/none is the file of --logits"},
      {"--prompts " + shared_prompts() + " --logits " + shared_prompts(), "file of --prompts"},
      {"--prompt a --bogus", "--bogus"},
  };
  for (const auto& c : cases) {
    const ProgramRun run = run_stemma(generate(c.flags));
    EXPECT_TRUE(run.exit_code == 1 || run.exit_code == 2) << c.flags << ": " << run.exit_code;
    if (c.error.starts_with("--")) {
      EXPECT_EQ(run.exit_code, 2) << c.flags;
    }
    EXPECT_NE(run.err.find(c.error), std::string::npos) << c.flags << ": " << run.err;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  }
}

TEST(Generate, KeepsTheModelThatItReads) {
  const TempDirectory directory;
  std::filesystem::copy(kModel, directory.path());
  const std::string tokenizer = directory.file("tokenizer.json");
  const ProgramRun run = run_stemma("generate --prompt a --max-tokens 1 --model " +
                                    directory.path() + " --capture " + tokenizer);
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("--capture: " + tokenizer + " is the file of --model"));
  EXPECT_EQ(read(tokenizer), read(kModel + "/tokenizer.json"));
}

// As where a container may have no more processes: here there is no room for a second stack.
TEST(Generate, AThreadThatTheSystemRefusesIsSaidSo) {
  if (kAddressesWatched || kThreadsWatched) GTEST_SKIP() << "sanitizers map more than that";
  const ProgramRun run = run_stemma("generate --threads 2 --prompt Hello --model " + kModel,
                                    "prlimit --as=4000000000 --stack=8000000000");
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.err, HasSubstr("stemma: io: cannot start a thread ("));
}

TEST(Generate, RefusesADamagedModelWithOneLine) {
  const std::string folder = testing::TempDir() + "stemma_damaged_model";
  const struct {
    std::string damage;
    std::string error;
  } cases[] = {
      {"rm $D/config.json", "config.json"},
      {"sed -i 's/LlamaForCausalLM/PoemForCausalLM/' $D/config.json", "PoemForCausalLM"},
      {"sed -i 's/\"hidden_size\": [0-9]*/\"hidden_size\": 512/' $D/config.json",
       "model.safetensors"},
      {"rm $D/model.safetensors", "model.safetensors"},
      {"truncate -s 100000 $D/model.safetensors", "model.safetensors"},
      {"truncate -s 4 $D/model.safetensors", "model.safetensors"},
      {"rm $D/tokenizer.json", "tokenizer.json"},
      {"truncate -s 1000 $D/tokenizer.json", "tokenizer.json"},
  };
  for (const auto& c : cases) {
    const std::string make =
        "rm -rf " + folder + " && cp -r " + kModel + " " + folder + " && D=" + folder + " && ";
    ASSERT_EQ(std::system((make + c.damage).c_str()), 0);
    const ProgramRun run = run_stemma("generate --prompt a --model " + folder);
    EXPECT_EQ(run.exit_code, 1) << c.damage << run.err;
    EXPECT_NE(run.err.find(c.error), std::string::npos) << run.err;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  }
}

}  // namespace
}  // namespace stemma
