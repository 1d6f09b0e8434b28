// PromptRun: a list of prompts on its way through an engine, for Python.
//
// Thread:     the engine's, without the interpreter's lock.
// Memory:     the outputs, until they are taken.
// Cost:       a step of the engine at a time; Python is asked between steps whether it interrupts.
// Not here:   what Python's objects say and are told (llm.cc), one turn at a time (binding.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/served_model.h"
#include "engine/text_generation.h"
#include "grammar/text_form.h"
#include "stemma/engine.h"

namespace stemma::python {

// What Python asks for in one prompt.
struct Wish {
  RequestSpec spec;
  TextRules text;
  TextForm form;
};

// A token as Python is told of it.
struct Chance {
  TokenLogprob entry;
  std::string text;
};
// Of a token of a text: its own, then those of the likeliest.
using Chances = std::vector<Chance>;

// Ends the call with an error of the prompt at that place in the list, in the words of
// SamplingParams.
[[noreturn]] void fail_prompt(std::size_t prompt, const Error& error);

// One output of one prompt, while it comes and when it is whole.
struct Output {
  RequestId request;
  std::size_t prompt = 0;  // its place in the list
  std::vector<TokenId> tokens;
  std::string text;
  TextGeneration stream;
  std::size_t prompt_entries = 0;            // of a row of EngineEvent::prompt_logprobs
  std::vector<Chances> chances = {};         // of the output's tokens, where they are wanted
  std::vector<Chances> prompt_chances = {};  // from the prompt's second token on
  FinishReason finish = FinishReason::kNone;
  StopReason stop_reason = {};
  RequestStats stats;
  Error error;
};

// A list of prompts on its way through the engine.
class PromptRun {
 public:
  PromptRun(const ServedModel& model, Engine& engine) : model_(model), engine_(engine) {}

  // Answers all of them. Asks Python between steps whether it was interrupted.
  void answer(std::vector<Wish> wishes);
  std::vector<Output> take() { return std::move(outputs_); }

 private:
  void submit_some(std::vector<Wish>& wishes);
  void submit(Wish& wish);
  void take(const EngineEvent& event);
  void take_scores(const EngineEvent& event, Output& output) const;
  Chances chances_of(std::span<const TokenLogprob> entries) const;
  void end(Output& output, FinishReason reason, const RequestStats& stats);
  void cancel_all();

  const ServedModel& model_;
  Engine& engine_;
  std::vector<Output> outputs_;  // in the order of their requests
  std::size_t submitted_ = 0;    // prompts
  std::int64_t unfinished_ = 0;
};

}  // namespace stemma::python
