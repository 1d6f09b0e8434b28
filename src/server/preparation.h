// Preparation: from a request as it was read to jobs for the engine: the prompt rendered and cut
// into tokens, its length checked, its namespace found.
//
// Thread:     const; any, one at a time a call.
// Memory:     the prompt's text and tokens.
// Cost:       that of rendering and tokenising: about a millisecond for 10,000 tokens.
// Not here:   JSON (openai/completion_request), who is asked first (ServingLoop).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/served_model.h"
#include "openai/completion_request.h"
#include "server/answer.h"
#include "server/key_book.h"
#include "server/recent_namespaces.h"
#include "server/serving_loop.h"
#include "server/shared_prefixes.h"
#include "server/token_chances.h"

namespace stemma {

// A job and how its answers are passed on.
struct PreparedAnswer {
  AnswerJob job;
  AnswerPlan plan;
};

class Preparation {
 public:
  // `model` must outlive this. `model_name` is what clients call it. A request that asks for more
  // than `answers_max` answers is refused.
  Preparation(const ServedModel& model, std::string model_name,
              std::int64_t answers_max = ServingLoop::kPromptsMax);

  // Lets every tenant share the beginnings of texts that this file names (shared_prefixes.h).
  // Errors name file and line. Before the first request.
  Status share_prefixes(const std::string& file);

  // What requests are read against.
  const RequestRules& rules() const noexcept { return rules_; }
  const std::string& model_name() const noexcept { return model_name_; }

  // A request that was refused when it was read stays so.
  ApiResult<PreparedAnswer> prepare(const ApiResult<CompletionRequest>& read,
                                    const Caller& caller) const;
  // The same unless its form has to be compiled, which may take a second; then nothing.
  std::optional<ApiResult<PreparedAnswer>> prepare_at_once(const ApiResult<CompletionRequest>& read,
                                                           const Caller& caller) const;

  // The tokens of a chat's messages, or of a text, as a completion of them would begin; of a text
  // perhaps without the special tokens that the tokenizer puts around it.
  ApiResult<std::vector<TokenId>> chat_tokens(const CompletionRequest& request) const;
  ApiResult<std::vector<TokenId>> text_tokens(const PromptText& prompt,
                                              bool add_special_tokens = true) const;

  std::string text_of(std::span<const TokenId> tokens) const;
  // Each as its file writes it; null: there is none.
  TemplateJson token_texts(std::span<const TokenId> tokens) const;
  // Of prompt and answer together: the model's context, or what KV memory holds of it.
  std::int64_t context_tokens() const;
  // The formats that the model is computed from, and what rounding to them cost.
  TemplateJson weights_json() const;
  const std::string& eviction_policy() const { return model_.engine_options().kv.eviction; }

  // Where a caller's pages are found: the model's own namespace, where nothing is said. All of a
  // tenant's are of its family.
  NamespaceDigest namespace_of(const Caller& caller, const CacheFields& fields) const;

  // What a tenant's namespaces have in common, whatever its requests say, and whichever model
  // computes them; of the empty tenant, that of the model itself.
  NamespaceFamily family_of_tenant(std::string_view tenant) const;

  // An error if `name` is said and is neither the model's nor an adapter's.
  std::optional<ApiError> check_model(std::string_view name) const;
  // Those of the adapters, which clients choose as they choose a model.
  std::vector<std::string> adapter_names() const;

 private:
  // Where a request's pages are, and where else they might be.
  struct Whereabouts {
    NamespaceDigest digest;
    std::vector<SiblingNamespace> siblings;
  };
  // What a chat template shows of how the model answers.
  struct Shown {
    std::optional<ToolCallStyle> call_style;  // none: answers are only text
    std::optional<ToolCallSpelling> spelling;
    std::optional<ThoughtMarks> thought_marks;  // of what it thinks before it answers
  };
  static Shown shown_by(const ChatTemplate& chat);
  const Shown& shown_to(const CompletionRequest& request) const {
    return request.tools.is_null() ? shown_ : shown_with_tools_;
  }
  Whereabouts whereabouts(const Caller& caller, const CacheFields& fields) const;
  std::string context_text() const;
  ApiError prompt_too_long(const CompletionRequest& request, std::int64_t prompt_tokens) const;
  // The adapter that a request chooses; empty: the model alone.
  std::string adapter_of(const CompletionRequest& request) const;
  TextRules text_rules(const CompletionRequest& request, std::span<const TokenId> prompt) const;
  // How many of its tokens it cut off.
  std::int64_t cut(const CompletionRequest& request, std::vector<TokenId>& prompt) const;
  TokenChances::Rules rules_of_prompt(const CompletionRequest& request, std::size_t prompt,
                                      std::span<const TokenId> tokens,
                                      std::int64_t cut_tokens) const;
  // Where chances of the prompt's tokens are asked for. `said`: rules_of_prompt.
  void add_chances(const TokenChances::Rules& said, PromptJob& job, AnswerPlan& plan) const;
  // What an echo of a completion's prompt shows. `said`: rules_of_prompt.
  std::string echo_of(const PromptText& prompt, std::span<const TokenId> tokens,
                      const TokenChances::Rules& said, std::int64_t cut_tokens) const;
  // Where the answer to a chat begins.
  ThoughtPlace thoughts_of(const CompletionRequest& request, std::span<const TokenId> prompt) const;
  enum class Forms : std::uint8_t { kAll, kKnown };
  // Nothing: its form is none of `forms`.
  std::optional<ApiResult<PreparedAnswer>> prepare(const CompletionRequest& request,
                                                   const Caller& caller, Forms forms) const;
  // What answers have to be; none: any text.
  std::optional<ApiResult<OwnedConstraint>> constraint_of(const CompletionRequest& request,
                                                          ThoughtPlace thoughts,
                                                          const Caller& caller, Forms forms) const;
  // Where the request says how much an answer may think that begins at `thoughts`.
  void keep_to_budget(const CompletionRequest& request, ThoughtPlace thoughts,
                      PromptJob& job) const;
  // All but what its prompts are.
  AnswerPlan plan_of(const CompletionRequest& request) const;
  ApiResult<PromptJob> prompt_job(const CompletionRequest& request, std::vector<TokenId> tokens,
                                  Whereabouts where) const;
  void go_on_from_shared(RequestSpec& spec) const;
  ApiResult<std::vector<TokenId>> warm_tokens(std::string_view body) const;

  const ServedModel& model_;
  std::string model_name_;
  RequestRules rules_;
  Shown shown_;             // by the template of chats
  Shown shown_with_tools_;  // by that of chats with tools
  SharedPrefixes shared_;
  mutable RecentNamespaces recent_;
};

}  // namespace stemma
