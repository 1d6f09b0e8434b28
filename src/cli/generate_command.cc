#include "cli/generate_command.h"

#include <unistd.h>

#include <chrono>
#include <iostream>
#include <thread>
#include <utility>

#include "cli/flag_errors.h"
#include "cli/generation_run.h"
#include "cli/ranked_run.h"
#include "cli/request_capture.h"
#include "cli/sizes.h"
#include "cli/written_files.h"
#include "engine/logits_recorder.h"
#include "model/stop_strings.h"
#include "replay/prompts_file.h"

namespace stemma {

namespace {

// How long the end of a run waits for pages on their way to lower tiers, at most.
constexpr std::chrono::seconds kSettleTime(30);

}  // namespace

GenerateCommand::GenerateCommand(Flags& program)
    : command_(program.add_command("generate", "Answer prompts with a model")) {
  add_request_flags();
  flags_.model.add_to(command_).required();
  command_.add("--logits", flags_.logits,
               "write the logits of every output token to FILE (safetensors, f32)");
  command_.add("--capture", flags_.capture,
               "write a trace of the requests to FILE, for `stemma replay --format "
               "capture`: hashes, no text");
  command_.add("--json", flags_.json, "one JSON object a request, then a summary");
}

void GenerateCommand::add_request_flags() {
  command_.add("--prompt", flags_.prompt, "text to continue");
  command_.add(
      "--prompts", flags_.prompts,
      "file of lines {\"prompt\" | \"token_ids\" | \"messages\", \"max_tokens\"?, \"adapter\"?}");
  command_.add("--use-adapter", flags_.adapter,
               "the NAME of an --adapter for requests whose line names none");
  command_.add("--max-tokens", flags_.max_tokens, "output tokens a request, at most")
      .capture_default_str();
  command_.add("--temperature", flags_.sampling.temperature, "0 takes the likeliest token")
      .capture_default_str();
  command_.add("--top-k", flags_.sampling.top_k, "of the k likeliest tokens; 0: of all")
      .capture_default_str();
  command_.add("--top-p", flags_.sampling.top_p, "of the likeliest with this probability")
      .capture_default_str();
  command_.add("--min-p", flags_.sampling.min_p, "at least this share of the likeliest")
      .capture_default_str();
  command_
      .add("--repetition-penalty", flags_.sampling.repetition_penalty,
           "above 1 makes tokens that occurred less likely")
      .capture_default_str();
  command_.add("--seed", flags_.seed, "of the random numbers").capture_default_str();
  command_.add("--stop", flags_.stop, "text that ends an answer; may be given several times");
  flags_.form.add_to(command_);
  command_.add("--ignore-eos", flags_.ignore_eos, "go on after the model's end-of-text token");
}

Result<std::vector<PromptLine>> GenerateCommand::read_prompts() const {
  if (flags_.prompt.has_value() == !flags_.prompts.empty()) {
    return Error{ErrorCode::kInvalidArgument, "--prompt or --prompts is wanted, and not both"};
  }
  if (!flags_.prompts.empty()) {
    auto lines = read_prompts_file(flags_.prompts);
    if (!lines.ok()) return of_file("--prompts", lines.error());
    return lines;
  }
  PromptLine line;
  line.prompt = flags_.prompt;
  return std::vector<PromptLine>{std::move(line)};
}

Result<ServedModelOptions> GenerateCommand::model_options() const {
  if (flags_.max_tokens < 1) {
    return Error{ErrorCode::kInvalidArgument,
                 "--max-tokens must be at least 1 (got " + std::to_string(flags_.max_tokens) + ")"};
  }
  STEMMA_RETURN_IF_ERROR(StopStrings::validate(flags_.stop));
  STEMMA_ASSIGN_OR_RETURN(ServedModelOptions options, flags_.model.options());
  options.engine.scheduler.seed = flags_.seed;
  CommandFiles files = flags_.model.files();
  files.written.push_back({"--logits", flags_.logits});
  files.written.push_back({"--capture", flags_.capture});
  const std::vector<NamedFile> forms = flags_.form.files();
  files.read.insert(files.read.end(), forms.begin(), forms.end());
  files.read.push_back({"--prompts", flags_.prompts});
  STEMMA_RETURN_IF_ERROR(check_apart(files));
  return options;
}

Status GenerateCommand::run() {
  STEMMA_ASSIGN_OR_RETURN(const std::unique_ptr<RankGroup> ranks, flags_.model.open_ranks());
  Result<ServedModelOptions> options = model_options();
  const auto device = flags_.model.open_device(ranks.get());
  if (follows(ranks.get())) return follow(std::move(options), device, *ranks);
  const Result<std::vector<PromptLine>> prompts = read_prompts();
  if (!prompts.ok()) return told(ranks.get(), prompts.error());
  if (!options.ok()) return told(ranks.get(), options.error());
  Result<TextForm> form = flags_.form.form();
  if (!form.ok()) return told(ranks.get(), form.error());
  flags_.text_form = std::move(form).value();
  if (!device.ok()) return told(ranks.get(), device.error());
  options->ranks = ranks.get();
  options->backend = device->get();
  return answer(*prompts, std::move(options).value());
}

Status GenerateCommand::answer(const std::vector<PromptLine>& prompts,
                               ServedModelOptions options) const {
  const auto requests = static_cast<std::int64_t>(prompts.size());
  options.engine.scheduler.waiting_max = std::max<std::int64_t>(requests, 1);
  options.engine.inbox_max = std::max<std::int64_t>(requests, 1);
  STEMMA_ASSIGN_OR_RETURN(const std::unique_ptr<ServedModel> model, ServedModel::open(options));
  LogitsRecorder recorder(model->batch_runner());
  RequestCapture capture(flags_.model.page_size());
  STEMMA_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                          model->open_engine(flags_.logits.empty() ? nullptr : &recorder,
                                             flags_.capture.empty() ? nullptr : &capture));
  GenerationRun run(*model, *engine, flags_);
  STEMMA_RETURN_IF_ERROR(run.submit(prompts));
  // Not before: what is refused is no reason to empty the file of an earlier run.
  if (!flags_.capture.empty()) STEMMA_RETURN_IF_ERROR(capture.open(flags_.capture));
  STEMMA_RETURN_IF_ERROR(run.finish(std::cout));
  engine->settle(kSettleTime);
  STEMMA_RETURN_IF_ERROR(capture.close());
  if (!flags_.logits.empty()) return recorder.write(flags_.logits);
  return {};
}

}  // namespace stemma
