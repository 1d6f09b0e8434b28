// What answers keep while they wait, and what they copy.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "base/heap_counter.h"
#include "base/temp_directory.h"
#include "model/random_adapter.h"
#include "server/preparation.h"

namespace stemma {
namespace {

// However long a request waits: the texts of these tokens are made when they are written.
TEST(AnswersMemory, IsOfTokensBeforeThoseWhoseChancesAreToldTheirNumbers) {
  constexpr std::size_t kPrompts = 100;
  constexpr std::size_t kTokens = 250;
  TempDirectory directory;
  ASSERT_TRUE(write_random_model(directory.path(), {.config = tiny_model_config("llama2")}).ok());
  ServedModelOptions options;
  options.directory = directory.path();
  options.kv_bytes = std::int64_t{1} << 20;
  options.engine.kv.context_tokens_max = kTokens + 6;
  const auto model = ServedModel::open(options);
  ASSERT_TRUE(model.ok()) << to_string(model.error());
  const Preparation preparation(**model, "scribe");
  const auto bytes_kept = [&](std::optional<std::int64_t> likeliest) {
    CompletionRequest request;
    request.kind = CompletionKind::kText;
    request.prompts.assign(kPrompts, std::vector<TokenId>(kTokens, 97));
    request.max_tokens = 1;
    request.prompt_logprobs = likeliest;
    request.logprobs_from = kTokens;
    const std::int64_t before = heap_bytes_held;
    const auto prepared = preparation.prepare(std::move(request), {});
    EXPECT_TRUE(std::holds_alternative<PreparedAnswer>(prepared));
    return heap_bytes_held - before;
  };
  const std::int64_t plain = bytes_kept(std::nullopt);
  EXPECT_LT(bytes_kept(1) - plain, std::int64_t{10} * kPrompts * kTokens);
}

TEST(AnswersMemory, IsTheUpdatesOwnWhereItBringsAllChancesOfAPrompt) {
  AnswerPlan plan;
  plan.scored_likeliest = 1;
  Answer answer(std::move(plan));
  AnswerUpdate update;
  update.of_prompt.resize(400);
  const std::int64_t before = heap_allocations;
  EXPECT_FALSE(answer.take(std::move(update)).ends);
  EXPECT_EQ(heap_allocations - before, 0);
}

}  // namespace
}  // namespace stemma
