// The engine's door: what is checked of a request, on the caller's thread, before it gets in.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/distinct.h"
#include "base/json_text.h"
#include "base/prng.h"
#include "engine/adapted_spec.h"
#include "engine/inbox.h"
#include "prefix/namespace_digest.h"
#include "stemma/engine.h"

namespace stemma {
namespace {

// Whether the request could run if it were alone. REQUIRES: max_tokens >= 1.
Status check_extent(const RequestSpec& spec, const KvCacheOptions& kv) {
  const auto prompt = static_cast<std::int64_t>(spec.prompt.size());
  const std::int64_t context = kv.context_tokens_max;
  if (spec.max_tokens > context || prompt + spec.max_tokens > context) {
    return Error{
        ErrorCode::kTooLarge,
        fmt::format("prompt of {} tokens and max_tokens {} exceed the context of {} tokens", prompt,
                    spec.max_tokens, context)};
  }
  // The last output token is never an input: it needs no place.
  const std::int64_t pool_tokens = kv.pages * kv.page_size;
  if (prompt + spec.max_tokens - 1 > pool_tokens) {
    return Error{
        ErrorCode::kTooLarge,
        fmt::format("prompt of {} tokens and max_tokens {} exceed the KV pool of {} tokens "
                    "({} pages of {})",
                    prompt, spec.max_tokens, pool_tokens, kv.pages, kv.page_size)};
  }
  return {};
}

// Whether its output may end as it says, and may begin. REQUIRES: both lists of tokens are
// distinct.
Status check_ends(const RequestSpec& spec, std::int64_t vocab_tokens) {
  const std::vector<TokenId>& ends = spec.stop_tokens;
  const auto outside = std::find_if(
      ends.begin(), ends.end(), [&](TokenId token) { return token < 0 || token >= vocab_tokens; });
  if (outside != ends.end()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("stop token {} is outside the vocabulary of {} tokens", *outside,
                             vocab_tokens)};
  }
  if (spec.max_tokens < 1) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("max_tokens must be at least 1 (got {})", spec.max_tokens)};
  }
  if (spec.min_tokens < 0 || spec.min_tokens > spec.max_tokens) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("min_tokens must be from 0 to max_tokens {} (got {})", spec.max_tokens,
                             spec.min_tokens)};
  }
  if (spec.min_tokens == 0) return {};
  if (std::ssize(ends) == vocab_tokens) {
    return Error{ErrorCode::kInvalidArgument,
                 "stop_tokens: each token is one, and none may be before min_tokens"};
  }
  const std::vector<TokenId>& allowed = spec.sampling.allowed_tokens;
  const bool none_is_left =
      !allowed.empty() && std::includes(ends.begin(), ends.end(), allowed.begin(), allowed.end());
  if (!none_is_left) return {};
  return Error{ErrorCode::kInvalidArgument,
               "allowed_tokens: each is a stop token, which none may be before min_tokens"};
}

Status check_scores(const RequestSpec& spec, const SchedulerOptions& options,
                    std::int64_t logprobs_max) {
  if (!spec.prompt_logprobs.has_value()) return {};
  if (options.scored_tokens_max == 0) {
    return Error{ErrorCode::kInvalidArgument, "prompt_logprobs: scored_tokens_max is 0"};
  }
  const std::int64_t from = spec.prompt_logprobs_from;
  if (from < 1 || from > std::ssize(spec.prompt)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("prompt_logprobs_from must be from 1 to the prompt's {} tokens (got "
                             "{})",
                             spec.prompt.size(), from)};
  }
  if (*spec.prompt_logprobs >= 0 && *spec.prompt_logprobs <= logprobs_max) return {};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("prompt_logprobs must be from 0 to {} (got {})", logprobs_max,
                           *spec.prompt_logprobs)};
}

// Each token of its prompt once, if a penalty for each output token is of them.
std::vector<TokenId> distinct_prompt_of(const RequestSpec& spec) {
  if (spec.sampling.repetition_penalty == 1) return {};
  return distinct(spec.prompt);
}

}  // namespace

PreparedRequest::PreparedRequest(InboxMessage&& message)
    : message_(std::make_unique<InboxMessage>(std::move(message))) {}
PreparedRequest::~PreparedRequest() = default;
PreparedRequest::PreparedRequest(const PreparedRequest& other)
    : PreparedRequest(InboxMessage(*other.message_)) {}
PreparedRequest& PreparedRequest::operator=(const PreparedRequest& other) {
  return *this = PreparedRequest(other);
}
PreparedRequest::PreparedRequest(PreparedRequest&& other) noexcept = default;
PreparedRequest& PreparedRequest::operator=(PreparedRequest&& other) noexcept = default;

Result<RequestId> Engine::submit(RequestSpec spec) {
  STEMMA_ASSIGN_OR_RETURN(PreparedRequest prepared, prepare(std::move(spec)));
  return post(std::move(prepared));
}

Result<PreparedRequest> Engine::prepare(RequestSpec spec) const {
  InboxMessage message = {.submitted_us = parts_.clock.now_us()};
  STEMMA_ASSIGN_OR_RETURN(message.adapter, lease_adapter(spec.adapter));
  // Of sets. Every copy keeps both, so they may not be longer than the vocabulary.
  spec.stop_tokens = distinct(std::move(spec.stop_tokens));
  spec.sampling.allowed_tokens = distinct(std::move(spec.sampling.allowed_tokens));
  STEMMA_RETURN_IF_ERROR(check(spec));
  if (message.adapter) enter_namespaces(message.adapter.identity(), spec);
  // Room for the whole output now, on the caller's thread, so that no step has to allocate it.
  spec.prompt.reserve(spec.prompt.size() + static_cast<std::size_t>(spec.max_tokens));
  message.distinct_prompt = distinct_prompt_of(spec);
  for (std::int64_t copy = 1; copy < spec.copies; ++copy) {
    message.other_prompts.emplace_back().reserve(spec.prompt.capacity());
    message.other_prompts.back() = spec.prompt;
  }
  message.spec = std::move(spec);
  return PreparedRequest(std::move(message));
}

Result<RequestId> Engine::post(PreparedRequest&& request) {
  InboxMessage& message = *request.message_;
  message.id = RequestId(next_id_.fetch_add(message.spec->copies));
  std::optional<std::uint64_t>& seed = message.spec->sampling.seed;
  if (!seed.has_value()) {
    seed = mix64(options_.sampling_seed ^ mix64(static_cast<std::uint64_t>(message.id.value())));
  }
  const RequestId id = message.id;
  if (!inbox_->try_post(std::move(message))) {
    return Error{ErrorCode::kTooLarge,
                 fmt::format("inbox_max: {} messages wait already", inbox_->messages_max())};
  }
  return id;
}

// Of no name, of none.
Result<AdapterLease> Engine::lease_adapter(std::string_view name) const {
  if (name.empty()) return AdapterLease();
  const AdapterBook* const book = parts_.runner.adapters();
  AdapterLease lease = book == nullptr ? AdapterLease() : book->find(name);
  if (lease) return lease;
  return Error{ErrorCode::kNotFound,
               fmt::format("adapter '{}' is not one of the {} that there are", printable(name),
                           book == nullptr ? 0 : book->list().size())};
}

Status Engine::check(const RequestSpec& spec) const {
  if (spec.prompt.empty()) {
    return Error{ErrorCode::kInvalidArgument, "prompt must have at least one token"};
  }
  const auto outside = [&](TokenId token) { return token < 0 || token >= parts_.vocab_tokens; };
  const auto wrong = std::find_if(spec.prompt.begin(), spec.prompt.end(), outside);
  if (wrong != spec.prompt.end()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("prompt token {} is {}, outside the vocabulary of {} tokens",
                             wrong - spec.prompt.begin(), *wrong, parts_.vocab_tokens)};
  }
  STEMMA_RETURN_IF_ERROR(spec.sampling.validate(parts_.vocab_tokens));
  STEMMA_RETURN_IF_ERROR(check_ends(spec, parts_.vocab_tokens));
  const std::int64_t logprobs_max = std::min(kLogprobsMax, parts_.vocab_tokens);
  if (spec.logprobs.value_or(0) < 0 || spec.logprobs.value_or(0) > logprobs_max) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("logprobs must be from 0 to {} (got {})",
                                                          logprobs_max, *spec.logprobs)};
  }
  STEMMA_RETURN_IF_ERROR(check_scores(spec, options_.scheduler, logprobs_max));
  if (spec.copies < 1 || spec.copies > kCopiesMax) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("copies must be from 1 to {} (got {})", kCopiesMax, spec.copies)};
  }
  const std::int64_t shared = spec.shared_prefix.has_value() ? spec.shared_prefix->tokens : 0;
  if ((spec.shared_prefix.has_value() && shared < 1) || shared % options_.kv.page_size != 0 ||
      shared > std::ssize(spec.prompt)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("shared_prefix must be whole pages of {} tokens and not more than the "
                             "prompt's {} (got {})",
                             options_.kv.page_size, spec.prompt.size(), shared)};
  }
  return check_extent(spec, options_.kv);
}

Status Engine::cancel(RequestId id) {
  InboxMessage message = {.id = id};
  if (!inbox_->try_post(std::move(message))) {
    return Error{ErrorCode::kTooLarge,
                 fmt::format("inbox_max: {} messages wait already", inbox_->messages_max())};
  }
  return {};
}

}  // namespace stemma
