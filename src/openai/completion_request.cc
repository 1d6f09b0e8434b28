#include "openai/completion_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "base/distinct.h"
#include "base/json_text.h"
#include "model/sampler.h"
#include "model/stop_strings.h"
#include "openai/field_reader.h"

namespace stemma {
namespace {

constexpr std::int64_t kTokensMax = std::numeric_limits<std::int32_t>::max();
constexpr std::size_t kNameBytesMax = 512;
constexpr std::int64_t kTopLogprobsMax = 20;
constexpr std::int64_t kNoSeed = -1;  // as vLLM's clients say that they want none
constexpr std::int64_t kNoBudget = -1;
constexpr std::size_t kStopTokensMax = 1024;
// Of one object: who looks for one of them looks at all before it.
constexpr std::size_t kFieldsMax = 512;

// Fields that would change the answer and are not supported, unless they say what is done anyway.
constexpr RefusedField kRefused[] = {
    {"functions", "[]", "not supported: use tools"},
    {"function_call", "\"none\"", "not supported: use tools"},
    {"audio", "null", "not supported: answers are text"},
    {"modalities", "[\"text\"]", "not supported: answers are text"},
    {"suffix", "\"\"", "not supported: a completion continues its prompt"},
    {"web_search_options", "null", "not supported"},
    {"prediction", "null", "not supported"},
    {"stop_regex", "null", "not supported: use stop"},
    {"bad_words", "[]", "not supported: use logit_bias"},
    {"documents", "null", "not supported: put them into messages"},
    {"chat_template", "null", "not supported: the model's own is used"},
    {"lora_path", "null", "not supported: an adapter's name is a model"},
    {"prompt_embeds", "null", "not supported: prompts are texts or tokens"},
    {"input_embeds", "null", "not supported: prompts are texts or tokens"},
    {"logits_processors", "null", "not supported"},
    {"custom_logit_processor", "null", "not supported"},
    {"return_tokens_as_token_ids", "false", "not supported: use return_token_ids"},
    {"use_beam_search", "false", "not supported"},
};

float as_float(std::optional<double> value, float fallback) {
  return value.has_value() ? static_cast<float>(*value) : fallback;
}

void read_logit_bias(FieldReader& fields, std::int64_t vocab_tokens, SamplingParams& sampling) {
  const TemplateJson* const bias = fields.object_or_null("logit_bias");
  if (bias == nullptr) return;
  for (const auto& [name, value] : bias->items()) {
    TokenId token = -1;
    const auto [end, wrong] = std::from_chars(name.data(), name.data() + name.size(), token);
    // As it is written in one way only: "5" and "05" would be two wishes about one token.
    const bool is_token = wrong == std::errc() && end == name.data() + name.size() && token >= 0 &&
                          token < vocab_tokens && name == std::to_string(token);
    if (!is_token) {
      return fields.fail("logit_bias", fmt::format("\"{}\" is no token of the vocabulary of {}",
                                                   printable(name, 40), vocab_tokens));
    }
    const double number = value.is_number() ? value.get<double>() : std::nan("");
    if (!(number >= -100 && number <= 100)) {
      return fields.fail("logit_bias", fmt::format("that of {} must be from -100 to 100", token));
    }
    sampling.logit_bias.emplace_back(token, static_cast<float>(number));
  }
}

void read_sampling(FieldReader& fields, const RequestRules& rules, std::optional<ApiError>& fault,
                   SamplingParams& sampling) {
  sampling = rules.defaults;
  sampling.temperature = as_float(fields.number("temperature", {0, 2}), sampling.temperature);
  sampling.top_p = std::max(as_float(fields.number("top_p", {0, 1}), sampling.top_p), kLeastTopP);
  sampling.min_p = as_float(fields.number("min_p", {0, 1}), sampling.min_p);
  const auto top_k = fields.integer("top_k", {-1, kTokensMax});
  if (top_k.has_value()) sampling.top_k = *top_k < 0 ? 0 : *top_k;
  sampling.repetition_penalty =
      as_float(fields.number("repetition_penalty", {0.01, 100}), sampling.repetition_penalty);
  sampling.presence_penalty =
      as_float(fields.number("presence_penalty", {-2, 2}), sampling.presence_penalty);
  sampling.frequency_penalty =
      as_float(fields.number("frequency_penalty", {-2, 2}), sampling.frequency_penalty);
  constexpr auto kAny = std::numeric_limits<std::int64_t>();
  const auto seed = fields.integer("seed", {kAny.min(), kAny.max()});
  if (seed.has_value() && *seed != kNoSeed) sampling.seed = static_cast<std::uint64_t>(*seed);
  read_logit_bias(fields, rules.vocab_tokens, sampling);
  if (const TemplateJson* const allowed = fields.array_or_null("allowed_token_ids")) {
    // A body has room for each many times, and each answer keeps its own.
    sampling.allowed_tokens =
        distinct(read_tokens(*allowed, "allowed_token_ids", rules.vocab_tokens, fault));
    if (allowed->empty()) fields.fail("allowed_token_ids", "must have at least one token");
  }
  if (const Status valid = sampling.validate(rules.vocab_tokens); !valid.ok()) {
    fields.fail("", valid.error().detail);
  }
}

void read_stop(FieldReader& fields, const RequestRules& rules, std::optional<ApiError>& fault,
               CompletionRequest& request) {
  if (const TemplateJson* const stop = fields.find_or_null("stop")) {
    if (stop->is_string()) {
      request.stop.push_back(stop->get<std::string>());
    } else if (const TemplateJson* const list = fields.array_or_null("stop")) {
      for (std::size_t i = 0; i < list->size(); ++i) {
        if (!(*list)[i].is_string()) return fields.fail(item_path("stop", i), "must be a string");
        request.stop.push_back((*list)[i].get<std::string>());
      }
    }
    const Status valid = StopStrings::validate(request.stop);
    if (!valid.ok()) fields.fail("stop", valid.error().detail);
  }
  // Each answer keeps its own, and looks through them at every token.
  if (const TemplateJson* const tokens = fields.array_or_null("stop_token_ids")) {
    if (tokens->size() > kStopTokensMax) {
      return fields.fail("stop_token_ids", fmt::format("must have at most {} tokens (got {})",
                                                       kStopTokensMax, tokens->size()));
    }
    request.stop_tokens = read_tokens(*tokens, "stop_token_ids", rules.vocab_tokens, fault);
  }
  request.ignore_eos = fields.boolean("ignore_eos").value_or(false);
  request.shows_stop = fields.boolean("include_stop_str_in_output").value_or(false) ||
                       fields.boolean("no_stop_trim").value_or(false);
  request.skip_special_tokens = fields.boolean("skip_special_tokens").value_or(true);
}

void read_extent(FieldReader& fields, const RequestRules& rules, CompletionRequest& request) {
  request.copies = fields.integer("n", {1, rules.copies_max}).value_or(1);
  const auto best_of = fields.integer("best_of", {1, rules.copies_max});
  if (best_of.value_or(request.copies) != request.copies) {
    fields.fail("best_of", "only as many as n: every answer is returned");
  }
  const bool may_be_none = request.kind == CompletionKind::kText && request.echo;
  const FieldReader::Integers range = {may_be_none ? 0 : 1, kTokensMax};
  request.max_tokens = fields.integer("max_tokens", range);
  const auto completion = fields.integer("max_completion_tokens", range);
  if (completion.has_value()) request.max_tokens = completion;
  if (request.kind == CompletionKind::kText && !request.max_tokens.has_value()) {
    request.max_tokens = 16;
  }
  request.min_tokens = fields.integer("min_tokens", {0, kTokensMax}).value_or(0);
  if (request.min_tokens > request.max_tokens.value_or(kTokensMax)) {
    fields.fail("min_tokens", fmt::format("must not be more than max_tokens {} (got {})",
                                          *request.max_tokens, request.min_tokens));
  }
  request.prompt_tokens_kept = fields.integer("truncate_prompt_tokens", {-1, kTokensMax});
  if (request.prompt_tokens_kept == 0) {
    fields.fail("truncate_prompt_tokens", "must be at least 1, or -1 for what fits");
  }
}

void read_logprobs(FieldReader& fields, CompletionRequest& request) {
  request.prompt_logprobs = fields.integer("prompt_logprobs", {0, kTopLogprobsMax});
  const auto from = fields.integer("logprob_start_len", {-1, kTokensMax});
  request.logprobs_from = from == -1 ? kTokensMax : std::max<std::int64_t>(from.value_or(1), 1);
  if (request.kind == CompletionKind::kText) {
    request.logprobs = fields.integer("logprobs", {0, kTopLogprobsMax});
    return;
  }
  const bool wanted = fields.boolean("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs", {0, kTopLogprobsMax});
  if (wanted) request.logprobs = top.value_or(0);
  if (!wanted && top.value_or(0) > 0) fields.fail("top_logprobs", "needs logprobs to be true");
}

void read_streaming(FieldReader& fields, std::optional<ApiError>& fault,
                    CompletionRequest& request) {
  request.stream = fields.boolean("stream").value_or(false);
  if (request.stream && request.prompt_logprobs.has_value()) {
    fields.fail("prompt_logprobs", "not together with stream: use echo and logprobs");
  }
  const TemplateJson* const options = fields.object_or_null("stream_options");
  if (options == nullptr) return;
  if (!request.stream) return fields.fail("stream_options", "needs stream to be true");
  FieldReader inner(*options, "stream_options", fault);
  request.include_usage = inner.boolean("include_usage").value_or(false);
  request.usage_so_far = inner.boolean("continuous_usage_stats").value_or(false);
}

void read_cache(FieldReader& fields, CompletionRequest& request) {
  request.cache.salt = fields.text("cache_salt", kNameBytesMax).value_or("");
  const TemplateJson* const salt = fields.find_or_null("cache_salt");
  if (salt != nullptr && request.cache.salt.empty()) {
    fields.fail("cache_salt", "must not be empty");
  }
  request.cache.extra_key = fields.text("extra_key", kNameBytesMax).value_or("");
  request.cache.affinity = fields.text("prompt_cache_key", kNameBytesMax).value_or("");
  const auto retention = fields.text("prompt_cache_retention", kNameBytesMax);
  if (retention == "24h") {
    request.cache.retention = Retention::kLong;
  } else if (retention.has_value() && retention != "in_memory" && retention != "in-memory") {
    fields.fail("prompt_cache_retention", "must be \"in_memory\" or \"24h\"");
  }
  constexpr auto kAny = std::numeric_limits<std::int32_t>();
  const auto priority = fields.integer("priority", {kAny.min(), kAny.max()});
  request.priority = static_cast<std::int32_t>(priority.value_or(0));
  request.wants_tokens = fields.boolean("return_token_ids").value_or(false);
  request.wants_receipt = fields.boolean("cache_receipt").value_or(false);
}

void read_chat(FieldReader& fields, const RequestRules& rules, std::optional<ApiError>& fault,
               CompletionRequest& request) {
  read_chat_text(fields, rules, fault, request);
  request.calls_in_parallel = fields.boolean("parallel_tool_calls").value_or(true);
  request.tool_choice = read_tool_choice(fields, request.tools, fault);
  if (request.tool_choice.forced && request.form.kind != TextForm::Kind::kFree) {
    fields.fail("tool_choice",
                fmt::format("forces calls: not together with {}", request.form.path));
  }
  if (fields.boolean("add_special_tokens").value_or(false)) {
    fields.fail("add_special_tokens", "not supported: the template writes those that there are");
  }
  if (request.echo) fields.fail("echo", "only for completions");
}

// What is no function, no answer could call. Some clients leave the type out.
void check_tool(const TemplateJson& tool, const std::string& path, std::optional<ApiError>& fault) {
  FieldReader fields(tool, path, fault);
  const auto type = fields.text("type", kNameBytesMax);
  if (type.has_value() && *type != "function") {
    fields.fail("type", "only \"function\" is supported");
  }
}

void read_tools(FieldReader& fields, std::optional<ApiError>& fault, CompletionRequest& request) {
  const TemplateJson* const tools = fields.array_or_null("tools");
  if (tools == nullptr) return;
  const TemplateJson* const choice = fields.find_or_null("tool_choice");
  const bool none = choice != nullptr && *choice == "none";
  for (std::size_t i = 0; i < tools->size(); ++i) {
    const TemplateJson& tool = (*tools)[i];
    if (!tool.is_object()) {
      fields.fail(item_path("tools", i), "must be an object");
    } else if (!none) {
      check_tool(tool, item_path("tools", i), fault);
    }
  }
  if (tools->empty() || none) return;
  request.tools = *tools;
  if (narrow_wide_integers(request.tools)) request.tools_in_prompt = *tools;
}

void read_text(FieldReader& fields, const RequestRules& rules, std::optional<ApiError>& fault,
               CompletionRequest& request) {
  const TemplateJson* const prompt = fields.find_or_null("prompt");
  if (prompt == nullptr) return fields.fail("prompt", "missing");
  request.prompts = read_prompts(*prompt, rules.vocab_tokens, fault);
  const auto prompts = static_cast<std::int64_t>(request.prompts.size());
  if (prompts * request.copies > rules.copies_max) {
    fields.fail("prompt", fmt::format("{} prompts with {} answers each are more than {} answers",
                                      prompts, request.copies, rules.copies_max));
  }
  request.add_special_tokens = fields.boolean("add_special_tokens").value_or(true);
}

// Where below `json` an object has more fields than may be looked through, if one has.
std::optional<std::string> place_of_many_fields(const TemplateJson& json) {
  if (json.is_array()) {
    for (std::size_t i = 0; i < json.size(); ++i) {
      const auto place = place_of_many_fields(json[i]);
      if (place.has_value()) return item_path("", i) + *place;
    }
  } else if (json.is_object()) {
    if (json.size() > kFieldsMax) return "";
    for (const auto& [name, value] : json.items()) {
      const auto place = place_of_many_fields(value);
      if (place.has_value()) return "." + printable(name, 40) + *place;
    }
  }
  return std::nullopt;
}

// Nothing is looked for in `logit_bias`: it is as large as parsing let it be.
std::optional<ApiError> check_fields(const TemplateJson& body) {
  if (body.size() > kFieldsMax) {
    return field_error("", fmt::format("body: a JSON object of more than {} fields", kFieldsMax));
  }
  for (const auto& [name, value] : body.items()) {
    if (name == "logit_bias") continue;
    const auto place = place_of_many_fields(value);
    if (!place.has_value()) continue;
    return field_error(printable(name, 40) + *place,
                       fmt::format("an object of more than {} fields", kFieldsMax));
  }
  return std::nullopt;
}

// How many tokens of them there may be SGLang's clients say among what its processors are told.
void read_thoughts(FieldReader& fields, std::optional<ApiError>& fault,
                   CompletionRequest& request) {
  request.separates_thoughts = fields.boolean("separate_reasoning").value_or(true);
  request.tells_thoughts = fields.boolean("include_reasoning").value_or(true);
  constexpr FieldReader::Integers kTokens = {kNoBudget, kTokensMax};
  std::optional<std::int64_t> budget = fields.integer("thinking_token_budget", kTokens);
  const TemplateJson* const custom = fields.object_or_null("custom_params");
  if (custom != nullptr && !budget.has_value()) {
    budget = FieldReader(*custom, "custom_params", fault).integer("thinking_budget", kTokens);
  }
  if (budget != kNoBudget) request.thought_tokens_max = budget;
}

}  // namespace

void read_chat_text(FieldReader& fields, const RequestRules& rules, std::optional<ApiError>& fault,
                    CompletionRequest& request) {
  const TemplateJson* const messages = fields.array_or_null("messages");
  if (messages == nullptr) return fields.fail("messages", "missing");
  read_tools(fields, fault, request);
  const bool has_tools = !request.tools.is_null();
  request.messages = read_messages(
      *messages, has_tools ? rules.message_form_with_tools : rules.message_form, fault);
  if (const TemplateJson* const extra = fields.object_or_null("chat_template_kwargs")) {
    request.template_extra = *extra;
  }
  read_thoughts(fields, fault, request);
  request.continue_final_message = fields.boolean("continue_final_message").value_or(false);
  const auto begins_answer = fields.boolean("add_generation_prompt");
  if (request.continue_final_message && begins_answer.value_or(false)) {
    fields.fail("continue_final_message", "not together with add_generation_prompt");
  }
  request.add_generation_prompt = begins_answer.value_or(!request.continue_final_message);
}

RequestRules rules_of_templates(const ChatTemplate* plain_or_null,
                                const ChatTemplate* with_tools_or_null) {
  RequestRules rules;
  if (plain_or_null != nullptr) rules.message_form = message_form_of(*plain_or_null);
  if (with_tools_or_null == plain_or_null) {
    rules.message_form_with_tools = rules.message_form;
  } else if (with_tools_or_null != nullptr) {
    rules.message_form_with_tools = message_form_of(*with_tools_or_null);
  }
  return rules;
}

RenderOptions render_options_of(const CompletionRequest& request) {
  RenderOptions options;
  options.add_generation_prompt = request.add_generation_prompt;
  options.continue_final_message = request.continue_final_message;
  const bool print_otherwise = !request.tools_in_prompt.is_null();
  options.tools = print_otherwise ? request.tools_in_prompt : request.tools;
  options.extra = request.template_extra;
  return options;
}

void narrow_what_is_read(TemplateJson& body) {
  for (auto& [name, value] : body.get_ref<TemplateJson::object_t&>()) {
    if (name != "tools" && name != "messages") narrow_wide_integers(value);
  }
}

ApiResult<TemplateJson> read_json_body(std::string_view body, std::size_t bytes_max,
                                       std::int64_t biases_max) {
  const JsonLimits limits = {.text_bytes_max = bytes_max,
                             .depth_max = 64,
                             .fields_max = std::max(kFieldsMax, std::size_t(biases_max)),
                             .keeps_wide_integers = true};
  Result<TemplateJson> parsed = parse_ordered_json(body, "body", limits);
  if (!parsed.ok()) return field_error("", parsed.error().detail);
  if (!parsed->is_object()) return field_error("", "body: must be a JSON object");
  if (auto fault = check_fields(*parsed)) return *std::move(fault);
  narrow_what_is_read(*parsed);
  return std::move(parsed).value();
}

ApiResult<CompletionRequest> read_completion_request(CompletionKind kind, std::string_view body,
                                                     const RequestRules& rules) {
  ApiResult<TemplateJson> parsed = read_json_body(body, rules.body_bytes_max, rules.vocab_tokens);
  if (auto* const fault = std::get_if<ApiError>(&parsed)) return std::move(*fault);
  return completion_request_of(kind, std::get<TemplateJson>(parsed), rules);
}

ApiResult<CompletionRequest> completion_request_of(CompletionKind kind, const TemplateJson& body,
                                                   const RequestRules& rules) {
  std::optional<ApiError> fault;
  FieldReader fields(body, "", fault);
  CompletionRequest request;
  request.kind = kind;
  request.model = fields.text("model", kNameBytesMax).value_or("");
  request.echo = fields.boolean("echo").value_or(false);
  fields.refuse(kRefused);
  read_extent(fields, rules, request);
  read_logprobs(fields, request);
  read_sampling(fields, rules, fault, request.sampling);
  read_stop(fields, rules, fault, request);
  read_streaming(fields, fault, request);
  read_cache(fields, request);
  request.form = read_output_form(fields, fault);
  if (kind == CompletionKind::kChat) {
    read_chat(fields, rules, fault, request);
  } else {
    read_text(fields, rules, fault, request);
  }
  if (fault.has_value()) return *std::move(fault);
  return request;
}

std::vector<TokenId> read_tokens(const TemplateJson& list, const std::string& path,
                                 std::int64_t vocab_tokens, std::optional<ApiError>& fault) {
  std::vector<TokenId> tokens;
  tokens.reserve(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::int64_t token = whole_number(list[i]).value_or(-1);
    if (token >= 0 && token < vocab_tokens) {
      tokens.push_back(static_cast<TokenId>(token));
      continue;
    }
    if (!fault.has_value()) {
      fault =
          field_error(item_path(path, i), fmt::format("must be a token below {}", vocab_tokens));
    }
    break;
  }
  return tokens;
}

std::vector<PromptText> read_prompts(const TemplateJson& prompt, std::int64_t vocab_tokens,
                                     std::optional<ApiError>& fault) {
  const auto fail = [&](const std::string& path, std::string why) {
    if (!fault.has_value()) fault = field_error(path, std::move(why));
    return std::vector<PromptText>();
  };
  const auto read_some = [&](const TemplateJson& list, const std::string& path) {
    if (list.empty()) fail(path, "must have at least one token");
    return read_tokens(list, path, vocab_tokens, fault);
  };
  if (prompt.is_string()) return {prompt.get<std::string>()};
  if (!prompt.is_array() || prompt.empty()) {
    return fail("prompt", "must be a string, or an array of strings or of tokens");
  }
  if (prompt[0].is_number()) return {read_some(prompt, "prompt")};
  std::vector<PromptText> prompts;
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i].is_string()) {
      prompts.emplace_back(prompt[i].get<std::string>());
    } else if (prompt[i].is_array()) {
      prompts.emplace_back(read_some(prompt[i], item_path("prompt", i)));
    } else {
      return fail(item_path("prompt", i), "must be a string or an array of tokens");
    }
  }
  return prompts;
}

}  // namespace stemma
