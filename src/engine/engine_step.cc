// What a step is from its batch to its tokens. Where the runner queues steps, the next one is
// planned and queued while one is computed; else a step is computed as it is started.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "cache/load_costs.h"
#include "engine/constraint_queue.h"
#include "engine/engine_ghosts.h"
#include "engine/inbox.h"
#include "engine/request_extra.h"
#include "engine/shadow_audit.h"
#include "engine/step_queue.h"
#include "model/sampler.h"
#include "model/token_logprobs.h"
#include "sched/scheduler.h"
#include "sched/step_prompts.h"
#include "stemma/engine.h"

namespace stemma {
namespace {

// Prompt tokens of a step from which the cost of computing is learned.
constexpr std::int64_t kLearnFromTokens = 8;

// Whether the runner gave what was asked for.
struct StepExtent {
  std::int64_t rows = 0;
  std::int64_t outputs = 0;
  std::int64_t vocab_tokens = 0;
};
Status check_outputs(const ComputedStep& step, const StepExtent& extent) {
  const StepOutputs& given = *step.outputs;
  const std::int64_t outputs = extent.outputs;
  const std::int64_t vocab_tokens = extent.vocab_tokens;
  if (step.has_tokens && std::ssize(given.tokens) != outputs) {
    return Error{ErrorCode::kInternal, fmt::format("the model gave {} tokens instead of {}",
                                                   given.tokens.size(), outputs)};
  }
  if (!given.broken_rows.empty() && std::ssize(given.broken_rows) != extent.rows) {
    return Error{ErrorCode::kInternal, fmt::format("the model looked at {} rows instead of {}",
                                                   given.broken_rows.size(), extent.rows)};
  }
  const LogitsView& logits = given.logits;
  if (!step.has_logits || (logits.outputs == outputs && logits.vocab_tokens == vocab_tokens)) {
    return {};
  }
  return Error{ErrorCode::kInternal,
               fmt::format("the model gave {} x {} logits instead of {} x {}", logits.outputs,
                           logits.vocab_tokens, outputs, vocab_tokens)};
}

}  // namespace

void Engine::note_started() {
  for (const Request* request : scheduler_->scheduled()) {
    RequestExtra& extra = extra_of(*request);
    if (extra.started_us < 0) {
      extra.started_us = parts_.clock.now_us();
      note_prefix_stop(*request, extra);
      if (ghosts_or_null_ != nullptr) {
        const auto prompt_tokens = static_cast<std::size_t>(request->prompt_tokens);
        ghosts_or_null_->look_up(extra.ghost_space,
                                 std::span<const TokenId>(request->tokens).first(prompt_tokens),
                                 extra.started_us);
      }
    }
  }
}

// Whether the request's tokens are chosen from logits here, all of them: what is chosen elsewhere
// may differ in the last bit of a sum.
bool Engine::chooses_here(const Request& request) const {
  const RequestExtra& extra = extra_of(request);
  const SamplingParams& sampling = extra.sampling;
  return (sampling.temperature != 0 && !parts_.runner.draws()) || sampling.changes_logits() ||
         extra.min_tokens > 0 || extra.has_copies || extra.constraint.get() != nullptr;
}

void Engine::start_step(const KvBatch& batch, std::span<const StepOutput> outputs) {
  choices_.clear();
  bool wants_logits = false;
  bool tokens_are_sure = true;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].chooses) {
      choices_.emplace_back();
      wants_logits = true;
      continue;
    }
    const Request& request = *outputs[i].request_or_null;
    const bool here = chooses_here(request);
    const std::int64_t tokens = batch.positions[static_cast<std::size_t>(batch.logit_rows[i])] + 1;
    choices_.push_back(here
                           ? TokenChoice()
                           : choice_of(extra_of(request).sampling, tokens - request.prompt_tokens));
    tokens_are_sure = tokens_are_sure && !here;
    wants_logits = wants_logits || here || extra_of(request).logprobs.has_value();
  }
  steps_->start(batch, {choices_, wants_logits}, tokens_are_sure);
}

// The step behind the one in flight, if all that it computes is known by now. False if not.
bool Engine::start_ahead() {
  const bool audits = audit_or_null_ != nullptr && audit_or_null_->waits();
  if (!steps_->can_follow() || !inbox_->empty() || audits ||
      scheduler_->batch().arriving != nullptr) {
    return false;
  }
  // What is copied down is taken meanwhile. It may leave room for who waits.
  const bool landed = kv_->poll_transfers();
  if (kv_->arrivals_wait() || (landed && scheduler_->waiting() > 0)) return false;
  if (!scheduler_->plan_ahead()) return false;
  start_step(scheduler_->batch_ahead(), scheduler_->outputs_ahead());
  return true;
}

void Engine::end_step(StepReport& report) {
  const bool follows = start_ahead();
  accept_step(steps_->take_first(), report);
  if (follows) scheduler_->enter_ahead();
}

void Engine::accept_step(const ComputedStep& step, StepReport& report) {
  ++totals_.steps;
  if (!scheduler_->settle_loans()) return;
  const KvBatch batch = scheduler_->batch();
  report.computed_tokens = batch.rows();
  report.requests = static_cast<std::int64_t>(batch.requests.size());
  if (!step.outputs.ok()) return fail_batch(step.outputs.error());
  const Status complete = check_outputs(step, {batch.rows(), batch.outputs(), parts_.vocab_tokens});
  if (!complete.ok()) return fail_batch(complete.error());
  fail_broken(step);
  note_found();
  note_computed(step.us);
  scheduler_->complete_step();
  accept_scores(step);
  accept_tokens(step);
}

// What requests share that computed for the first time: pages that were on loan are the tree's by
// now, and what the step computed is not yet.
void Engine::note_found() {
  if (audit_or_null_ == nullptr) return;
  for (const Request* request : scheduler_->scheduled()) {
    if (request == nullptr) continue;
    const bool computes_prompt = request->computed_tokens < request->prompt_tokens;  // no fork does
    const bool first_time =
        computes_prompt && request->computed_prompt_tokens == 0 && request->preemptions == 0;
    if (first_time) audit_or_null_->note_admitted(*request);
  }
}

// What a step costs that computes prompts for the most part: of others little could be learned, and
// of those whose logits are wanted too much.
void Engine::note_computed(std::int64_t us) {
  const StepPrompts step = prompts_of(scheduler_->scheduled());
  const auto outputs = scheduler_->outputs();
  const bool scores = std::any_of(outputs.begin(), outputs.end(),
                                  [](const StepOutput& output) { return !output.chooses; });
  if (scores || !step.tell(kLearnFromTokens)) return;
  kv_->note_computed(step.first_token(), step.prompt_tokens, us);
  costs_->computed(step.first_token(), step.prompt_tokens, us);
  scheduler_->note_pace(step.tokens, us);
}

// Nothing of this step is published: its pages go back with their sequences.
void Engine::fail_batch(const Error& error) {
  ++totals_.failed_steps;
  for (Request* request : scheduler_->scheduled()) {
    if (request != nullptr) fail(*request, error);
  }
}

// Nor is anything of this step of a request of which a row came to nothing: rows before it may
// have.
void Engine::fail_broken(const ComputedStep& step) {
  const std::span<const std::int32_t> broken_rows = step.outputs->broken_rows;
  if (broken_rows.empty()) return;
  const KvBatch batch = scheduler_->batch();
  const auto requests = scheduler_->scheduled();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (requests[i] == nullptr) continue;
    const auto rows = broken_rows.subspan(
        static_cast<std::size_t>(batch.row_indptr[i]),
        static_cast<std::size_t>(batch.row_indptr[i + 1] - batch.row_indptr[i]));
    if (std::all_of(rows.begin(), rows.end(), [](std::int32_t broken) { return broken == 0; })) {
      continue;
    }
    fail(*requests[i], {ErrorCode::kInternal, "the model computed values that are no numbers"});
  }
}

// Those of one request follow each other, and become one event.
void Engine::accept_scores(const ComputedStep& step) {
  const KvBatch batch = scheduler_->batch();
  const auto outputs = scheduler_->outputs();
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].chooses || outputs[i].request_or_null == nullptr) continue;
    const Request& request = *outputs[i].request_or_null;
    const std::int32_t position = batch.positions[static_cast<std::size_t>(batch.logit_rows[i])];
    const std::span<const TokenLogprob> row =
        score(request, position, step.outputs->logits.row(static_cast<std::int64_t>(i)));
    if (i == 0 || outputs[i - 1].request_or_null != &request) {
      events_.push_back(
          {.request = request.id, .stats = {}, .error = {}, .prompt_logprobs = row.first(0)});
    }
    std::span<const TokenLogprob>& told = events_.back().prompt_logprobs;
    told = {told.data(), told.size() + row.size()};
  }
}

// Logits of a token of a prompt tell of the one behind it.
std::span<const TokenLogprob> Engine::score(const Request& request, std::int64_t position,
                                            std::span<const float> logits) {
  const std::size_t told = prompt_logprobs_.size();
  const auto entries = 1 + static_cast<std::size_t>(extra_of(request).prompt_logprobs);
  STEMMA_CHECK_LE(told + entries, prompt_logprobs_.capacity());
  prompt_logprobs_.resize(told + entries);
  const auto row = std::span(prompt_logprobs_).subspan(told);
  token_logprobs(logits, request.tokens[static_cast<std::size_t>(position) + 1], row);
  return row;
}

void Engine::accept_tokens(const ComputedStep& step) {
  const StepOutputs& given = *step.outputs;
  const auto outputs = scheduler_->outputs();
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].chooses || outputs[i].request_or_null == nullptr) continue;
    Request& request = *outputs[i].request_or_null;
    const std::span<const float> row =
        step.has_logits ? given.logits.row(static_cast<std::int64_t>(i)) : std::span<const float>();
    if (step.has_tokens && !chooses_here(request)) {
      const TokenId token = given.tokens[i];
      const bool is_one = token >= 0 && token < parts_.vocab_tokens;
      accept_chosen(request, is_one ? std::optional(token) : std::nullopt, row);
    } else {
      fork_off(request);
      accept_logits(request, row);
      for (Request* fork : forked_) accept_logits(*fork, row);
    }
  }
}

// The first output of all copies comes from the same logits: that of `request` first, which says
// what the prompt found.
void Engine::fork_off(Request& request) {
  forked_.clear();
  while (Request* fork = scheduler_->fork_or_null(request)) {
    const std::optional<ForkedTail> tail = scheduler_->try_fork(request, *fork);
    if (!tail.has_value()) continue;
    const Status copied = parts_.runner.copy_pages(
        parts_.pools, {tail->from, tail->to, tail->windowed_from, tail->windowed_to});
    if (!copied.ok()) {
      fail(*fork, copied.error());
      continue;
    }
    extra_of(*fork).started_us = extra_of(request).started_us;
    extra_of(*fork).stop = PrefixStop::kTail;
    forked_.push_back(fork);
  }
}

void Engine::accept_logits(Request& request, std::span<const float> logits) {
  const RequestExtra& extra = extra_of(request);
  const SamplingHistory history = {.tokens = request.tokens,
                                   .prompt_tokens = request.prompt_tokens,
                                   .distinct_prompt = extra.distinct_prompt,
                                   .output_counts = extra.output_counts};
  const bool may_end = request.generated_tokens() >= extra.min_tokens;
  TokenRules rules = {.constraint_or_null = extra.constraint.get()};
  (may_end ? rules.ends : rules.forbidden) = extra.stop_tokens;
  accept_chosen(request, sampler_->try_sample(logits, extra.sampling, history, rules), logits);
}

// `logits`: empty where nobody wants to see them.
void Engine::accept_chosen(Request& request, std::optional<TokenId> token,
                           std::span<const float> logits) {
  if (token.has_value()) return accept_token(request, *token, logits);
  const bool bound = extra_of(request).constraint.get() != nullptr;
  fail(request, {bound ? ErrorCode::kUnsupported : ErrorCode::kInternal,
                 bound ? "no token of the vocabulary is known to go on as the output has to"
                       : "the model gave logits of which none is a number"});
}

// Whether the output is all with this token, so that nothing can follow.
bool Engine::completes(const Request& request, TokenId token) {
  OutputConstraint* const constraint = extra_of(request).constraint.get();
  if (constraint == nullptr) return false;
  constraint->accept(token);
  constraints_->note_accepted(request);
  return constraint->is_whole();
}

std::span<const TokenLogprob> Engine::logprobs_of(const Request& request,
                                                  std::span<const float> logits, TokenId token) {
  const auto wanted = extra_of(request).logprobs;
  if (!wanted.has_value()) return {};
  if (logprob_rows_used_ == logprob_rows_.size()) logprob_rows_.emplace_back();
  const auto out =
      std::span(logprob_rows_[logprob_rows_used_++]).first(1 + static_cast<std::size_t>(*wanted));
  token_logprobs(logits, token, out);
  return out;
}

void Engine::accept_token(Request& request, TokenId token, std::span<const float> logits) {
  request.tokens.push_back(token);
  RequestExtra& extra = extra_of(request);
  if (extra.sampling.has_penalties()) count_token(token, extra.output_counts);
  const bool is_first = extra.first_token_us < 0;
  if (is_first) extra.first_token_us = parts_.clock.now_us();
  EngineEvent event = {.request = request.id, .token = token, .stats = {}, .error = {}};
  event.logprobs = logprobs_of(request, logits, token);
  const FinishReason reason = finish_reason(request, token);
  const bool is_whole = reason != FinishReason::kStop && completes(request, token);
  if (reason != FinishReason::kNone && !is_whole) {
    finish(request);
    const EngineEvent end = end_event(request, reason);
    event.finish = end.finish;
    event.stats = end.stats;
  } else if (is_first || is_whole) {  // a stop string may end it before its end is told
    event.stats = stats_of(request);
  }
  events_.push_back(std::move(event));
  if (!is_whole) return;
  finish(request);
  events_.push_back(end_event(request, FinishReason::kStop));
}

}  // namespace stemma
