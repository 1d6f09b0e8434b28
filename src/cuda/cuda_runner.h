// CudaRunner: a model on a GPU, computing batches over CudaPools.
//
// A step is queued, and waited for later: between the two the host has time for the next one, whose
// tokens may be those that the step before chose on the device. Decode steps are recorded as graphs
// (cuda_graphs).
//
// Of several ranks each computes its shard on its own GPU (docs/decisions/0012), and chooses the
// same tokens; forward gives logits to rank 0 alone. A rank that cannot go on says so to the others
// before anybody waits: all drop the step.
//
// Thread:     load, queue, wait, forward and prepare_for by one thread at a time (the engine
//             thread); work on the GPU is queued on one stream of its own.
//                                                        Invariants: I6, I13 (docs/INVARIANTS.md).
// Memory:     on the device the weights and scratch for the largest batch; pinned, two steps' rows
//             and logits.
// Cost:       load reads every weight once; queue takes the host a few microseconds an operation,
//             or for a recorded step all in all.
// Not here:   the computation (cuda_transformer), pools (cuda_backend makes them), sampling (the
//             engine).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "attention/cuda_attention.h"
#include "base/thread_pool.h"
#include "cuda/cuda_adapters.h"
#include "cuda/cuda_graphs.h"
#include "cuda/cuda_rank_rows.h"
#include "cuda/cuda_sampler.h"
#include "cuda/cuda_step_rows.h"
#include "cuda/cuda_transformer.h"
#include "cuda/cuda_weights.h"
#include "device/cuda_device.h"
#include "device/cuda_gemm.h"
#include "model/batch_check.h"
#include "model/loaded_runner.h"
#include "model/model_runner.h"
#include "pool/cuda_pool.h"
#include "stemma/result.h"

namespace stemma {

struct CudaRunnerOptions {
  // Every row's bits depend on that row alone, whatever the batch and however its text was cut
  // (I13). Otherwise products are the vendor's, whose order of additions depends on the batch.
  bool deterministic = false;
  bool graphs = true;  // decode steps are recorded, of ranks over NCCL too
  // Ranks exchange rows through the host, even where there is NCCL: for ranks that share a GPU.
  bool staged_ranks = false;
  CudaRanksMaker ranks_maker = nullptr;  // instead of NCCL, where it is not nullptr
  // As CudaAttentionOptions: attention of long chunks, and of latent rows, by products of
  // warpgroups.
  bool hopper_chunks = true;
  bool hopper_latent = false;
};

class CudaRunner final : public LoadedRunner {
  struct Key {};

 public:
  // Loads the model of `directory`. Errors are one line that names the file and the field, or the
  // flag that it cannot do. The device must outlive the runner.
  static Result<std::unique_ptr<CudaRunner>> load(CudaDevice& device, const std::string& directory,
                                                  const ModelRunnerOptions& options,
                                                  const CudaRunnerOptions& cuda_options,
                                                  ThreadPool& threads);
  CudaRunner(Key, CudaDevice& device, ModelConfig config, const CudaRunnerOptions& options);
  // Waits for what is queued, for other ranks as long as wait does.
  ~CudaRunner() override;

  // As Runner. Errors are those of forward, of several ranks the same on all; when queue returns
  // one, nothing is being computed any more. Outputs are valid until the next queue but one.
  bool queues() const override { return true; }
  bool draws() const override { return true; }
  // Products with rounded weights do always; where codes are kept some matrices are not rounded.
  bool repeats_bits() const override {
    return options_.deterministic || weights_.rounding == WeightRounding::kInt8 ||
           weights_.rounding == WeightRounding::kInt4;
  }
  Status queue(const KvBatch& batch, KvPools pools, const StepWish& wish) override;
  Result<StepOutputs> wait() override;

  // Queues a step and waits for it. REQUIRES: no other one is queued. kInvalidArgument for tokens
  // outside the vocabulary, for pools of another shape or device and slots outside of them;
  // kTooLarge for batches and positions beyond the limits: nothing is stored then. kCorrupt if a
  // page that was still arriving turned out to be wrong.
  Result<LogitsView> forward(const KvBatch& batch, KvPools pools) override;
  bool waits_by_layer() const override { return true; }

  const ModelConfig& config() const noexcept override { return config_; }
  std::int64_t context_tokens_max() const noexcept override { return context_tokens_max_; }
  const RoundingReport& rounding() const noexcept override { return weights_.rounding_report; }
  std::string compute_format() const override;
  std::string weights_sha256() const override;
  const HeavyChannels& heavy_channels() const noexcept override { return own_heavy_channels_; }
  KvShape pool_shape() const override;
  KvShape windowed_pool_shape() const override { return own_config_.windowed_pool_shape(); }
  std::vector<std::pair<std::string, std::string>> namespace_fields() const override;

  // The dtype and page size of the pools, which attention is made for. Waits for what is queued
  // where they are others than before.
  Status prepare_for(KvPools pools) override;
  Status meet_ranks() override;

 private:
  // The layers without a window, or those with one.
  struct Group {
    CudaPool* pool = nullptr;   // of the step that is being queued
    std::int64_t made_for = 0;  // number of the pool that attention and graphs are made for
    std::unique_ptr<CudaAttention> attention;
  };
  // Of a step, on its way to the host.
  struct Pending {
    PinnedMemory logits;
    PinnedMemory tokens;
    PinnedMemory broken;
    CudaEvent done;
    std::int64_t rows = 0;
    std::int64_t outputs = 0;
    bool has_logits = false;
    Status failed;  // what is known of it before it was waited for
  };

  Status prepare(const ModelRunnerOptions& options, ThreadPool& threads);
  Status put(AdapterId place, Adapter adapter) override;
  void drop(AdapterId place) override;
  Status prepare_ranks(RankGroup& ranks);
  Status prepare_pending();
  Status queue_within(const BatchLimits& limits, const KvBatch& batch, KvPools pools,
                      const StepWish& wish);
  Status queue_here(const KvBatch& batch, const KvPools& pools, const StepWish& wish);
  Status conclude(const Status& queued, Pending* before_or_null);
  Status await(const Pending& pending);
  // The step that was queued first, of those that were not waited for.
  Pending& first_pending() {
    return pending_[(next_ + pending_.size() - in_flight_) % pending_.size()];
  }
  Status use_pools(const KvPools& pools);
  Status use_pool(const char* name, KvPool& pool, Group& group, std::int64_t window_tokens);
  Status check_slots(const KvBatch& batch, const KvPools& pools) const;
  std::int64_t bucket_of(const KvBatch& batch) const;
  Status queue_step(const KvBatch& batch, const StepWish& wish);
  Status plan(const KvBatch& batch, std::int64_t bucket);
  Status queue_outcome(const KvBatch& batch, bool logits_wanted);
  void drain();

  CudaDevice& device_;
  CudaStream stream_;  // all memory is given back on it
  ModelConfig config_;
  ModelConfig own_config_;  // with the heads of this rank
  CudaRunnerOptions options_;
  std::string config_digest_;  // of the whole text of config.json, in hexadecimal
  ModelRunnerOptions limits_;
  std::int64_t context_tokens_max_ = 0;
  HeavyChannels heavy_channels_;      // of all heads; none without sparse attention
  HeavyChannels own_heavy_channels_;  // of this rank's
  CudaWeights weights_;
  std::unique_ptr<CudaGemm> gemm_;
  std::unique_ptr<CudaRankRows> peers_;  // nullptr: it computes alone
  std::unique_ptr<CudaAdapters> adapters_;
  std::unique_ptr<CudaTransformer> transformer_;
  CudaStepRows rows_;
  CudaSampler sampler_;
  Group full_;
  Group windowed_;
  CudaGraphs graphs_;
  std::array<Pending, 2> pending_;
  std::size_t next_ = 0;             // of pending_
  std::size_t in_flight_ = 0;        // steps queued and not waited for
  std::int64_t outputs_before_ = 0;  // of the step queued last
};

}  // namespace stemma
