#include "cli/generation_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/prng.h"
#include "cli/flag_errors.h"
#include "cli/json_lines.h"
#include "replay/prompts_file.h"

namespace stemma {

namespace {

double ms(std::int64_t us) {
  return static_cast<double>(us) / 1000.0;
}

// The cached tokens by the tier in which they were found.
nlohmann::ordered_json tiers_json(const RequestStats& stats) {
  nlohmann::ordered_json tiers;
  tiers["device"] = stats.cached_tokens - stats.brought.total();
  tiers["host"] = stats.brought.host;
  tiers["disk"] = stats.brought.disk;
  tiers["remote"] = stats.brought.remote;
  return tiers;
}

nlohmann::ordered_json audits_json(const EngineTotals& totals) {
  nlohmann::ordered_json audits;
  audits["audits"] = totals.shadow_audits;
  audits["mismatches"] = totals.shadow_audit_mismatches;
  audits["skipped"] = totals.shadow_audits_skipped;
  return audits;
}

}  // namespace

Status GenerationRun::submit(const std::vector<PromptLine>& prompts) {
  // Of all requests, and no prompt's: it is said of its own flag.
  STEMMA_RETURN_IF_ERROR(open_text_form(flags_.text_form, model_.grammars()));
  answers_.reserve(prompts.size());
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    Result<RequestSpec> spec = spec_of(prompts[i]);
    std::string adapter;
    TextRules rules = {.stop = flags_.stop};
    if (spec.ok()) {
      adapter = spec->adapter;
      const bool is_chat = prompts[i].messages.has_value();
      rules.goes_on = !is_chat && has_text(model_.tokenizer(), spec->prompt);
    }
    Result<RequestId> id = spec.ok() ? engine_.submit(std::move(spec).value())
                                     : Result<RequestId>(std::move(spec).error());
    if (!id.ok()) return refusal(id.error(), prompts[i], i);
    answers_.push_back({.request = *id,
                        .adapter = std::move(adapter),
                        .tokens = {},
                        .text = {},
                        .stream = TextGeneration(model_.tokenizer(), std::move(rules)),
                        .stats = {},
                        .error = {}});
  }
  unfinished_ = static_cast<std::int64_t>(answers_.size());
  return {};
}

// Behind the flag that is wrong for every request, or behind the prompt's place.
Error GenerationRun::refusal(const Error& error, const PromptLine& line, std::size_t place) const {
  const Error of_a_flag = behind_flag(error);
  if (of_a_flag.detail.starts_with("--")) return of_a_flag;
  if (error.code == ErrorCode::kNotFound && !line.adapter.has_value()) {
    return named("--use-adapter", error);
  }
  return named(
      flags_.prompts.empty() ? "--prompt" : fmt::format("{}: request {}", flags_.prompts, place),
      error);
}

Result<RequestSpec> GenerationRun::spec_of(const PromptLine& line) const {
  RequestSpec spec;
  if (line.token_ids.has_value()) {
    spec.prompt = *line.token_ids;
  } else if (line.messages.has_value()) {
    STEMMA_ASSIGN_OR_RETURN(spec.prompt, model_.encode_messages(*line.messages));
  } else {
    // A token of beginning alone is not what somebody meant who gave no text.
    if (line.prompt->empty()) return Error{ErrorCode::kInvalidArgument, "prompt: is empty"};
    STEMMA_ASSIGN_OR_RETURN(spec.prompt, model_.encode_text(*line.prompt));
  }
  spec.max_tokens = line.max_tokens.value_or(flags_.max_tokens);
  spec.sampling = flags_.sampling;
  // One seed a request, from the run's: a request draws the same tokens whatever is asked beside
  // it.
  spec.sampling.seed = mix64(flags_.seed + answers_.size());
  if (!flags_.ignore_eos) spec.stop_tokens = model_.generation().eos_token_ids;
  STEMMA_ASSIGN_OR_RETURN(spec.constraint, open_text_form(flags_.text_form, model_.grammars()));
  spec.namespace_digest = model_.namespace_digest();
  spec.adapter = line.adapter.value_or(flags_.adapter);
  return spec;
}

Status GenerationRun::finish(std::ostream& out) {
  const std::int64_t begin_us = clock_.now_us();
  while (unfinished_ > 0) {
    const StepReport report = engine_.step();
    for (const EngineEvent& event : report.events) take(event);
    print_ready(out);
  }
  const double total_ms = ms(clock_.now_us() - begin_us);
  while (!engine_.idle()) engine_.step();  // pages that are still to be audited
  print_summary(out, total_ms);
  for (const Answer& answer : answers_) {
    if (answer.finish == FinishReason::kFailed) return answer.error;
  }
  return {};
}

void GenerationRun::take(const EngineEvent& event) {
  const auto found = std::lower_bound(
      answers_.begin(), answers_.end(), event.request,
      [](const Answer& answer, RequestId request) { return answer.request < request; });
  STEMMA_CHECK(found != answers_.end() && found->request == event.request,
               "events are about requests that were submitted");
  Answer& answer = *found;
  if (answer.finish != FinishReason::kNone) return;
  if (event.token >= 0) {
    answer.tokens.push_back(event.token);
    if (answer.stream.push(event.token, answer.text)) {
      const std::optional<RequestStats> stats = engine_.stop(event.request);
      return end(answer, FinishReason::kStop, stats.value_or(event.stats));
    }
  }
  if (event.finish == FinishReason::kNone) return;
  answer.stream.finish(answer.text);
  answer.error = event.error;
  end(answer, event.finish, event.stats);
}

void GenerationRun::end(Answer& answer, FinishReason reason, const RequestStats& stats) {
  answer.finish = reason;
  answer.stats = stats;
  --unfinished_;
}

void GenerationRun::print_ready(std::ostream& out) {
  while (printed_ < answers_.size() && answers_[printed_].finish != FinishReason::kNone) {
    const auto index = static_cast<std::int64_t>(printed_);
    if (flags_.json) {
      print_json(out, answers_[printed_], index);
    } else {
      print_text(out, answers_[printed_], index);
    }
    out.flush();
    ++printed_;
  }
}

void GenerationRun::print_json(std::ostream& out, const Answer& answer, std::int64_t index) const {
  nlohmann::ordered_json line;
  line["index"] = index;
  if (!answer.adapter.empty()) line["adapter"] = answer.adapter;
  line["prompt_tokens"] = answer.stats.prompt_tokens;
  line["cached_tokens"] = answer.stats.cached_tokens;
  line["tiers"] = tiers_json(answer.stats);
  line["computed_tokens"] = answer.stats.computed_tokens;
  line["output_tokens"] = answer.stats.output_tokens;
  line["token_ids"] = answer.tokens;
  line["text"] = answer.text;
  line["finish_reason"] = finish_reason_name(answer.finish);
  line["queue_ms"] = ms(answer.stats.queue_us);
  line["ttft_ms"] = ms(answer.stats.ttft_us);
  line["total_ms"] = ms(answer.stats.total_us);
  if (answer.finish == FinishReason::kFailed) line["error"] = to_string(answer.error);
  out << json_line(line) << '\n';
}

void GenerationRun::print_text(std::ostream& out, const Answer& answer, std::int64_t index) const {
  if (answers_.size() > 1) out << fmt::format("[{}] ", index);
  out << answer.text << '\n';
}

void GenerationRun::print_summary(std::ostream& out, double total_ms) const {
  RequestStats sum;
  for (const Answer& answer : answers_) {
    sum.prompt_tokens += answer.stats.prompt_tokens;
    sum.cached_tokens += answer.stats.cached_tokens;
    sum.computed_tokens += answer.stats.computed_tokens;
    sum.output_tokens += answer.stats.output_tokens;
    sum.preemptions += answer.stats.preemptions;
    sum.brought += answer.stats.brought;
  }
  if (!flags_.json) return;
  nlohmann::ordered_json summary;
  summary["requests"] = answers_.size();
  summary["prompt_tokens"] = sum.prompt_tokens;
  summary["cached_tokens"] = sum.cached_tokens;
  summary["tiers"] = tiers_json(sum);
  summary["computed_tokens"] = sum.computed_tokens;
  summary["output_tokens"] = sum.output_tokens;
  summary["total_ms"] = total_ms;
  if (!model_.runner().rounding().empty()) {
    summary["weights"]["format"] = model_.runner().compute_format();
    summary["weights"]["rounding"] = model_.runner().rounding().to_json();
  }
  summary["preemptions"] = sum.preemptions;
  const EngineTotals totals = engine_.totals();
  summary["evicted_pages"] = totals.evicted_pages;
  if (engine_.options().shadow_audit_percent > 0) summary["shadow_audit"] = audits_json(totals);
  nlohmann::ordered_json line;
  line["summary"] = std::move(summary);
  out << json_line(line) << '\n';
}

}  // namespace stemma
