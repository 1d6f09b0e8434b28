// GenerateCommand: `stemma generate`, prompts answered by a model.
//
// Thread:     main is the engine thread.
// Memory:     the model, its pool, and all prompts and answers.
// Cost:       that of generating.
// Not here:   the model (engine/served_model), the step loop (Engine).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/form_flags.h"
#include "cli/model_flags.h"
#include "engine/served_model.h"
#include "grammar/text_form.h"

namespace stemma {

struct PromptLine;

struct GenerateFlags {
  ModelFlags model;
  std::optional<std::string> prompt;
  std::string prompts;
  std::int64_t max_tokens = 64;
  SamplingParams sampling;
  std::uint64_t seed = 0;
  std::vector<std::string> stop;
  FormFlags form;
  TextForm text_form;  // what they say, once it was read
  bool ignore_eos = false;
  std::string adapter;  // of requests that name none; empty: none
  std::string logits;
  std::string capture;
  bool json = false;
};

class GenerateCommand final : public Command {
 public:
  explicit GenerateCommand(Flags& program);
  bool chosen() const override { return command_.parsed(); }
  Status run() override;

 private:
  void add_request_flags();
  Result<std::vector<PromptLine>> read_prompts() const;
  Result<ServedModelOptions> model_options() const;
  Status answer(const std::vector<PromptLine>& prompts, ServedModelOptions options) const;

  GenerateFlags flags_;
  Flags command_;
};

}  // namespace stemma
