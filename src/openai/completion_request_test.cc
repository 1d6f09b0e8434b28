// Covers requests as clients send them: every field into its place, its default where it is absent,
// and a refusal that names its path where it is wrong.
#include "openai/completion_request.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <string>

#include "base/prng.h"

namespace stemma {
namespace {

RequestRules rules_of_100_tokens() {
  RequestRules rules;
  rules.vocab_tokens = 100;
  return rules;
}
const RequestRules kRules = rules_of_100_tokens();

ApiResult<CompletionRequest> chat(const std::string& fields) {
  return read_completion_request(CompletionKind::kChat,
                                 R"({"messages":[{"role":"user","content":"hi"}])" +
                                     (fields.empty() ? "" : "," + fields) + "}",
                                 kRules);
}

ApiResult<CompletionRequest> completion(const std::string& fields) {
  return read_completion_request(CompletionKind::kText, "{" + fields + "}", kRules);
}

CompletionRequest accepted(const ApiResult<CompletionRequest>& read) {
  const auto* const fault = std::get_if<ApiError>(&read);
  EXPECT_EQ(fault, nullptr) << fault->message;
  return fault == nullptr ? std::get<CompletionRequest>(read) : CompletionRequest();
}

// The path of the field that is at fault; "accepted" if none is.
std::string fault_of(const ApiResult<CompletionRequest>& read) {
  const auto* const fault = std::get_if<ApiError>(&read);
  return fault == nullptr ? "accepted" : fault->param;
}

TEST(CompletionRequest, SaysLittleByDefault) {
  const CompletionRequest request = accepted(chat(""));
  EXPECT_EQ(request.copies, 1);
  EXPECT_FALSE(request.max_tokens.has_value());
  EXPECT_FALSE(request.stream);
  EXPECT_FALSE(request.logprobs.has_value());
  EXPECT_FALSE(request.sampling.seed.has_value());
  EXPECT_EQ(request.messages[0]["content"], "hi");
  EXPECT_EQ(accepted(completion(R"("prompt":"x")")).max_tokens, 16) << "as OpenAI's";
}

TEST(CompletionRequest, PutsFieldsWhereTheyBelong) {
  const CompletionRequest request = accepted(chat(
      R"("n":3,"max_tokens":7,"max_completion_tokens":9,"temperature":0.5,"top_p":0.25,"top_k":-1,)"
      R"("min_p":0.1,"presence_penalty":1,"frequency_penalty":-1,"repetition_penalty":1.5,)"
      R"("seed":-2,"logit_bias":{"5":-100,"7":2.5},"stop":["a","bc"],"stop_token_ids":[3],)"
      R"("ignore_eos":true,"logprobs":true,"top_logprobs":4,"stream":true,)"
      R"("stream_options":{"include_usage":true,"continuous_usage_stats":true},)"
      R"("priority":-2,"cache_salt":"s","extra_key":"e",)"
      R"("prompt_cache_key":"k","prompt_cache_retention":"24h","cache_receipt":true,)"
      R"("return_token_ids":true,"user":"anybody","metadata":{"a":1})"));
  EXPECT_EQ(request.copies, 3);
  EXPECT_EQ(request.max_tokens, 9);
  EXPECT_FLOAT_EQ(request.sampling.temperature, 0.5F);
  EXPECT_FLOAT_EQ(request.sampling.top_p, 0.25F);
  EXPECT_EQ(request.sampling.top_k, 0) << "-1 is all, as vLLM's";
  EXPECT_FLOAT_EQ(request.sampling.min_p, 0.1F);
  EXPECT_FLOAT_EQ(request.sampling.frequency_penalty, -1);
  EXPECT_EQ(request.sampling.seed, ~std::uint64_t{1});
  EXPECT_EQ(request.sampling.logit_bias.size(), 2U);
  EXPECT_THAT(request.stop, testing::ElementsAre("a", "bc"));
  EXPECT_THAT(request.stop_tokens, testing::ElementsAre(3));
  EXPECT_TRUE(request.ignore_eos);
  EXPECT_EQ(request.logprobs, 4);
  EXPECT_TRUE(request.stream && request.include_usage && request.usage_so_far);
  EXPECT_EQ(request.priority, -2);
  EXPECT_EQ(request.cache.salt, "s");
  EXPECT_EQ(request.cache.extra_key, "e");
  EXPECT_EQ(request.cache.affinity, "k");
  EXPECT_EQ(request.cache.retention, Retention::kLong);
  EXPECT_TRUE(request.wants_receipt && request.wants_tokens);
}

TEST(CompletionRequest, WhatOtherServersAddedIsRead) {
  const CompletionRequest request =
      accepted(chat(R"("min_tokens":3,"truncate_prompt_tokens":-1,"include_stop_str_in_output":true,
              "skip_special_tokens":false,"allowed_token_ids":[4,2],
              "continue_final_message":true)"));
  EXPECT_EQ(request.min_tokens, 3);
  EXPECT_EQ(request.prompt_tokens_kept, CompletionRequest::kPromptThatFits);
  EXPECT_TRUE(request.shows_stop);
  EXPECT_FALSE(request.skip_special_tokens);
  EXPECT_THAT(request.sampling.allowed_tokens, testing::ElementsAre(2, 4));
  EXPECT_TRUE(request.continue_final_message);
  EXPECT_FALSE(request.add_generation_prompt);
  EXPECT_TRUE(accepted(chat(R"("no_stop_trim":true)")).shows_stop);
  EXPECT_FALSE(
      accepted(completion(R"("prompt":"x","add_special_tokens":false)")).add_special_tokens);
}

// As vLLM's clients write it: one of their own for all who do would repeat each answer.
TEST(CompletionRequest, HowMuchMayBeThoughtIsReadAsOthersSayIt) {
  const auto budget_of = [](const std::string& fields) {
    return accepted(chat(fields)).thought_tokens_max;
  };
  EXPECT_EQ(budget_of(R"("thinking_token_budget":7)"), 7);
  EXPECT_EQ(budget_of(R"("custom_params":{"thinking_budget":8,"other":"x"})"), 8);
  EXPECT_EQ(budget_of(R"("thinking_token_budget":0,"custom_params":{"thinking_budget":8})"), 0);
  for (const char* none : {"", R"("thinking_token_budget":-1)", R"("custom_params":{})",
                           R"("custom_params":{"thinking_budget":-1})"}) {
    EXPECT_EQ(budget_of(none), std::nullopt) << none;
  }
  EXPECT_EQ(fault_of(chat(R"("thinking_token_budget":-2)")), "thinking_token_budget");
  EXPECT_EQ(fault_of(chat(R"("custom_params":{"thinking_budget":"8"})")),
            "custom_params.thinking_budget");
}

TEST(CompletionRequest, ASeedOfMinusOneIsNone) {
  EXPECT_FALSE(accepted(chat(R"("seed":-1)")).sampling.seed.has_value());
  EXPECT_FALSE(accepted(chat(R"("seed":-1.0)")).sampling.seed.has_value());
}

TEST(CompletionRequest, EachTokenOfTheVocabularyMayHaveABias) {
  RequestRules rules = kRules;
  rules.vocab_tokens = 4000;
  const auto read = [&](int tokens) {
    std::string body = R"({"prompt":"x","logit_bias":{)";
    for (int token = 0; token < tokens; ++token) {
      body += (token > 0 ? ",\"" : "\"") + std::to_string(token) + "\":1";
    }
    return read_completion_request(CompletionKind::kText, body + "}}", rules);
  };
  const auto all = read(4000);
  ASSERT_TRUE(std::holds_alternative<CompletionRequest>(all));
  EXPECT_EQ(std::get<CompletionRequest>(all).sampling.logit_bias.size(), 4000U);
  EXPECT_TRUE(std::holds_alternative<ApiError>(read(4001)));
}

TEST(CompletionRequest, AllowedTokensThatRepeatTakeNoMoreThanTheVocabulary) {
  std::string ids = "7";
  for (int i = 0; i < 100'000; ++i) ids += ",3";
  const CompletionRequest request = accepted(chat("\"allowed_token_ids\":[" + ids + "]"));
  EXPECT_THAT(request.sampling.allowed_tokens, testing::ElementsAre(3, 7));
  EXPECT_LE(request.sampling.allowed_tokens.capacity(), 100U);
}

TEST(CompletionRequest, WholeNumbersMayBeWrittenWithAPoint) {
  const CompletionRequest request = accepted(completion(
      R"("prompt":[3.0,7],"n":2.0,"max_tokens":1e2,"seed":-5.0,"stop_token_ids":[4.0])"));
  EXPECT_EQ(request.copies, 2);
  EXPECT_EQ(request.max_tokens, 100);
  EXPECT_EQ(request.sampling.seed, static_cast<std::uint64_t>(std::int64_t{-5}));
  EXPECT_THAT(request.stop_tokens, testing::ElementsAre(4));
  EXPECT_THAT(std::get<std::vector<TokenId>>(request.prompts[0]), testing::ElementsAre(3, 7));
  EXPECT_EQ(fault_of(completion(R"("prompt":[3.5])")), "prompt[0]");
  EXPECT_EQ(fault_of(completion(R"("prompt":[-1.0])")), "prompt[0]");
  EXPECT_EQ(fault_of(chat(R"("seed":18014398509481984.0)")), "seed") << "which one was it?";
}

TEST(CompletionRequest, NullIsAbsent) {
  const CompletionRequest request =
      accepted(chat(R"("n":null,"temperature":null,"stop":null,"logit_bias":null,"tools":null)"));
  EXPECT_EQ(request.copies, 1);
}

TEST(CompletionRequest, WrongFieldsAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("n":0)", "n"},
      {R"("n":129)", "n"},
      {R"("n":1.5)", "n"},
      {R"("n":99999999999999999999)", "n"},
      {R"("max_tokens":0)", "max_tokens"},
      {R"("max_tokens":-1)", "max_tokens"},
      {R"("temperature":-0.1)", "temperature"},
      {R"("temperature":"1")", "temperature"},
      {R"("temperature":3)", "temperature"},
      {R"("top_p":1.01)", "top_p"},
      {R"("seed":1.5)", "seed"},
      {R"("stream":1)", "stream"},
      {R"("stream_options":{})", "stream_options"},
      {R"("stop":[1])", "stop[0]"},
      {R"("stop":7)", "stop"},
      {R"("stop":"")", "stop"},
      {R"("stop_token_ids":[1,100])", "stop_token_ids[1]"},
      {R"("logit_bias":{"100":1})", "logit_bias"},
      {R"("logit_bias":{"5":1,"05":2})", "logit_bias"},
      {R"("logit_bias":{"-0":1})", "logit_bias"},
      {R"("logit_bias":{"1":101})", "logit_bias"},
      {R"("logit_bias":[1])", "logit_bias"},
      {R"("logprobs":1)", "logprobs"},
      {R"("logprobs":true,"top_logprobs":21)", "top_logprobs"},
      {R"("prompt_logprobs":21)", "prompt_logprobs"},
      {R"("prompt_logprobs":1,"stream":true)", "prompt_logprobs"},
      {R"("max_tokens":0)", "max_tokens"},
      {R"("tools":[1])", "tools[0]"},
      {R"("tools":[{"function":{"name":"f"}},{"type":"custom"}])", "tools[1].type"},
      {R"("tool_choice":{"type":"function"})", "tool_choice"},
      {R"("tool_choice":"required")", "tool_choice"},
      {R"("response_format":{"type":"json_schema"})", "response_format.json_schema"},
      {R"("modalities":["audio"])", "modalities"},
      {R"("functions":[{}])", "functions"},
      {R"("model":5)", "model"},
      {R"("cache_salt":"")", "cache_salt"},
      {R"("priority":9999999999)", "priority"},
      {R"("best_of":2)", "best_of"},
      {R"("min_tokens":-1)", "min_tokens"},
      {R"("min_tokens":9,"max_tokens":8)", "min_tokens"},
      {R"("truncate_prompt_tokens":0)", "truncate_prompt_tokens"},
      {R"("truncate_prompt_tokens":-2)", "truncate_prompt_tokens"},
      {R"("allowed_token_ids":[])", "allowed_token_ids"},
      {R"("allowed_token_ids":[4,100])", "allowed_token_ids[1]"},
      {R"("continue_final_message":true,"add_generation_prompt":true)", "continue_final_message"},
      {R"("add_special_tokens":true)", "add_special_tokens"},
      {R"("echo":true)", "echo"},
      {R"("regex":7)", "regex"},
      {R"("guided_grammar":7)", "guided_grammar"},
      {R"("ebnf":["root ::= x"])", "ebnf"},
      {R"("lora_path":"poet")", "lora_path"},
      {R"("bad_words":["no"])", "bad_words"},
  };
  for (const auto& [fields, param] : cases) EXPECT_EQ(fault_of(chat(fields)), param) << fields;
}

// As SGLang names it; -1: none of the prompt's.
TEST(CompletionRequest, LogprobsOfAPromptMayBeginBehindItsBegin) {
  const auto from = [](const std::string& field) {
    return accepted(completion(R"("prompt":"x","echo":true,"logprobs":1)" + field)).logprobs_from;
  };
  EXPECT_EQ(from(""), 1);
  EXPECT_EQ(from(R"(,"logprob_start_len":0)"), 1);
  EXPECT_EQ(from(R"(,"logprob_start_len":7)"), 7);
  EXPECT_GT(from(R"(,"logprob_start_len":-1)"), 1'000'000'000);
}

TEST(CompletionRequest, OnlyWhoGetsThePromptBackMayWantNothingBehindIt) {
  const auto echo = completion(R"("prompt":"x","echo":true,"logprobs":1,"max_tokens":0)");
  EXPECT_EQ(accepted(echo).max_tokens, 0);
  EXPECT_EQ(fault_of(completion(R"("prompt":"x","max_tokens":0)")), "max_tokens");
}

TEST(CompletionRequest, StopTokensAreBounded) {
  const auto with = [](std::size_t tokens) {
    std::string list = R"("stop_token_ids":[7)";
    for (std::size_t i = 1; i < tokens; ++i) list += ",7";
    return chat(list + "]");
  };
  EXPECT_EQ(accepted(with(1024)).stop_tokens.size(), 1024U);
  EXPECT_EQ(fault_of(with(1025)), "stop_token_ids");
}

TEST(CompletionRequest, WhatIsDoneAnywayIsAccepted) {
  accepted(chat(R"("response_format":{"type":"text"},"tool_choice":"auto","modalities":["text"])"));
  accepted(chat(R"("functions":[],"best_of":1,"use_beam_search":false)"));
}

TEST(CompletionRequest, PromptsAreTextsOrTokens) {
  EXPECT_EQ(std::get<std::string>(accepted(completion(R"("prompt":"x")")).prompts[0]), "x");
  EXPECT_EQ(accepted(completion(R"("prompt":["x","y"])")).prompts.size(), 2U);
  const auto tokens = accepted(completion(R"("prompt":[1,2])")).prompts;
  ASSERT_EQ(tokens.size(), 1U);
  EXPECT_THAT(std::get<std::vector<TokenId>>(tokens[0]), testing::ElementsAre(1, 2));
  EXPECT_EQ(accepted(completion(R"("prompt":[[1],[2,3]])")).prompts.size(), 2U);
  EXPECT_EQ(fault_of(completion(R"("n":1)")), "prompt");
  EXPECT_EQ(fault_of(completion(R"("prompt":[])")), "prompt");
  EXPECT_EQ(fault_of(completion(R"("prompt":[[]])")), "prompt[0]");
  EXPECT_EQ(fault_of(completion(R"("prompt":[1,-1])")), "prompt[1]");
  EXPECT_EQ(fault_of(completion(R"("prompt":[999999])")), "prompt[0]");
  EXPECT_EQ(fault_of(completion(R"("prompt":{"a":1})")), "prompt");
  EXPECT_EQ(fault_of(completion(R"("prompt":["x",{}])")), "prompt[1]");
  EXPECT_EQ(fault_of(completion(R"("prompt":["x","y"],"n":100)")), "prompt");
}

// Whoever reads a schema reads numbers; a template prints what the client wrote.
TEST(CompletionRequest, ToolsArePrintedWithTheIntegersThatTheyWereWrittenWith) {
  const std::string tools =
      R"([{"function":{"name":"f","parameters":{"maximum":36893488147419103232}}}])";
  const CompletionRequest request =
      accepted(chat(R"("seed":1,"temperature":1.0,"tools":)" + tools));
  EXPECT_EQ(request.tools, TemplateJson::parse(tools));
  const auto chat_template =
      ChatTemplate::parse("{{ tools[0].function.parameters.maximum }}", "t.jinja");
  ASSERT_TRUE(chat_template.ok());
  EXPECT_EQ(*chat_template->render(request.messages, render_options_of(request)),
            "36893488147419103232");
  EXPECT_TRUE(accepted(chat(R"("tools":[{"function":{"name":"f"}}])")).tools_in_prompt.is_null());
  EXPECT_EQ(fault_of(chat(R"("seed":36893488147419103232)")), "seed");
}

TEST(JsonBody, IsOneStrictObject) {
  std::string wide = "{";
  for (int i = 0; i < 600; ++i) wide += (i > 0 ? "," : "") + ("\"k" + std::to_string(i) + "\":1");
  const std::string bodies[] = {"",
                                "nonsense",
                                "[]",
                                "1",
                                "{\"a\":1}x",
                                R"({"a":1,"a":1})",
                                "{\"a\":1e999}",
                                "{\"a\":\"\xff\"}",
                                R"({"a":"\ud800"})",
                                std::string(10'000, '['),
                                "{\"a\":" + std::string(100, '[') + std::string(100, ']') + "}",
                                wide + "}"};
  for (const std::string& body : bodies) {
    EXPECT_TRUE(std::holds_alternative<ApiError>(read_json_body(body, 1 << 20)))
        << body.substr(0, 40);
  }
  EXPECT_TRUE(std::holds_alternative<ApiError>(read_json_body("{\"a\":1}", 3)));
  EXPECT_TRUE(std::holds_alternative<TemplateJson>(read_json_body("{\"a\":[1,{\"b\":2}]}", 100)));
}

// In which somebody would look for one of them.
TEST(JsonBody, ManyFieldsAreRefusedByTheirPlace) {
  std::string many = "{";
  for (int i = 0; i < 600; ++i) many += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":1";
  many += "}";
  const auto place = [](const std::string& body) {
    const auto read = read_json_body(body, 1 << 20, 1000);
    const auto* const fault = std::get_if<ApiError>(&read);
    return fault == nullptr ? "accepted" : fault->param;
  };
  EXPECT_EQ(place(R"({"tools":[{},{"function":{"parameters":)" + many + "}}]}"),
            "tools[1].function.parameters");
  EXPECT_EQ(place(R"({"metadata":)" + many + "}"), "metadata");
  EXPECT_EQ(place(R"({"a":{"logit_bias":)" + many + "}}"), "a.logit_bias");
  EXPECT_EQ(place(R"({"logit_bias":)" + many + "}"), "accepted");
  EXPECT_EQ(place(many), "");
}

// Bodies that were right, with bytes changed: read or refused, never worse.
TEST(CompletionRequest, AnyBytesAreSafe) {
  const std::uint64_t seed = 4;
  SCOPED_TRACE(seed);
  Prng prng(seed);
  const std::string good =
      R"({"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}],"n":2,"stop":["x"],)"
      R"("logit_bias":{"5":1},"temperature":0.5,"tools":[{"type":"function"}],"seed":3})";
  for (int round = 0; round < 20'000; ++round) {
    std::string body = good;
    for (std::int64_t change = 1 + prng.below(4); change > 0; --change) {
      const auto at = static_cast<std::size_t>(prng.below(std::ssize(body)));
      if (prng.below(2) == 0) body.erase(at, static_cast<std::size_t>(prng.below(8)));
      if (body.empty()) body = "{";
      body[at % body.size()] = static_cast<char>(prng.below(256));
    }
    read_completion_request(CompletionKind::kChat, body, kRules);
  }
}

// 2^63 would be read as a number below zero.
TEST(CompletionRequest, WhatIsTooLargeOrTooLongIsRefused) {
  EXPECT_EQ(accepted(chat(R"("seed":9223372036854775807)")).sampling.seed, INT64_MAX);
  EXPECT_EQ(fault_of(chat(R"("seed":9223372036854775808)")), "seed");
  const auto salted = [](std::size_t bytes) {
    return chat(R"("cache_salt":")" + std::string(bytes, 's') + "\"");
  };
  EXPECT_EQ(accepted(salted(512)).cache.salt.size(), 512U);
  EXPECT_EQ(fault_of(salted(513)), "cache_salt");
}

TEST(CompletionRequest, ToolsOfWhichNoneMayBeCalledAreNone) {
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"f"}}])";
  EXPECT_EQ(accepted(chat(tools)).tools.size(), 1U);
  EXPECT_TRUE(accepted(chat(tools + R"(,"tool_choice":"none")")).tools.is_null());
}

}  // namespace
}  // namespace stemma
