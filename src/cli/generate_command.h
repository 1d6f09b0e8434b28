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
#include "cli/prompts_file.h"
#include "cli/tier_flags.h"
#include "engine/served_model.h"
#include "replay/capture_writer.h"

namespace stemma {

struct GenerateFlags {
  std::string model;
  std::optional<std::string> prompt;
  std::string prompts;
  std::int64_t max_tokens = 64;
  SamplingParams sampling;
  std::uint64_t seed = 0;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  std::string cache = "radix";
  std::string eviction = "lru";
  std::string policy = "fcfs";
  std::int64_t page_size = 16;
  std::int64_t context_tokens = 0;
  std::string kv_bytes = "256MiB";
  std::string kv_dtype = "auto";
  std::string kv_layout = "layer_first";
  std::string attention = "cpu";
  int threads = 0;
  std::int64_t concurrency = 16;
  std::int64_t chunk_tokens = 512;
  std::string logits;
  std::string capture;
  bool json = false;
};

class GenerateCommand final : public Command {
 public:
  explicit GenerateCommand(CLI::App& app);
  bool chosen() const override { return command_->parsed(); }
  Status run() override;

 private:
  void add_request_flags();
  void add_cache_flags();
  Result<std::vector<PromptLine>> read_prompts() const;
  Result<ServedModelOptions> model_options() const;
  Result<std::optional<CaptureWriter>> open_capture() const;

  GenerateFlags flags_;
  TierFlags tier_flags_;
  CLI::App* command_;
};

}  // namespace stemma
