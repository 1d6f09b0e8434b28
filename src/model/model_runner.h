// ModelRunner: a model loaded from its directory, computing batches for the engine.
//
// Thread:     load and forward by one thread at a time (the engine thread); work is spread over the
//             ThreadPool.
// Memory:     the weights, and scratch for the largest batch; forward does not allocate on the
// heap. Cost:       load reads every weight once; forward is the cost of serving. Not here:
// tokenizer, chat template and sampler (their own files of this folder), requests
//             (sched/).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attention/attention.h"
#include "attention/sparse_dial.h"
#include "base/file.h"
#include "base/thread_pool.h"
#include "model/adapter.h"
#include "model/batch_check.h"
#include "model/config.h"
#include "model/loaded_runner.h"
#include "model/transformer.h"
#include "model/weights.h"
#include "pool/heavy_channels.h"
#include "stemma/result.h"
#include "stemma/runner.h"

namespace stemma {

// Attention to a part of the tokens (double sparsity), after a calibration of the model.
struct SparseOptions {
  SparseDial dial;
  std::string calibration;  // its file; empty: kSparseCalibrationFile in the model's directory
};

// Puts something around a model's attention, to look at what passes, or in its place: around that
// of the layers without a window, and around that of those with one, whose shape says so.
using AttentionDecorator = std::function<std::unique_ptr<Attention>(
    std::unique_ptr<Attention> attention, const AttentionShape& shape)>;

struct ModelRunnerOptions {
  std::string attention = "cpu";  // a name that make_attention knows
  std::int64_t rows_max = 512;    // tokens computed in one step
  std::int64_t outputs_max = 64;  // logit rows of one step
  std::int64_t requests_max = 64;
  std::int64_t context_tokens_max = 0;  // 0: as many as config.json says
  std::optional<SparseOptions> sparse = {};
  std::vector<AdapterSource> adapters = {};    // AdapterId says which
  AttentionDecorator decorate_attention = {};  // may be empty
  WeightRounding weights = WeightRounding::kNone;
  // Those that compute the model together, each a shard of it: nothing sparse then.
  // nullptr: this one alone. Must outlive the runner.
  RankGroup* ranks = nullptr;
  ProgressCallback progress = {};  // may be empty
  Files* files = nullptr;          // nullptr: the operating system's; else used during load
};

// kInvalidArgument, naming the field, unless the limits of batches can be had.
Status check_limits(const ModelRunnerOptions& options);

// kInvalidArgument, naming the flag and the bound, where a longer context is asked for than the
// model can have.
Status check_context(const ModelRunnerOptions& options, const ModelConfig& config);

// The context that a runner with these options serves. REQUIRES: check_context was ok.
std::int64_t served_context_tokens(const ModelRunnerOptions& options, const ModelConfig& config);

// What a batch for `runner`, made with these options, can hold; no sampled tokens.
BatchLimits batch_limits(const LoadedRunner& runner, const ModelRunnerOptions& options);

// What attention computes in the model's layers without a window.
AttentionShape attention_shape(const ModelConfig& config);

class ModelRunner final : public LoadedRunner {
  struct Key {};

 public:
  // Loads config.json and the safetensors files of `directory`. Errors are one line that names the
  // file and the field or tensor. `threads` must outlive the runner.
  static Result<std::unique_ptr<ModelRunner>> load(const std::string& directory,
                                                   const ModelRunnerOptions& options,
                                                   ThreadPool& threads);
  // For load. `own_config` is that of the shard.
  ModelRunner(Key, ModelConfig config, ModelConfig own_config, ModelWeights weights);

  // kInvalidArgument for tokens outside the vocabulary, for adapters that there are not, and for
  // pools of another shape; kTooLarge for batches and positions beyond the limits: nothing is
  // stored then. kCorrupt if a page that was still arriving turned out to be wrong.
  Result<LogitsView> forward(const KvBatch& batch, KvPools pools) override;
  bool waits_by_layer() const override { return true; }

  const ModelConfig& config() const noexcept override { return config_; }
  std::int64_t context_tokens_max() const noexcept override { return context_tokens_max_; }
  const RoundingReport& rounding() const noexcept override { return weights_.rounding; }
  std::string compute_format() const override { return weights_.compute_format(); }
  std::string weights_sha256() const override;
  const HeavyChannels& heavy_channels() const noexcept override { return own_heavy_channels_; }
  KvShape pool_shape() const override;
  KvShape windowed_pool_shape() const override { return own_config_.windowed_pool_shape(); }
  std::vector<std::pair<std::string, std::string>> namespace_fields() const override;

 private:
  Status put(AdapterId place, Adapter adapter) override;
  void drop(AdapterId place) override;
  Status prepare(const ModelRunnerOptions& options, ThreadPool& threads);
  Result<std::unique_ptr<Attention>> make_full_attention(const ModelRunnerOptions& options,
                                                         const AttentionLimits& limits,
                                                         ThreadPool& threads) const;

  ModelConfig config_;
  ModelConfig own_config_;     // with the heads of this rank
  std::string config_digest_;  // of the whole text of config.json, in hexadecimal
  ModelWeights weights_;
  ModelRunnerOptions limits_;
  std::int64_t context_tokens_max_ = 0;
  HeavyChannels heavy_channels_;                   // of all heads; none without sparse attention
  HeavyChannels own_heavy_channels_;               // of this rank's
  std::vector<Adapter> adapters_;                  // by AdapterId; of no layers: nothing is there
  std::unique_ptr<Attention> attention_;           // nullptr: all layers have a window
  std::unique_ptr<Attention> windowed_attention_;  // nullptr: none has
  std::unique_ptr<Transformer> transformer_;
};

}  // namespace stemma
