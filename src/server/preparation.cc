#include "server/preparation.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "base/file.h"
#include "base/json_text.h"
#include "prefix/namespace_digest.h"
#include "server/output_grammar.h"
#include "server/thought_budget.h"
#include "server/warm_request.h"

namespace stemma {
namespace {

// What OpenAI's interface samples with, where neither the request nor the model says otherwise.
SamplingParams defaults_of(const GenerationConfig& generation) {
  SamplingParams sampling = generation.sampling_defaults();
  sampling.temperature = generation.temperature.value_or(1);
  return sampling;
}

// What clients call a prompt.
std::string prompt_field(const CompletionRequest& request) {
  if (request.shape == AnswerShape::kResponse) return "input";
  return request.kind == CompletionKind::kChat ? "messages" : "prompt";
}

// Logprobs of prompts' tokens in one answer, each with its text: about 60 MB of them.
constexpr std::int64_t kPromptLogprobsMax = std::int64_t{1} << 20;

// They are held until the answer is whole, by each of the answers to a prompt.
std::optional<ApiError> check_prompt_logprobs(const CompletionRequest& request,
                                              const AnswerJob& job) {
  std::int64_t entries = 0;
  for (const PromptJob& prompt : job.prompts) {
    const RequestSpec& spec = prompt.spec;
    if (!spec.prompt_logprobs.has_value()) continue;
    const std::int64_t told = std::ssize(spec.prompt) - spec.prompt_logprobs_from;
    entries += spec.copies * (spec.prompt_logprobs_from + told * (1 + *spec.prompt_logprobs));
  }
  if (entries <= kPromptLogprobsMax) return std::nullopt;
  return field_error(
      request.prompt_logprobs.has_value() ? "prompt_logprobs" : "logprobs",
      fmt::format("{} of prompts' tokens are more than the {} that one answer may have", entries,
                  kPromptLogprobsMax));
}

// Where the request does not say: as the model's files have it, which gives way to what the request
// does say and to the room that there is.
std::int64_t usual_max_tokens(const CompletionRequest& request, const GenerationConfig& generation,
                              std::int64_t room) {
  if (!generation.max_new_tokens.has_value()) return room;
  return std::min(std::max(*generation.max_new_tokens, request.min_tokens), room);
}

constexpr const char* kTooLongCode = "context_length_exceeded";

ApiError too_long(const CompletionRequest& request, std::string message) {
  ApiError error = field_error(prompt_field(request), std::move(message));
  error.code = kTooLongCode;
  return error;
}

}  // namespace

Preparation::Preparation(const ServedModel& model, std::string model_name, std::int64_t answers_max)
    : model_(model), model_name_(std::move(model_name)) {
  const ChatTemplate* const plain_or_null = model.chat_template_or_null(/*has_tools=*/false);
  const ChatTemplate* const with_tools_or_null = model.chat_template_or_null(/*has_tools=*/true);
  rules_ = rules_of_templates(plain_or_null, with_tools_or_null);
  rules_.vocab_tokens = model.vocab_tokens();
  rules_.copies_max = std::min(answers_max, ServingLoop::kPromptsMax);
  rules_.defaults = defaults_of(model.generation());
  if (plain_or_null != nullptr) shown_ = shown_by(*plain_or_null);
  if (with_tools_or_null != nullptr) shown_with_tools_ = shown_by(*with_tools_or_null);
}

Preparation::Shown Preparation::shown_by(const ChatTemplate& chat) {
  Shown shown = {.call_style = tool_call_style_of(chat.source()),
                 .spelling = {},
                 .thought_marks = thought_marks_of(chat.source())};
  if (shown.call_style.has_value()) {
    shown.spelling = spelling_of(*shown.call_style, chat.source());
  }
  return shown;
}

Status Preparation::share_prefixes(const std::string& file) {
  constexpr std::int64_t kFileBytesMax = std::int64_t{64} << 20;
  PosixFiles files;
  STEMMA_ASSIGN_OR_RETURN(const std::string text, read_file(files, file, kFileBytesMax));
  const NamespaceDigest digest = NamespaceFields()
                                     .add("shared prefixes of model",
                                          std::as_bytes(std::span(model_.namespace_digest().bytes)))
                                     .finish();
  SharedPrefixes shared(digest, model_.engine_options().kv.page_size);
  std::istringstream lines(text);
  std::string line;
  for (std::int64_t number = 1; std::getline(lines, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const auto tokens = warm_tokens(line);
    if (const auto* const fault = std::get_if<ApiError>(&tokens)) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{}:{}: {}{}{}", file, number, fault->param,
                               fault->param.empty() ? "" : " ", fault->message)};
    }
    shared.add(std::get<std::vector<TokenId>>(tokens));
  }
  shared_ = std::move(shared);
  return {};
}

ApiResult<std::vector<TokenId>> Preparation::warm_tokens(std::string_view body) const {
  ApiResult<CompletionRequest> read = read_warm_request(body, rules_);
  if (auto* const fault = std::get_if<ApiError>(&read)) return std::move(*fault);
  const CompletionRequest& request = std::get<CompletionRequest>(read);
  if (request.kind == CompletionKind::kChat) return chat_tokens(request);
  if (request.prompts.size() != 1) return field_error("prompt", "must be one text");
  return text_tokens(request.prompts.front(), request.add_special_tokens);
}

std::optional<ApiError> Preparation::check_model(std::string_view name) const {
  if (name.empty() || name == model_name_) return std::nullopt;
  if (model_.adapters().find(name)) return std::nullopt;
  std::string names = fmt::format("'{}'", model_name_);
  for (const std::string& adapter : adapter_names()) names += fmt::format(", '{}'", adapter);
  ApiError error = not_found(
      fmt::format("The model '{}' does not exist; this server has {}", printable(name), names));
  error.param = "model";
  error.code = "model_not_found";
  return error;
}

std::vector<std::string> Preparation::adapter_names() const {
  std::vector<std::string> names;
  for (AdapterIdentity& adapter : model_.adapters().list()) {
    names.push_back(std::move(adapter.name));
  }
  return names;
}

std::string Preparation::adapter_of(const CompletionRequest& request) const {
  return request.model == model_name_ ? "" : request.model;
}

NamespaceDigest Preparation::namespace_of(const Caller& caller, const CacheFields& fields) const {
  if (caller.tenant.empty() && fields.salt.empty() && fields.extra_key.empty()) {
    return model_.namespace_digest();
  }
  const NamespaceDigest digest =
      NamespaceFields()
          .add("model", std::as_bytes(std::span(model_.namespace_digest().bytes)))
          .add("tenant", std::string_view(caller.tenant))
          .add("cache_salt", std::string_view(fields.salt))
          .add("extra_key", std::string_view(fields.extra_key))
          .finish();
  return in_family(digest, family_of_tenant(caller.tenant));
}

Preparation::Whereabouts Preparation::whereabouts(const Caller& caller,
                                                  const CacheFields& fields) const {
  Whereabouts where = {.digest = namespace_of(caller, fields), .siblings = {}};
  for (const auto& sibling : recent_.note(caller.tenant, fields, caller.admin)) {
    CacheFields others;
    others.salt = sibling.salt;
    others.extra_key = sibling.extra_key;
    where.siblings.push_back({namespace_of(caller, others), sibling.field});
  }
  return where;
}

// The text begins with what every tenant may share: the rest is in a namespace behind that.
void Preparation::go_on_from_shared(RequestSpec& spec) const {
  const SharedPrefixes::Match* const match = shared_.find_or_null(spec.prompt);
  if (match == nullptr) return;
  spec.shared_prefix = match->prefix;
  spec.namespace_digest = SharedPrefixes::behind(*match, spec.namespace_digest);
  for (SiblingNamespace& sibling : spec.siblings) {
    sibling.digest = SharedPrefixes::behind(*match, sibling.digest);
  }
}

NamespaceFamily Preparation::family_of_tenant(std::string_view tenant) const {
  if (tenant.empty()) return family_of(model_.namespace_digest());
  return stemma::family_of_tenant(tenant);
}

ApiResult<std::vector<TokenId>> Preparation::chat_tokens(const CompletionRequest& request) const {
  Result<std::vector<TokenId>> tokens =
      model_.encode_messages(request.messages, render_options_of(request));
  if (tokens.ok()) return std::move(tokens).value();
  const bool is_of_tools = model_.chat_template_or_null(false) != nullptr &&
                           model_.chat_template_or_null(!request.tools.is_null()) == nullptr;
  return field_error(is_of_tools ? "tools" : prompt_field(request), tokens.error().detail);
}

ApiResult<std::vector<TokenId>> Preparation::text_tokens(const PromptText& prompt,
                                                         bool add_special_tokens) const {
  if (const auto* const tokens = std::get_if<std::vector<TokenId>>(&prompt)) return *tokens;
  Result<std::vector<TokenId>> tokens =
      model_.encode_text(std::get<std::string>(prompt), add_special_tokens);
  if (!tokens.ok()) return field_error("prompt", tokens.error().detail);
  return std::move(tokens).value();
}

std::string Preparation::text_of(std::span<const TokenId> tokens) const {
  return model_.tokenizer().decode(tokens, /*skip_special_tokens=*/false);
}

TemplateJson Preparation::token_texts(std::span<const TokenId> tokens) const {
  TemplateJson texts = TemplateJson::array();
  for (const TokenId token : tokens) {
    const std::optional<std::string_view> text = model_.tokenizer().token_text(token);
    texts.push_back(text.has_value() ? TemplateJson(*text) : TemplateJson());
  }
  return texts;
}

TemplateJson Preparation::weights_json() const {
  TemplateJson json;
  json["format"] = model_.runner().compute_format();
  if (!model_.runner().rounding().empty()) json["rounding"] = model_.runner().rounding().to_json();
  return json;
}

std::int64_t Preparation::context_tokens() const {
  return model_.context_tokens();
}

// For people: what they may want to change.
std::string Preparation::context_text() const {
  const std::int64_t tokens = context_tokens();
  return tokens == model_.engine_options().kv.context_tokens_max
             ? fmt::format("the context of {}", tokens)
             : fmt::format("the {} that KV memory holds", tokens);
}

// Agents that ask for messages know by the words of that interface that they have to say less.
ApiError Preparation::prompt_too_long(const CompletionRequest& request,
                                      std::int64_t prompt_tokens) const {
  if (request.shape == AnswerShape::kMessage) {
    ApiError error = field_error("", fmt::format("prompt is too long: {} tokens > {} maximum",
                                                 prompt_tokens, context_tokens() - 1));
    error.code = kTooLongCode;
    return error;
  }
  return too_long(request, fmt::format("the prompt of {} tokens leaves nothing of {}",
                                       prompt_tokens, context_text()));
}

// A completion goes on from its prompt, if that has a text; an answer to a chat is a text of its
// own, unless it goes on from the last message.
TextRules Preparation::text_rules(const CompletionRequest& request,
                                  std::span<const TokenId> prompt) const {
  const bool is_text = request.kind == CompletionKind::kText;
  return {
      .stop = request.stop,
      .shows_stop = request.shows_stop,
      .skip_special_tokens = request.skip_special_tokens,
      .goes_on = is_text ? has_text(model_.tokenizer(), prompt) : request.continue_final_message,
      .stop_tokens = request.stop_tokens,
      .min_tokens = request.min_tokens};
}

// Cuts off the begin of a prompt, where the client lets it be.
std::int64_t Preparation::cut(const CompletionRequest& request,
                              std::vector<TokenId>& prompt) const {
  if (!request.prompt_tokens_kept.has_value()) return 0;
  std::int64_t kept = *request.prompt_tokens_kept;
  if (kept == CompletionRequest::kPromptThatFits) {
    kept = std::max<std::int64_t>(
        context_tokens() - std::max<std::int64_t>(request.max_tokens.value_or(1), 1), 1);
  }
  const std::int64_t cut_tokens = std::ssize(prompt) - std::min(kept, std::ssize(prompt));
  prompt.erase(prompt.begin(), prompt.begin() + cut_tokens);
  return cut_tokens;
}

// What a client sent as tokens is all text, special ones too; of a text what the tokenizer puts
// around it is not. A chat's prompt was written by the template.
TokenChances::Rules Preparation::rules_of_prompt(const CompletionRequest& request,
                                                 std::size_t prompt,
                                                 std::span<const TokenId> tokens,
                                                 std::int64_t cut_tokens) const {
  if (request.kind == CompletionKind::kChat) {
    return {.skip_special_tokens = request.skip_special_tokens};
  }
  const bool was_text = std::holds_alternative<std::string>(request.prompts[prompt]);
  if (!was_text || !request.add_special_tokens) return {.end = std::ssize(tokens)};
  const TokensAround around = model_.tokenizer().tokens_around();
  const std::int64_t begin = std::max<std::int64_t>(around.before - cut_tokens, 0);
  return {.begin = begin, .end = std::max(std::ssize(tokens) - around.behind, begin)};
}

// Here, where long texts take nobody else's time.
void Preparation::add_chances(const TokenChances::Rules& said, PromptJob& job,
                              AnswerPlan& plan) const {
  if (!job.spec.prompt_logprobs.has_value()) return;
  const auto begin = job.spec.prompt.begin();
  plan.given.push_back({&model_.tokenizer(), said, {begin, begin + job.spec.prompt_logprobs_from}});
  job.of_prompt = plan.given.back().behind();
}

// A text comes back as it was sent. Its tokens may say it otherwise, as a normalizer does: where
// they begin is counted in the characters that they say.
std::string Preparation::echo_of(const PromptText& prompt, std::span<const TokenId> tokens,
                                 const TokenChances::Rules& said, std::int64_t cut_tokens) const {
  const auto* const text = std::get_if<std::string>(&prompt);
  if (text != nullptr && cut_tokens == 0) return *text;
  const auto begin = static_cast<std::size_t>(said.begin);
  return text_of(tokens.subspan(begin, static_cast<std::size_t>(said.end) - begin));
}

// Marks are a token or two each.
ThoughtPlace Preparation::thoughts_of(const CompletionRequest& request,
                                      std::span<const TokenId> prompt) const {
  constexpr std::size_t kTokens = 16;
  const std::optional<ThoughtMarks>& marks = shown_to(request).thought_marks;
  const bool may_think =
      marks.has_value() && request.kind == CompletionKind::kChat && !request.continue_final_message;
  if (!may_think) return ThoughtPlace::kBehind;
  return thought_place_behind(text_of(prompt.last(std::min(prompt.size(), kTokens))), *marks);
}

// A tenant's forms are its own: time would tell others whether theirs is one of them.
std::optional<ApiResult<OwnedConstraint>> Preparation::constraint_of(
    const CompletionRequest& request, ThoughtPlace thoughts, const Caller& caller,
    Forms forms) const {
  const std::optional<ToolCallSpelling>& spelling = shown_to(request).spelling;
  if (!has_form(request, spelling)) return OwnedConstraint();
  const auto write = [&](ByteGrammar& grammar) -> Result<ByteGrammar::Part> {
    STEMMA_ASSIGN_OR_RETURN(const ByteGrammar::Part form, add_form(request, spelling, grammar));
    const auto marks = shown_to(request).thought_marks.value_or(ThoughtMarks());
    return add_thoughts(thoughts, form, grammar, marks);
  };
  const std::string key = form_key(request, thoughts, caller.tenant);
  std::optional<Result<OwnedConstraint>> constraint;
  if (forms == Forms::kKnown) {
    constraint = model_.grammars().open_known(key);
  } else {
    constraint = model_.grammars().open(key, write);
  }
  if (!constraint.has_value()) return std::nullopt;
  if (!constraint->ok()) return form_error(request, constraint->error().detail);
  return std::move(*constraint).value();
}

void Preparation::keep_to_budget(const CompletionRequest& request, ThoughtPlace thoughts,
                                 PromptJob& job) const {
  const auto tokens = request.thought_tokens_max;
  if (!tokens.has_value() || *tokens >= job.spec.max_tokens) return;
  const ThoughtBudget budget = {.tokens = *tokens, .place = thoughts, .marks = job.thought_marks};
  job.spec.constraint = with_thought_budget(std::move(job.spec.constraint), budget,
                                            model_.tokenizer(), model_.vocab_tokens());
}

ApiResult<PromptJob> Preparation::prompt_job(const CompletionRequest& request,
                                             std::vector<TokenId> tokens, Whereabouts where) const {
  const std::int64_t context = context_tokens();
  const std::int64_t prompt_tokens = std::ssize(tokens);
  if (tokens.empty()) return field_error("prompt", "must have at least one token");
  if (prompt_tokens >= context) return prompt_too_long(request, prompt_tokens);
  std::int64_t wanted = request.max_tokens.value_or(
      usual_max_tokens(request, model_.generation(), context - prompt_tokens));
  if (request.max_tokens_give_way) wanted = std::min(wanted, context - prompt_tokens);
  const std::int64_t max_tokens = std::max<std::int64_t>(wanted, 1);  // an engine gives no less
  if (max_tokens > context - prompt_tokens) {
    return too_long(request, fmt::format("the prompt of {} tokens and max_tokens {} exceed {}",
                                         prompt_tokens, max_tokens, context_text()));
  }
  if (request.min_tokens > max_tokens) {
    return field_error("min_tokens", fmt::format("{} are more than the {} for which there is room",
                                                 request.min_tokens, max_tokens));
  }
  PromptJob job;
  job.text = text_rules(request, tokens);
  job.spec.prompt = std::move(tokens);
  job.spec.max_tokens = max_tokens;
  job.spec.min_tokens = request.min_tokens;
  job.spec.sampling = request.sampling;
  job.spec.stop_tokens = request.stop_tokens;
  if (!request.ignore_eos) {
    const auto& ends = model_.generation().eos_token_ids;
    job.spec.stop_tokens.insert(job.spec.stop_tokens.end(), ends.begin(), ends.end());
  }
  job.spec.priority = request.priority;
  job.spec.adapter = adapter_of(request);
  job.spec.namespace_digest = where.digest;
  job.spec.siblings = std::move(where.siblings);
  go_on_from_shared(job.spec);
  job.spec.retention = request.cache.retention;
  job.spec.logprobs = request.logprobs;
  job.spec.prompt_logprobs = request.prompt_logprobs;
  if (request.echo) {
    job.spec.prompt_logprobs = std::max(request.logprobs, request.prompt_logprobs);  // or neither
  }
  job.spec.prompt_logprobs_from = std::min(request.logprobs_from, prompt_tokens);
  job.spec.copies = request.copies;
  job.wants_tokens = request.wants_tokens;
  job.tells_end = request.echo;  // who scores a prompt leaves out the last token, whichever it is
  return job;
}

AnswerPlan Preparation::plan_of(const CompletionRequest& request) const {
  AnswerPlan plan;
  plan.head.kind = request.kind;
  plan.head.model = request.model.empty() ? model_name_ : request.model;
  plan.policy = eviction_policy();
  plan.copies = request.copies;
  plan.stream = request.stream;
  plan.include_usage = request.include_usage;
  plan.usage_so_far = request.usage_so_far;
  plan.head.gives_tokens = request.wants_tokens;
  plan.head.counts_usage = request.include_usage;
  plan.has_logprobs = request.logprobs.has_value();
  plan.head.scores_prompt = request.prompt_logprobs.has_value();
  if (request.echo) plan.echoed_likeliest = request.logprobs;
  plan.scored_likeliest = request.prompt_logprobs;
  plan.prompt_only = request.max_tokens == 0;
  if (!request.tools.is_null()) {
    plan.call_style = shown_with_tools_.call_style;
    plan.head.short_call_ids = rules_.message_form_with_tools.short_ids;
    const bool reads_texts = plan.call_style.has_value() && has_text_arguments(*plan.call_style);
    if (reads_texts) plan.tool_types = tool_types_of(request.tools);
  }
  plan.calls_in_parallel = request.calls_in_parallel;
  plan.wants_receipt = request.wants_receipt;
  plan.shape = request.shape;
  plan.response = request.response;
  plan.max_tokens = request.max_tokens.value_or(0);
  plan.echoes.clear();
  plan.tells_thoughts = request.tells_thoughts;
  return plan;
}

ApiResult<PreparedAnswer> Preparation::prepare(const ApiResult<CompletionRequest>& read,
                                               const Caller& caller) const {
  if (const auto* const fault = std::get_if<ApiError>(&read)) return *fault;
  return *prepare(std::get<CompletionRequest>(read), caller, Forms::kAll);
}

std::optional<ApiResult<PreparedAnswer>> Preparation::prepare_at_once(
    const ApiResult<CompletionRequest>& read, const Caller& caller) const {
  if (const auto* const fault = std::get_if<ApiError>(&read)) return *fault;
  return prepare(std::get<CompletionRequest>(read), caller, Forms::kKnown);
}

std::optional<ApiResult<PreparedAnswer>> Preparation::prepare(const CompletionRequest& request,
                                                              const Caller& caller,
                                                              Forms forms) const {
  if (auto fault = check_model(request.model)) return *std::move(fault);
  const Whereabouts where = whereabouts(caller, request.cache);
  PreparedAnswer prepared = {.job = {}, .plan = plan_of(request)};
  AnswerPlan& plan = prepared.plan;
  // Others say in which order they said and called things.
  prepared.job.in_pieces = request.stream || request.shape != AnswerShape::kCompletion;
  std::optional<ApiResult<OwnedConstraint>> constraint;
  const bool is_chat = request.kind == CompletionKind::kChat;
  const std::size_t prompts = is_chat ? 1 : request.prompts.size();
  std::vector<TokenChances::Rules> rules_of_prompts;
  for (std::size_t i = 0; i < prompts; ++i) {
    ApiResult<std::vector<TokenId>> tokens =
        is_chat ? chat_tokens(request)
                : text_tokens(request.prompts[i], request.add_special_tokens);
    if (auto* const fault = std::get_if<ApiError>(&tokens)) return std::move(*fault);
    auto& ids = std::get<std::vector<TokenId>>(tokens);
    const std::int64_t cut_tokens = cut(request, ids);
    const TokenChances::Rules said = rules_of_prompt(request, i, ids, cut_tokens);
    const ThoughtPlace place = thoughts_of(request, ids);
    const ThoughtPlace thoughts = request.separates_thoughts ? place : ThoughtPlace::kBehind;
    plan.may_think |= thoughts != ThoughtPlace::kBehind;
    // Prompts of texts are all alike.
    if (i == 0) constraint = constraint_of(request, thoughts, caller, forms);
    if (!constraint.has_value()) return std::nullopt;
    if (auto* const fault = std::get_if<ApiError>(&*constraint)) return std::move(*fault);
    if (request.wants_tokens) plan.prompt_tokens.push_back(ids);
    plan.echoes.push_back(request.echo ? echo_of(request.prompts[i], ids, said, cut_tokens) : "");
    ApiResult<PromptJob> job = prompt_job(request, std::move(ids), where);
    if (auto* const fault = std::get_if<ApiError>(&job)) return std::move(*fault);
    PromptJob& made = prepared.job.prompts.emplace_back(std::get<PromptJob>(std::move(job)));
    rules_of_prompts.push_back(said);
    made.thoughts = thoughts;
    made.thought_marks = shown_to(request).thought_marks.value_or(ThoughtMarks());
    made.spec.constraint = std::get<OwnedConstraint>(*constraint);
    made.has_form = made.spec.constraint.get() != nullptr;
    keep_to_budget(request, made.has_form ? thoughts : place, made);
  }
  if (auto fault = check_prompt_logprobs(request, prepared.job)) return *std::move(fault);
  for (std::size_t i = 0; i < prompts; ++i) {
    add_chances(rules_of_prompts[i], prepared.job.prompts[i], plan);
  }
  return prepared;
}

}  // namespace stemma
