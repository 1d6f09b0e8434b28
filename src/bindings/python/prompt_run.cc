#include "bindings/python/prompt_run.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "bindings/python/binding.h"
#include "model/detokenizer.h"

namespace stemma::python {

namespace {

// What the engine's errors begin with, where SamplingParams calls that otherwise.
struct Renamed {
  std::string_view engines;
  std::string_view pythons;
};
constexpr std::array<Renamed, 3> kRenamed = {{{"copies", "n"},
                                              {"allowed_tokens", "allowed_token_ids"},
                                              {"prompt_logprobs_from", "logprob_start_len"}}};

std::string in_pythons_words(std::string detail) {
  const std::string first = detail.substr(0, detail.find_first_of(" :"));
  const auto* const found = std::ranges::find(kRenamed, first, &Renamed::engines);
  if (found != kRenamed.end()) detail.replace(0, first.size(), found->pythons);
  return detail;
}

}  // namespace

void fail_prompt(std::size_t prompt, const Error& error) {
  Error told = error;
  told.detail = "prompt " + std::to_string(prompt) + ": " + in_pythons_words(error.detail);
  fail(std::move(told));
}

// As many as may wait at a time.
void PromptRun::submit_some(std::vector<Wish>& wishes) {
  const std::int64_t waiting_max = engine_.options().scheduler.waiting_max;
  while (submitted_ < wishes.size() &&
         (unfinished_ == 0 || wishes[submitted_].spec.copies <= waiting_max - unfinished_)) {
    submit(wishes[submitted_]);
  }
}

void PromptRun::submit(Wish& wish) {
  const std::int64_t copies = wish.spec.copies;
  const auto prompt_entries = 1 + static_cast<std::size_t>(wish.spec.prompt_logprobs.value_or(0));
  wish.text.goes_on = wish.text.goes_on && has_text(model_.tokenizer(), wish.spec.prompt);
  const Result<RequestId> id = engine_.submit(std::move(wish.spec));
  if (!id.ok()) {
    cancel_all();
    fail_prompt(submitted_, id.error());
  }
  for (std::int64_t copy = 0; copy < copies; ++copy) {
    outputs_.push_back({.request = RequestId(id->value() + copy),
                        .prompt = submitted_,
                        .tokens = {},
                        .text = {},
                        .stream = TextGeneration(model_.tokenizer(), wish.text),
                        .prompt_entries = prompt_entries,
                        .stats = {},
                        .error = {}});
  }
  unfinished_ += copies;
  ++submitted_;
}

// What was submitted before something was refused, or Python was interrupted.
void PromptRun::cancel_all() {
  for (const Output& output : outputs_) {
    if (output.finish == FinishReason::kNone) {
      ignore_error(engine_.cancel(output.request), "it ends with the engine at the latest");
    }
  }
  while (!engine_.idle()) static_cast<void>(engine_.step());
}

void PromptRun::answer(std::vector<Wish> wishes) {
  for (submit_some(wishes); unfinished_ > 0; submit_some(wishes)) {
    if (LongWork::must_end()) {
      cancel_all();
      throw ThreadEnds();
    }
    for (const EngineEvent& event : engine_.step().events) take(event);
    const PythonHeld python;
    if (PyErr_CheckSignals() == 0) continue;
    const py::error_already_set interrupted;
    cancel_all();
    throw interrupted;
  }
}

void PromptRun::take(const EngineEvent& event) {
  const auto found = std::lower_bound(
      outputs_.begin(), outputs_.end(), event.request,
      [](const Output& output, RequestId request) { return output.request < request; });
  if (found == outputs_.end() || found->request != event.request) return;
  Output& output = *found;
  if (output.finish != FinishReason::kNone) return;
  take_scores(event, output);
  if (event.token >= 0) {
    output.tokens.push_back(event.token);
    if (!event.logprobs.empty()) output.chances.push_back(chances_of(event.logprobs));
    if (output.stream.push(event.token, output.text)) {
      const std::optional<RequestStats> stats = engine_.stop(event.request);
      output.stop_reason = output.stream.stop_reason(event.token);
      return end(output, FinishReason::kStop, stats.value_or(event.stats));
    }
  }
  if (event.finish == FinishReason::kNone) return;
  output.stream.finish(output.text);
  if (event.finish == FinishReason::kStop) {
    output.stop_reason = output.stream.stop_reason(event.token);
  }
  output.error = event.error;
  end(output, event.finish, event.stats);
}

void PromptRun::take_scores(const EngineEvent& event, Output& output) const {
  const std::span<const TokenLogprob> all = event.prompt_logprobs;
  for (std::size_t row = 0; row < all.size(); row += output.prompt_entries) {
    output.prompt_chances.push_back(chances_of(all.subspan(row, output.prompt_entries)));
  }
}

Chances PromptRun::chances_of(std::span<const TokenLogprob> entries) const {
  Chances chances;
  for (const TokenLogprob& entry : entries) {
    chances.push_back({entry, text_behind_others(model_.tokenizer(), entry.token)});
  }
  return chances;
}

void PromptRun::end(Output& output, FinishReason reason, const RequestStats& stats) {
  output.finish = reason;
  output.stats = stats;
  --unfinished_;
}

}  // namespace stemma::python
