// GenerationRun: a list of prompts through one engine, each answer printed as soon as all before it
// are.
//
// Thread:     the engine's.
// Memory:     one answer a prompt.
// Cost:       that of generating.
// Not here:   flags (generate_command), opening the model (engine/served_model), captures
//             (request_capture).
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cli/generate_command.h"
#include "engine/text_generation.h"
#include "stemma/engine.h"

namespace stemma {

class GenerationRun {
 public:
  // All must outlive this.
  GenerationRun(const ServedModel& model, Engine& engine, const GenerateFlags& flags)
      : model_(model), engine_(engine), flags_(flags) {}

  // Checks and submits every prompt before anything is computed; the error names the line.
  Status submit(const std::vector<PromptLine>& prompts);

  // Steps until every request has ended, printing to `out`. Fails if a request failed.
  Status finish(std::ostream& out);

 private:
  struct Answer {
    RequestId request;
    std::string adapter;  // empty: none
    std::vector<TokenId> tokens;
    std::string text;
    TextGeneration stream;
    FinishReason finish = FinishReason::kNone;
    RequestStats stats;
    Error error;
  };

  Error refusal(const Error& error, const PromptLine& line, std::size_t place) const;
  Result<RequestSpec> spec_of(const PromptLine& line) const;
  void take(const EngineEvent& event);
  void end(Answer& answer, FinishReason reason, const RequestStats& stats);
  void print_ready(std::ostream& out);
  void print_json(std::ostream& out, const Answer& answer, std::int64_t index) const;
  void print_text(std::ostream& out, const Answer& answer, std::int64_t index) const;
  void print_summary(std::ostream& out, double total_ms) const;

  const ServedModel& model_;
  Engine& engine_;
  const GenerateFlags& flags_;
  MonotonicClock clock_;
  std::vector<Answer> answers_;  // in the order of the prompts, which is that of request ids
  std::size_t printed_ = 0;
  std::int64_t unfinished_ = 0;
};

}  // namespace stemma
