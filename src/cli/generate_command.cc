#include "cli/generate_command.h"

#include <unistd.h>

#include <chrono>
#include <iostream>
#include <thread>
#include <utility>

#include "cli/generation_run.h"
#include "cli/logits_recorder.h"
#include "cli/sizes.h"
#include "model/stop_strings.h"

namespace stemma {

namespace {

// The line on a terminal while weights are read.
void show_progress(const LoadProgress& progress) {
  std::cerr << "\rreading weights: " << format_bytes(progress.done_bytes) << " of "
            << format_bytes(progress.total_bytes)
            << (progress.done_bytes == progress.total_bytes ? "\n" : "  ") << std::flush;
}

// How long the end of a run waits for pages on their way to lower tiers, at most.
constexpr std::chrono::seconds kSettleTime(30);

Status check_at_least(std::string_view flag, std::int64_t value, std::int64_t least) {
  if (value >= least) return {};
  return Error{ErrorCode::kInvalidArgument, std::string(flag) + " must be at least " +
                                                std::to_string(least) + " (got " +
                                                std::to_string(value) + ")"};
}

}  // namespace

GenerateCommand::GenerateCommand(CLI::App& app)
    : command_(app.add_subcommand("generate", "Answer prompts with a model")) {
  command_
      ->add_option("--model", flags_.model,
                   "directory of config.json, *.safetensors, tokenizer.json")
      ->required();
  add_request_flags();
  add_cache_flags();
  tier_flags_.add_to(*command_);
  command_->add_option("--logits", flags_.logits,
                       "write the logits of every output token to FILE (safetensors, f32)");
  command_->add_option("--capture", flags_.capture,
                       "write a trace of the requests to FILE, for `stemma replay --format "
                       "capture`: hashes, no text");
  command_->add_flag("--json", flags_.json, "one JSON object a request, then a summary");
}

void GenerateCommand::add_request_flags() {
  command_->add_option("--prompt", flags_.prompt, "text to continue");
  command_->add_option(
      "--prompts", flags_.prompts,
      "file of lines {\"prompt\" | \"token_ids\" | \"messages\", \"max_tokens\"?}");
  command_->add_option("--max-tokens", flags_.max_tokens, "output tokens a request, at most")
      ->capture_default_str();
  command_->add_option("--temperature", flags_.sampling.temperature, "0 takes the likeliest token")
      ->capture_default_str();
  command_->add_option("--top-k", flags_.sampling.top_k, "of the k likeliest tokens; 0: of all")
      ->capture_default_str();
  command_->add_option("--top-p", flags_.sampling.top_p, "of the likeliest with this probability")
      ->capture_default_str();
  command_->add_option("--min-p", flags_.sampling.min_p, "at least this share of the likeliest")
      ->capture_default_str();
  command_
      ->add_option("--repetition-penalty", flags_.sampling.repetition_penalty,
                   "above 1 makes tokens that occurred less likely")
      ->capture_default_str();
  command_->add_option("--seed", flags_.seed, "of the random numbers")->capture_default_str();
  command_->add_option("--stop", flags_.stop,
                       "text that ends an answer; may be given several times");
  command_->add_flag("--ignore-eos", flags_.ignore_eos,
                     "go on after the model's end-of-text token");
}

void GenerateCommand::add_cache_flags() {
  command_->add_option("--cache", flags_.cache, "radix or none")->capture_default_str();
  command_
      ->add_option("--eviction", flags_.eviction,
                   "lru lfu fifo mru filo slru priority gdsf tlru s3fifo hazard")
      ->capture_default_str();
  command_
      ->add_option("--policy", flags_.policy,
                   "fcfs lpm dfs-weight lof random priority shortest-uncached-first hrrn")
      ->capture_default_str();
  command_->add_option("--page-size", flags_.page_size, "tokens per page")->capture_default_str();
  command_
      ->add_option("--context-tokens", flags_.context_tokens, "prompt and output; 0: the model's")
      ->capture_default_str();
  command_->add_option("--kv-bytes", flags_.kv_bytes, "memory for keys and values (KiB MiB GiB)")
      ->capture_default_str();
  command_->add_option("--kv-dtype", flags_.kv_dtype, "f32 f16 bf16 auto")->capture_default_str();
  command_->add_option("--kv-layout", flags_.kv_layout, "layer_first page_first")
      ->capture_default_str();
  command_->add_option("--attention", flags_.attention, "cpu reference")->capture_default_str();
  command_->add_option("--threads", flags_.threads, "0: one a core")->capture_default_str();
  command_->add_option("--concurrency", flags_.concurrency, "requests computed at a time, at most")
      ->capture_default_str();
  command_->add_option("--chunk-tokens", flags_.chunk_tokens, "prompt tokens in one step, at most")
      ->capture_default_str();
}

Result<std::vector<PromptLine>> GenerateCommand::read_prompts() const {
  if (flags_.prompt.has_value() == !flags_.prompts.empty()) {
    return Error{ErrorCode::kInvalidArgument, "--prompt or --prompts is wanted, and not both"};
  }
  if (!flags_.prompts.empty()) return read_prompts_file(flags_.prompts);
  PromptLine line;
  line.prompt = flags_.prompt;
  return std::vector<PromptLine>{std::move(line)};
}

Result<ServedModelOptions> GenerateCommand::model_options() const {
  STEMMA_RETURN_IF_ERROR(check_at_least("--page-size", flags_.page_size, 1));
  STEMMA_RETURN_IF_ERROR(check_at_least("--max-tokens", flags_.max_tokens, 1));
  STEMMA_RETURN_IF_ERROR(check_at_least("--concurrency", flags_.concurrency, 1));
  STEMMA_RETURN_IF_ERROR(check_at_least("--chunk-tokens", flags_.chunk_tokens, 1));
  STEMMA_RETURN_IF_ERROR(check_at_least("--context-tokens", flags_.context_tokens, 0));
  STEMMA_RETURN_IF_ERROR(check_at_least("--threads", flags_.threads, 0));
  STEMMA_RETURN_IF_ERROR(StopStrings::validate(flags_.stop));
  ServedModelOptions options;
  options.directory = flags_.model;
  STEMMA_ASSIGN_OR_RETURN(options.kv_bytes, parse_bytes(flags_.kv_bytes, "--kv-bytes"));
  options.kv_dtype = flags_.kv_dtype;
  options.kv_layout = flags_.kv_layout;
  options.attention = flags_.attention;
  options.threads = flags_.threads != 0
                        ? flags_.threads
                        : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  KvCacheOptions& kv = options.engine.kv;
  kv.page_size = flags_.page_size;
  kv.requests_max = flags_.concurrency;
  kv.context_tokens_max = flags_.context_tokens;
  kv.cache = flags_.cache;
  kv.eviction = flags_.eviction;
  SchedulerOptions& scheduler = options.engine.scheduler;
  scheduler.chunk_tokens_max = flags_.chunk_tokens;
  scheduler.step_tokens_max = std::max(flags_.chunk_tokens, flags_.concurrency);
  scheduler.seed = flags_.seed;
  STEMMA_ASSIGN_OR_RETURN(scheduler.policy, parse_schedule_policy(flags_.policy));
  STEMMA_RETURN_IF_ERROR(tier_flags_.apply(options));
  if (isatty(STDERR_FILENO) != 0) options.progress = show_progress;
  return options;
}

Result<std::optional<CaptureWriter>> GenerateCommand::open_capture() const {
  if (flags_.capture.empty()) return std::optional<CaptureWriter>();
  STEMMA_ASSIGN_OR_RETURN(const CaptureSalt salt, make_capture_salt());
  STEMMA_ASSIGN_OR_RETURN(CaptureWriter writer,
                          CaptureWriter::create(flags_.capture, flags_.page_size, salt));
  return std::optional<CaptureWriter>(std::move(writer));
}

Status GenerateCommand::run() {
  STEMMA_ASSIGN_OR_RETURN(const std::vector<PromptLine> prompts, read_prompts());
  STEMMA_ASSIGN_OR_RETURN(ServedModelOptions options, model_options());
  const auto requests = static_cast<std::int64_t>(prompts.size());
  options.engine.scheduler.waiting_max = std::max<std::int64_t>(requests, 1);
  options.engine.inbox_max = std::max<std::int64_t>(requests, 1);
  STEMMA_ASSIGN_OR_RETURN(const std::unique_ptr<ServedModel> model, ServedModel::open(options));
  LogitsRecorder recorder(model->runner());
  STEMMA_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                          model->open_engine(flags_.logits.empty() ? nullptr : &recorder));
  STEMMA_ASSIGN_OR_RETURN(std::optional<CaptureWriter> capture, open_capture());
  GenerationRun run(*model, *engine, flags_, capture.has_value() ? &*capture : nullptr);
  STEMMA_RETURN_IF_ERROR(run.submit(prompts));
  STEMMA_RETURN_IF_ERROR(run.finish(std::cout));
  engine->settle(kSettleTime);
  if (capture.has_value()) STEMMA_RETURN_IF_ERROR(capture->close());
  if (!flags_.logits.empty()) return recorder.write(flags_.logits);
  return {};
}

}  // namespace stemma
