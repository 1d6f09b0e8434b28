// Prompts file: the three forms of a line, and one-line errors that name file, line and field.
#include "replay/prompts_file.h"

#include <gtest/gtest.h>

#include <fstream>

namespace stemma {
namespace {

TEST(PromptLine, HasThreeForms) {
  EXPECT_EQ(*parse_prompt_line(R"({"prompt": "Hi", "max_tokens": 3})", "p:1")->prompt, "Hi");
  EXPECT_EQ(*parse_prompt_line(R"({"prompt": "Hi", "max_tokens": 3})", "p:1")->max_tokens, 3);
  EXPECT_EQ(*parse_prompt_line(R"({"token_ids": [1, 2]})", "p:1")->token_ids,
            (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(*parse_prompt_line(R"({"prompt": "Hi", "adapter": "a"})", "p:1")->adapter, "a");
  EXPECT_FALSE(parse_prompt_line(R"({"prompt": "Hi"})", "p:1")->adapter.has_value());
  const auto messages =
      parse_prompt_line(R"({"messages": [{"role": "user", "content": "Hi"}]})", "p:1");
  ASSERT_TRUE(messages.ok());
  EXPECT_EQ((*messages->messages)[0]["role"], "user");
}

TEST(PromptLine, NamesTheFieldThatIsWrong) {
  const struct {
    std::string_view line;
    std::string_view error;
  } cases[] = {
      {R"({})", "prompt: exactly one of"},
      {R"({"prompt": "a", "token_ids": [1]})", "prompt: exactly one of"},
      {R"({"prompt": 7})", "prompt: a text"},
      {R"({"token_ids": "1"})", "token_ids: an array"},
      {R"({"token_ids": [1, -1]})", "token_ids[1]: not a token id"},
      {R"({"token_ids": [1, 18446744073709551615]})", "token_ids[1]: not a token id"},
      {R"({"token_ids": [1.5]})", "token_ids[0]: not an integer"},
      {R"({"messages": []})", "messages: a non-empty"},
      {R"({"messages": [{"role": "user"}]})", "messages[0].content: a text"},
      {R"({"messages": [3]})", "messages[0]: not an object"},
      {R"({"prompt": "a", "max_tokens": 0})", "max_tokens: an integer from 1"},
      {R"({"prompt": "a", "adapter": 1})", "adapter: a name"},
      {R"({"adapter": "a"})", "prompt: exactly one of"},
      {R"({"prompt": "a", "temprature": 1})", "temprature: unknown field"},
  };
  for (const auto& c : cases) {
    const Result<PromptLine> line = parse_prompt_line(c.line, "p.jsonl:4");
    ASSERT_FALSE(line.ok()) << c.line;
    EXPECT_EQ(line.error().detail.rfind("p.jsonl:4: " + std::string(c.error), 0), 0u)
        << line.error().detail;
  }
}

TEST(PromptsFile, ReadsLinesAndRefusesAnEmptyFile) {
  const std::string path = testing::TempDir() + "stemma_prompts_test.jsonl";
  std::ofstream(path) << "{\"prompt\": \"a\"}\n\n{\"prompt\": \"b\"}";
  EXPECT_EQ(read_prompts_file(path)->size(), 2u);
  std::ofstream(path) << "\n";
  EXPECT_FALSE(read_prompts_file(path).ok());
  EXPECT_FALSE(read_prompts_file("/nonexistent/prompts").ok());
}

}  // namespace
}  // namespace stemma
