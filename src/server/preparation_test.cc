// What a server makes of a request's "model": the model itself or one of its adapters, and a fault
// that names all of them otherwise; what its answer has to be; and how long a request may be, where
// memory is shorter than the model's context.
#include "server/preparation.h"

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "anthropic/message_request.h"
#include "base/temp_directory.h"
#include "model/random_adapter.h"
#include "server/server.h"

namespace stemma {
namespace {

class PreparationTest : public testing::Test {
 protected:
  void SetUp() override {
    const ModelConfig config = tiny_model_config("llama2");
    ASSERT_TRUE(write_random_model(model_directory_.path(), {.config = config}).ok());
    ASSERT_TRUE(write_random_adapter(adapter_directory_.path(), {.config = config}).ok());
    open(std::int64_t{1} << 20);
  }

  void open(std::int64_t kv_bytes) {
    ServedModelOptions options;
    options.directory = model_directory_.path();
    options.kv_bytes = kv_bytes;
    options.engine.kv.context_tokens_max = 256;
    options.adapters = {{"poet", adapter_directory_.path()}, {"sage", adapter_directory_.path()}};
    auto model = ServedModel::open(options);
    ASSERT_TRUE(model.ok()) << to_string(model.error());
    model_ = std::move(model).value();
    preparation_.emplace(*model_, "scribe");
  }

  ApiResult<PreparedAnswer> prepare(const std::string& fields) const {
    const std::string body = R"({"prompt": "And it came to pass")" + fields + "}";
    return preparation_->prepare(
        read_completion_request(CompletionKind::kText, body, preparation_->rules()), {});
  }
  // The adapter and the name that answers a request with these fields.
  std::pair<std::string, std::string> chosen_by(const std::string& fields) const {
    const auto prepared = prepare(fields);
    const auto* const answer = std::get_if<PreparedAnswer>(&prepared);
    if (answer == nullptr) return {"refused", std::get<ApiError>(prepared).message};
    return {answer->job.prompts.front().spec.adapter, answer->plan.head.model};
  }

  TempDirectory model_directory_;
  TempDirectory adapter_directory_;
  std::unique_ptr<ServedModel> model_;
  std::optional<Preparation> preparation_;
};

TEST_F(PreparationTest, TheModelsNameChoosesTheModelOrAnAdapterOfIt) {
  using Chosen = std::pair<std::string, std::string>;
  EXPECT_EQ(chosen_by(""), (Chosen{"", "scribe"}));
  EXPECT_EQ(chosen_by(R"(, "model": "scribe")"), (Chosen{"", "scribe"}));
  EXPECT_EQ(chosen_by(R"(, "model": "poet")"), (Chosen{"poet", "poet"}));
  EXPECT_EQ(chosen_by(R"(, "model": "sage")"), (Chosen{"sage", "sage"}));
}

class PreparationOfTools : public PreparationTest {
 protected:
  void write_templates(const std::string& with_tools) {
    const TemplateJson config = {
        {"chat_template",
         {{{"name", "default"}, {"template", "plain {{ messages[0].content }}"}},
          {{"name", "tool_use"}, {"template", with_tools}}}}};
    std::ofstream(model_directory_.file("tokenizer_config.json")) << config.dump();
    open(std::int64_t{1} << 20);
  }
  ApiResult<PreparedAnswer> chat(const std::string& fields) const {
    const std::string body = R"({"messages": [{"role": "user", "content": "hi"}])" + fields + "}";
    return preparation_->prepare(
        read_completion_request(CompletionKind::kChat, body, preparation_->rules()), {});
  }
  std::string prompt_of(const ApiResult<PreparedAnswer>& prepared) const {
    const auto* const answer = std::get_if<PreparedAnswer>(&prepared);
    return answer == nullptr ? std::get<ApiError>(prepared).message
                             : preparation_->text_of(answer->job.prompts.front().spec.prompt);
  }

  static constexpr const char* kTools =
      R"(, "tools": [{"type": "function", "function": {"name": "f"}}])";
};

TEST_F(PreparationOfTools, ChatsWithToolsAreWrittenAndReadByTheirOwnTemplate) {
  write_templates("<tool_call>{{ tools[0].function.name }} {{ messages[0].content }}");
  const auto plain = chat("");
  EXPECT_EQ(prompt_of(plain), "plain hi");
  EXPECT_EQ(std::get<PreparedAnswer>(plain).plan.call_style, std::nullopt);
  const auto with_tools = chat(kTools);
  EXPECT_EQ(prompt_of(with_tools), "<tool_call>f hi");
  EXPECT_EQ(std::get<PreparedAnswer>(with_tools).plan.call_style, ToolCallStyle::kTagged);
}

// Whoever puts words into an answer's mouth has it behind its thoughts.
TEST_F(PreparationOfTools, AnAnswerThatGoesOnFromAMessageHasNoThoughtsBeforeIt) {
  const TemplateJson config = {{"chat_template", "{# </think> #}{{ messages[0].content }}"}};
  std::ofstream(model_directory_.file("tokenizer_config.json")) << config.dump();
  open(std::int64_t{1} << 20);
  const auto thoughts_of = [&](const std::string& fields) {
    const auto prepared = chat(fields);
    return std::get<PreparedAnswer>(prepared).job.prompts.front().thoughts;
  };
  EXPECT_EQ(thoughts_of(""), ThoughtPlace::kBefore);
  EXPECT_EQ(thoughts_of(R"(, "separate_reasoning": false)"), ThoughtPlace::kBehind);
  EXPECT_EQ(thoughts_of(R"(, "continue_final_message": true)"), ThoughtPlace::kBehind);
}

TEST_F(PreparationOfTools, CallsWrittenAsTextsAreReadByTheTypesOfTheirTools) {
  write_templates("<tool_call><function=");
  const auto prepared = chat(
      R"(, "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object",
           "properties": {"n": {"type": "integer"}}}}}])");
  const AnswerPlan& plan = std::get<PreparedAnswer>(prepared).plan;
  EXPECT_EQ(plan.call_style, ToolCallStyle::kFunctions);
  EXPECT_EQ(plan.tool_types, (ToolTypes{{"f", {{"n", {"integer"}}}}}));
}

TEST_F(PreparationOfTools, ATemplateThatCannotBeRenderedIsAFaultOfTools) {
  write_templates("{% include 'x' %}");
  EXPECT_EQ(prompt_of(chat("")), "plain hi");
  const auto refused = chat(kTools);
  ASSERT_TRUE(std::holds_alternative<ApiError>(refused));
  EXPECT_EQ(std::get<ApiError>(refused).param, "tools");
  EXPECT_NE(prompt_of(refused).find("template for chats with tools"), std::string::npos);
}

TEST_F(PreparationTest, EachPromptHasItsOwnConstraint) {
  const auto prepared = prepare(R"(, "n": 2, "guided_json": {"type": "boolean"})");
  const auto& prompts = std::get<PreparedAnswer>(prepared).job.prompts;
  ASSERT_EQ(prompts.size(), 1U);
  ASSERT_NE(prompts[0].spec.constraint.get(), nullptr);
  EXPECT_FALSE(prompts[0].spec.constraint.get()->may_end());
  const auto free = prepare("");
  EXPECT_EQ(std::get<PreparedAnswer>(free).job.prompts[0].spec.constraint.get(), nullptr);
}

// max_new_tokens of generation_config.json.
TEST_F(PreparationTest, WhoSaysNoMaxTokensGetsWhatTheModelsFilesSay) {
  std::ofstream(model_directory_.path() + "/generation_config.json") << R"({"max_new_tokens": 9})";
  preparation_.reset();
  open(std::int64_t{1} << 20);
  const auto given = [&](std::int64_t prompt_tokens, std::int64_t min_tokens,
                         std::optional<std::int64_t> max_tokens) {
    CompletionRequest request;
    request.kind = CompletionKind::kText;
    request.prompts = {std::vector<TokenId>(static_cast<std::size_t>(prompt_tokens), 7)};
    request.min_tokens = min_tokens;
    request.max_tokens = max_tokens;
    const auto prepared = preparation_->prepare(std::move(request), {});
    return std::get<PreparedAnswer>(prepared).job.prompts[0].spec.max_tokens;
  };
  EXPECT_EQ(given(10, 0, std::nullopt), 9);
  EXPECT_EQ(given(10, 0, 40), 40) << "the request says more";
  EXPECT_EQ(given(10, 12, std::nullopt), 12) << "and here at least";
  EXPECT_EQ(given(250, 0, std::nullopt), 6) << "there is no more room";
}

TEST_F(PreparationTest, AFormThatCannotBeKeptToIsAFaultOfItsField) {
  using Fault = std::pair<std::string, std::string>;
  const auto fault = [&](const std::string& fields) -> Fault {
    const auto prepared = prepare(fields);
    const auto* const error = std::get_if<ApiError>(&prepared);
    return error == nullptr ? Fault() : Fault{error->param, error->message};
  };
  EXPECT_EQ(fault(R"(, "guided_json": {"type": "x"})"),
            (Fault{"guided_json", "guided_json.type: \"x\" is no type"}));
  EXPECT_EQ(fault(R"(, "guided_json": {"$ref": "#"})"),
            (Fault{"guided_json", "guided_json: there is no finite text of this form"}));
}

TEST_F(PreparationTest, AnUnknownModelIsNotFoundAndThoseThereAreAreNamed) {
  const auto prepared = prepare(R"(, "model": "bard")");
  const auto* const fault = std::get_if<ApiError>(&prepared);
  ASSERT_NE(fault, nullptr);
  EXPECT_EQ(fault->status, 404);
  EXPECT_EQ(fault->param, "model");
  EXPECT_EQ(fault->code, "model_not_found");
  EXPECT_EQ(fault->message,
            "The model 'bard' does not exist; this server has 'scribe', 'poet', 'sage'");
}

// Where they may never wait together; else clients would ask again and again.
TEST_F(PreparationTest, MoreAnswersThanMayWaitAreRefusedForGood) {
  preparation_.emplace(*model_, "scribe", 4);
  EXPECT_TRUE(std::holds_alternative<PreparedAnswer>(prepare(R"(, "n": 4)")));
  const auto prepared = prepare(R"(, "n": 5)");
  const auto* const fault = std::get_if<ApiError>(&prepared);
  ASSERT_NE(fault, nullptr);
  EXPECT_EQ(fault->status, 400);
  EXPECT_EQ(fault->param, "n");
}

TEST_F(PreparationTest, ACompletionGoesOnFromItsPromptsText) {
  const auto goes_on = [&](PromptText prompt) {
    CompletionRequest request;
    request.kind = CompletionKind::kText;
    request.prompts = {std::move(prompt)};
    const auto prepared = preparation_->prepare(std::move(request), {});
    return std::get<PreparedAnswer>(prepared).job.prompts[0].text.goes_on;
  };
  TokenId special = 0;
  while (special < model_->vocab_tokens() && !model_->tokenizer().is_special(special)) ++special;
  ASSERT_LT(special, model_->vocab_tokens());
  EXPECT_TRUE(goes_on("And it"));
  EXPECT_TRUE(goes_on(std::vector<TokenId>{special, special == 0 ? 1 : 0}));
  EXPECT_FALSE(goes_on(std::vector<TokenId>{special})) << "a token of beginning is no text";
}

TEST_F(PreparationTest, OfAPromptThatMayBeCutTheEndStays) {
  const auto cut = [&](std::int64_t kept, std::int64_t max_tokens) {
    CompletionRequest request;
    request.kind = CompletionKind::kText;
    std::vector<TokenId> prompt(300);
    std::iota(prompt.begin(), prompt.end(), TokenId{0});
    request.prompts = {prompt};
    request.max_tokens = max_tokens;
    request.prompt_tokens_kept = kept;
    const auto prepared = preparation_->prepare(std::move(request), {});
    return std::get<PreparedAnswer>(prepared).job.prompts[0].spec.prompt;
  };
  EXPECT_EQ(cut(2, 8), (std::vector<TokenId>{298, 299}));
  const std::vector<TokenId> fitting = cut(CompletionRequest::kPromptThatFits, 8);
  EXPECT_EQ(std::ssize(fitting), preparation_->context_tokens() - 8);
  EXPECT_EQ(fitting.back(), 299);
}

// Its tokenizer composes characters and puts a token before each text, and one behind it.
TEST_F(PreparationTest, AnEchoIsThePromptAsItWasSent) {
  const std::string file = model_directory_.file("tokenizer.json");
  auto tokenizer = TemplateJson::parse(std::ifstream(file));
  const TemplateJson end = {{"SpecialToken", {{"id", "<|end|>"}, {"type_id", 0}}}};
  tokenizer["normalizer"] = {{"type", "NFC"}};
  tokenizer["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", {end, {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}, end}},
      {"pair", TemplateJson::array()},
      {"special_tokens",
       {{"<|end|>", {{"id", "<|end|>"}, {"ids", {kTinyEndToken}}, {"tokens", {"<|end|>"}}}}}}};
  std::ofstream(file) << tokenizer.dump();
  open(std::int64_t{1} << 20);
  // What is echoed, and which of the prompt's tokens it is.
  using Echo = std::tuple<std::string, std::int64_t, std::int64_t>;
  const auto echo_of = [&](const std::string& prompt, const std::string& fields) {
    const auto prepared = preparation_->prepare(
        read_completion_request(
            CompletionKind::kText,
            R"({"echo": true, "logprobs": 0, "prompt": )" + prompt + fields + "}",
            preparation_->rules()),
        {});
    const auto& answer = std::get<PreparedAnswer>(prepared);
    const TokenChances::Rules& told = answer.job.prompts[0].of_prompt->rules();
    return Echo(answer.plan.echoes[0], told.begin, told.end);
  };
  const std::string composed = "\xC3\xA9";
  const std::string decomposed = "e\xCC\x81";
  for (const char* const fields : {"", R"(, "skip_special_tokens": false)"}) {
    EXPECT_EQ(echo_of(R"("a)" + decomposed + R"(<|end|>b")", fields),
              Echo("a" + decomposed + "<|end|>b", 1, 6));
    EXPECT_EQ(echo_of("[97, 256, 195, 169, 256]", fields),
              Echo("a<|end|>" + composed + "<|end|>", 0, 5));
  }
  EXPECT_EQ(echo_of(R"("abc")", R"(, "add_special_tokens": false)"), Echo("abc", 0, 3));
  EXPECT_EQ(echo_of(R"("abc")", R"(, "truncate_prompt_tokens": 9)"), Echo("abc", 1, 4));
  EXPECT_EQ(echo_of(R"("abc")", R"(, "truncate_prompt_tokens": 4)"), Echo("abc", 0, 3));
  EXPECT_EQ(echo_of(R"("abc")", R"(, "truncate_prompt_tokens": 3)"), Echo("bc", 0, 2));
  EXPECT_EQ(echo_of(R"("abc")", R"(, "truncate_prompt_tokens": 1)"), Echo("", 0, 0));
}

TEST_F(PreparationTest, WhatIsWrongWithAPromptIsSaidOfTheFieldThatClientsCallItBy) {
  const auto fault_of = [&](CompletionKind kind, AnswerShape shape = AnswerShape::kCompletion) {
    CompletionRequest request;
    request.kind = kind;
    request.prompts = {std::vector<TokenId>(300, 7)};  // too long
    request.messages = TemplateJson::array({{{"role", "user"}, {"content", "x"}}});
    request.shape = shape;
    const auto prepared = preparation_->prepare(std::move(request), {});
    return std::get<ApiError>(prepared).param;
  };
  EXPECT_EQ(fault_of(CompletionKind::kText), "prompt");
  EXPECT_EQ(fault_of(CompletionKind::kChat), "messages") << "there is no template";
  EXPECT_EQ(fault_of(CompletionKind::kChat, AnswerShape::kResponse), "input");
  EXPECT_EQ(fault_of(CompletionKind::kChat, AnswerShape::kMessage), "messages");
}

// They may be a million: no step of the engine waits until they are read.
TEST_F(PreparationTest, TokensBeforeThoseWhoseChancesAreToldAreReadBeforeTheJobIsGiven) {
  const auto prepared_with = [&](std::optional<std::int64_t> likeliest) {
    CompletionRequest request;
    request.kind = CompletionKind::kText;
    request.prompts.assign(2, std::vector<TokenId>{97, 98, 195, 169, 99});
    request.max_tokens = 1;
    request.prompt_logprobs = likeliest;
    request.logprobs_from = 4;
    return std::get<PreparedAnswer>(preparation_->prepare(std::move(request), {}));
  };
  EXPECT_FALSE(prepared_with(std::nullopt).job.prompts[1].of_prompt.has_value());
  EXPECT_TRUE(prepared_with(std::nullopt).plan.given.empty());
  PreparedAnswer prepared = prepared_with(3);
  ASSERT_EQ(prepared.plan.given.size(), 2U);
  const std::vector<TokenChance> given = prepared.plan.given[1].read();
  ASSERT_EQ(given.size(), 4U);
  for (const TokenChance& chance : given) EXPECT_TRUE(chance.is_given);
  EXPECT_EQ(given[1].token.text, "b");
  std::optional<TokenChances>& rest = prepared.job.prompts[1].of_prompt;
  ASSERT_TRUE(rest.has_value());
  const TokenLogprob next = {99};
  EXPECT_EQ(rest->next(std::span(&next, 1)).first_character, 3) << "behind the given ones";
}

// 250 tokens with the 20 likeliest each, a prompt and answer.
TEST_F(PreparationTest, MoreLogprobsOfPromptsThanMemoryIsMeantForAreRefused) {
  const auto fault_of = [&](std::size_t prompts, std::int64_t copies, bool echo) {
    CompletionRequest request;
    request.kind = CompletionKind::kText;
    request.prompts.assign(prompts, std::vector<TokenId>(250, 7));
    request.max_tokens = 1;
    request.copies = copies;
    request.echo = echo;
    (echo ? request.logprobs : request.prompt_logprobs) = 20;
    const auto prepared = preparation_->prepare(std::move(request), {});
    const auto* const fault = std::get_if<ApiError>(&prepared);
    return fault == nullptr ? "accepted" : fault->param;
  };
  EXPECT_EQ(fault_of(128, 1, true), "accepted");
  EXPECT_EQ(fault_of(2, 110, true), "logprobs");
  EXPECT_EQ(fault_of(2, 110, false), "prompt_logprobs");
}

// Clients of Anthropic's have to say how many tokens they want: all there is room for, most mean.
TEST_F(PreparationOfTools, MaxTokensOfAMessageGiveWayToTheContext) {
  write_templates("");
  const auto max_tokens_of = [&](std::int64_t asked, std::string_view text) {
    const std::string body = R"({"max_tokens":)" + std::to_string(asked) +
                             R"(,"messages":[{"role":"user","content":")" + std::string(text) +
                             R"("}]})";
    const auto prepared =
        preparation_->prepare(read_message_request(body, preparation_->rules()), {});
    const auto* const answer = std::get_if<PreparedAnswer>(&prepared);
    if (answer == nullptr) return std::get<ApiError>(prepared).message;
    EXPECT_EQ(answer->plan.max_tokens, asked) << "by which it is told why it ended";
    const RequestSpec& spec = answer->job.prompts.front().spec;
    const bool fills = std::ssize(spec.prompt) + spec.max_tokens == preparation_->context_tokens();
    return std::string(fills ? "all there is" : "as asked");
  };
  EXPECT_EQ(max_tokens_of(9, "hi"), "as asked");
  EXPECT_EQ(max_tokens_of(100'000, "hi"), "all there is");
  const std::string refused = max_tokens_of(1, std::string(1000, 'x'));
  EXPECT_TRUE(refused.starts_with("prompt is too long: ")) << refused;
  EXPECT_TRUE(refused.ends_with(" tokens > 255 maximum")) << refused << ": as agents look for it";
}

TEST_F(PreparationTest, MoreMinTokensThanThereIsRoomForAreRefused) {
  const auto prepared = prepare(R"(, "max_tokens": 8, "min_tokens": 8)");
  ASSERT_TRUE(std::holds_alternative<PreparedAnswer>(prepared));
  EXPECT_EQ(std::get<PreparedAnswer>(prepared).job.prompts[0].spec.min_tokens, 8);
  CompletionRequest request;
  request.kind = CompletionKind::kText;
  request.prompts = {"x"};
  request.min_tokens = 300;
  const auto refused = preparation_->prepare(std::move(request), {});
  ASSERT_TRUE(std::holds_alternative<ApiError>(refused));
  EXPECT_EQ(std::get<ApiError>(refused).param, "min_tokens");
}

// With the memory of three pages, of a context of 256 tokens.
class ShortMemoryTest : public PreparationTest {
 protected:
  void SetUp() override {
    PreparationTest::SetUp();
    const std::int64_t page_bytes = (std::int64_t{1} << 20) / model_->engine_options().kv.pages;
    preparation_.reset();
    open(3 * page_bytes);
    const KvCacheOptions& kv = model_->engine_options().kv;
    ASSERT_EQ(kv.pages, 3);
    ASSERT_EQ(kv.page_size, 16);
  }
  ApiResult<PreparedAnswer> prepare_tokens(std::size_t tokens,
                                           std::optional<std::int64_t> max_tokens) const {
    CompletionRequest request;
    request.kind = CompletionKind::kText;
    request.prompts = {std::vector<TokenId>(tokens, 7)};
    request.max_tokens = max_tokens;
    return preparation_->prepare(std::move(request), {});
  }
};

// The last token has no place.
TEST_F(ShortMemoryTest, WhoSaysNoMaxTokensGetsWhatMemoryHolds) {
  const auto prepared = prepare_tokens(10, std::nullopt);
  const auto* const answer = std::get_if<PreparedAnswer>(&prepared);
  ASSERT_NE(answer, nullptr) << std::get<ApiError>(prepared).message;
  EXPECT_EQ(answer->job.prompts[0].spec.max_tokens, 3 * 16 + 1 - 10);
  EXPECT_EQ(preparation_->context_tokens(), 3 * 16 + 1);
  const auto engine = model_->open_engine();
  ASSERT_TRUE(engine.ok());
  EXPECT_TRUE((*engine)->submit(answer->job.prompts[0].spec).ok());
}

// Asked again later it would be refused again.
TEST_F(ShortMemoryTest, WhatMemoryNeverHoldsIsRefusedForGood) {
  for (const auto& [tokens, max_tokens] : {std::pair(10, 40), std::pair(49, 1)}) {
    const auto prepared = prepare_tokens(static_cast<std::size_t>(tokens), max_tokens);
    const auto* const fault = std::get_if<ApiError>(&prepared);
    ASSERT_NE(fault, nullptr) << tokens;
    EXPECT_EQ(fault->status, 400);
    EXPECT_EQ(fault->code, "context_length_exceeded");
    EXPECT_NE(fault->message.find("the 49 that KV memory holds"), std::string::npos)
        << fault->message;
  }
  EXPECT_TRUE(std::holds_alternative<PreparedAnswer>(prepare_tokens(48, 1)));
}

TEST_F(PreparationTest, AnAdapterCannotBeCalledAsTheModelIs) {
  ServerOptions options;
  options.api.model_name = "poet";
  const auto server = Server::open(options, *model_);
  ASSERT_FALSE(server.ok());
  EXPECT_EQ(server.error().detail, "--adapter: 'poet' is what the model itself is called");
}

}  // namespace
}  // namespace stemma
