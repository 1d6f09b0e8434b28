#include "cli/calibrate_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "base/draft_file.h"
#include "base/file.h"
#include "cli/bundled_model.h"
#include "cli/flag_errors.h"
#include "cli/json_lines.h"
#include "cli/prompt_tokens.h"
#include "cli/written_files.h"
#include "model/config_file.h"
#include "model/sparse_calibration.h"
#include "replay/prompts_file.h"

namespace stemma {

namespace {

constexpr std::int64_t kChunkTokens = 512;
constexpr std::array<std::int64_t, 3> kShares = {4, 8, 16};

// Computes all prompts, one after another, each from its first token on; returns their tokens.
Result<std::int64_t> compute(ServedModel& model, const std::vector<PromptLine>& prompts,
                             const std::string& file) {
  STEMMA_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, model.open_engine());
  std::int64_t tokens = 0;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    RequestSpec spec;
    STEMMA_ASSIGN_OR_RETURN(spec.prompt, tokens_of(model, prompts[i]));
    tokens += std::ssize(spec.prompt);
    spec.max_tokens = 1;
    spec.namespace_digest = model.namespace_digest();
    const auto id = engine->submit(std::move(spec));
    if (!id.ok()) {
      return Error{id.error().code, fmt::format("{}: request {}: {}", file, i, id.error().detail)};
    }
    while (!engine->idle()) {
      for (const EngineEvent& event : engine->step().events) {
        if (event.finish == FinishReason::kFailed) return event.error;
      }
    }
  }
  return tokens;
}

// Lets a Tap look at the attention of layers without a window; those with one have no labels.
template <typename Tap, typename Sums>
AttentionDecorator tap_into(Sums& sums) {
  return [&sums](std::unique_ptr<Attention> attention,
                 const AttentionShape& shape) -> std::unique_ptr<Attention> {
    if (shape.window_tokens > 0) return attention;
    return std::make_unique<Tap>(std::move(attention), shape, sums);
  };
}

}  // namespace

CalibrateCommand::CalibrateCommand(Flags& program)
    : command_(
          program.add_command("calibrate", "Find a model's heavy channels for sparse attention")) {
  command_.add("--model", model_, "directory of the model (the bundled one)");
  command_
      .add("--prompts", prompts_,
           "file of lines {\"prompt\" | \"token_ids\" | \"messages\"} like those to come")
      .required();
  command_.add("--channels", channels_, "of each KV head; a multiple of 8").capture_default_str();
  command_.add("--out", out_, "file to write (double_sparsity.json beside the model)");
  command_.add("--weights", weights_, "auto int8 int4 wide: as they will be served, for the recall")
      .capture_default_str();
  command_.add("--threads", threads_, "0: one a core").capture_default_str();
  command_.add("--json", json_, "the recall as one JSON object");
}

Status CalibrateCommand::check() const {
  if (channels_ >= 8 && channels_ % 8 == 0) return {};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("--channels must be a multiple of 8 (got {})", channels_)};
}

ServedModelOptions CalibrateCommand::model_options() const {
  ServedModelOptions options;
  options.directory = model_;
  options.weights = weights_;
  options.threads =
      threads_ != 0 ? threads_ : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  options.engine.kv.cache = "none";
  options.engine.kv.requests_max = 1;
  options.engine.scheduler.chunk_tokens_max = kChunkTokens;
  options.engine.scheduler.step_tokens_max = kChunkTokens;
  return options;
}

std::string CalibrateCommand::path() const {
  return out_.empty() ? join_path(model_, std::string(kSparseCalibrationFile)) : out_;
}

Status CalibrateCommand::run() {
  STEMMA_RETURN_IF_ERROR(check());
  if (model_.empty()) model_ = find_bundled_model();
  if (model_.empty()) {
    return Error{ErrorCode::kInvalidArgument, "--model is wanted: no bundled model was found"};
  }
  CommandFiles files = {.written = {{"--out", path()}}, .read = files_of_model("--model", model_)};
  if (!is_replaceable(path())) {
    return Error{ErrorCode::kInvalidArgument, "--out: " + path() + " is no regular file"};
  }
  files.read.push_back({"--prompts", prompts_});
  STEMMA_RETURN_IF_ERROR(check_apart(files));
  const auto prompts = read_prompts_file(prompts_);
  if (!prompts.ok()) return of_file("--prompts", prompts.error());
  STEMMA_RETURN_IF_ERROR(calibrate(*prompts));
  STEMMA_ASSIGN_OR_RETURN(const RecallSums sums, measure(*prompts));
  print(sums);
  return {};
}

Status CalibrateCommand::calibrate(const std::vector<PromptLine>& prompts) {
  PosixFiles files;
  STEMMA_ASSIGN_OR_RETURN(const ConfigFile file, load_config(files, model_));
  const ModelConfig& config = file.config;
  if (channels_ >= config.head_dim) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--channels must be below the model's head_dim, {} (got {})",
                             config.head_dim, channels_)};
  }
  ChannelSums sums(config.layers, config.kv_heads, config.head_dim);
  ServedModelOptions options = model_options();
  options.decorate_attention = tap_into<ChannelTap>(sums);
  STEMMA_ASSIGN_OR_RETURN(const std::unique_ptr<ServedModel> model, ServedModel::open(options));
  STEMMA_ASSIGN_OR_RETURN(tokens_, compute(*model, prompts, prompts_));
  SparseCalibration calibration;
  calibration.weights_sha256 = model->runner().weights_sha256();
  calibration.head_dim = config.head_dim;
  calibration.channels = sums.heaviest(channels_);
  return save_sparse_calibration(calibration, path());
}

// Attention is dense here, so that all shares are measured on the same rows.
Result<RecallSums> CalibrateCommand::measure(const std::vector<PromptLine>& prompts) const {
  RecallSums sums;
  for (const std::int64_t share : kShares) sums.shares.push_back({{0, 1, share}});
  ServedModelOptions options = model_options();
  options.sparse = SparseOptions{SparseDial(), path()};
  options.decorate_attention = tap_into<RecallTap>(sums);
  STEMMA_ASSIGN_OR_RETURN(const std::unique_ptr<ServedModel> model, ServedModel::open(options));
  STEMMA_RETURN_IF_ERROR(compute(*model, prompts, prompts_));
  return sums;
}

void CalibrateCommand::print(const RecallSums& sums) const {
  if (json_) {
    nlohmann::ordered_json object;
    object["file"] = path();
    object["prompt_tokens"] = tokens_;
    object["queries"] = sums.queries;
    for (std::size_t i = 0; i < kShares.size(); ++i) {
      nlohmann::ordered_json& share = object["recall"][kept_text(sums.shares[i].dial)];
      share["chosen"] = sums.recall(i);
      share["best"] = sums.best_recall(i);
    }
    std::cout << json_line(object) << std::endl;
    return;
  }
  std::cout << fmt::format("{}: {} channels of each KV head, from {} tokens of {}\n", path(),
                           channels_, tokens_, prompts_);
  if (sums.queries == 0) {
    std::cout << fmt::format("recall: not measured: no prompt has {} tokens\n", kRecallTokensMin);
  }
  for (std::size_t i = 0; i < kShares.size() && sums.queries > 0; ++i) {
    std::cout << fmt::format(
        "recall of attention's mass, {:>4} of the tokens: {:.3f}; as many chosen by exact scores: "
        "{:.3f}\n",
        kept_text(sums.shares[i].dial), sums.recall(i), sums.best_recall(i));
  }
}

}  // namespace stemma
