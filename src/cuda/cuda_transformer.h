// CudaTransformer: the computation of a decoder-only model over one batch of rows, queued on a
// stream of a GPU.
//
// Each layer: norm, q k v in one product, RoPE and what else heads need (or the rows of latent
// attention), store K and V, attention over the pool, output projection, norm, gated MLP or a
// mixture of experts. A branch is added to the residual stream by the norm that follows it. The
// residual stream, q, k and v before they are turned, what branches give, and logits are f32; what
// products and attention read is of the type of rows (cuda_weights.h). Every operation but the
// vendor's products gives a row bits that depend on that row alone (I13).
//
// Thread:     as the stream.                           Invariants: I13 (docs/INVARIANTS.md).
// Memory:     on the device, at creation: scratch for the largest batch, logits for the largest
//             number of outputs, the angles of every position.
// Cost:       decode is bound by reading the weights and K and V once.
// Not here:   kernels (rows_cuda, turn_cuda), products (CudaGemm), attention (CudaAttention), what
//             surrounds latent attention (CudaLatent), mixtures (CudaMixture), which rows these are
//             (cuda_step_rows).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "attention/cuda_attention.h"
#include "base/thread_pool.h"
#include "cuda/cuda_adapters.h"
#include "cuda/cuda_latent.h"
#include "cuda/cuda_mixture.h"
#include "cuda/cuda_rank_rows.h"
#include "cuda/cuda_step_rows.h"
#include "cuda/cuda_upload.h"
#include "cuda/cuda_weights.h"
#include "cuda/rows_cuda.h"
#include "device/cuda_device.h"
#include "device/cuda_gemm.h"
#include "model/config.h"
#include "pool/cuda_pool.h"
#include "stemma/kv_batch.h"
#include "stemma/result.h"

namespace stemma {

// The largest batch that run will be given, and the positions in it.
struct CudaTransformerLimits {
  std::int64_t rows_max = 0;
  std::int64_t outputs_max = 0;
  std::int64_t context_tokens_max = 0;
};

// What it computes with; everything but the threads must outlive it. One rank of several has the
// weights and the config of its shard.
struct CudaTransformerParts {
  const ModelConfig& config;
  const CudaWeights& weights;
  CudaTransformerLimits limits;
  CudaDevice& device;
  CudaStream& stream;
  CudaGemm& gemm;  // of `stream`
  ThreadPool& threads;
  CudaRankRows* peers = nullptr;  // of the ranks that compute it together; nullptr: this one alone
  CudaAdapters& adapters;         // that rows may have, of the shard
};

// What layers with a window, and those without, each have of their own.
struct CudaLayerGroup {
  CudaPool* pool = nullptr;  // nullptr: there are no such layers
  CudaAttention* attention = nullptr;
};

// One batch, whose rows lie on the device and for which the attentions were planned.
struct CudaStep {
  std::int64_t rows = 0;
  std::int64_t outputs = 0;
  CudaLayerGroup full;
  CudaLayerGroup windowed;
  LayerGate* arriving = nullptr;  // see KvBatch
};

class CudaTransformer {
  struct Key {};

 public:
  // kOutOfMemory if the scratch cannot be had. Waits until the angles are on the device.
  static Result<std::unique_ptr<CudaTransformer>> create(const CudaTransformerParts& parts);
  CudaTransformer(Key, const CudaTransformerParts& parts);  // for create

  // Queues `step`, of the rows that lie at `places`; waits for pages that are still arriving, layer
  // by layer. kCorrupt if one of them turned out to be wrong. May be recorded if none is arriving
  // and ranks can be. Of several ranks all queue the same step; after an error one gathers no more.
  // REQUIRES: the step is within the limits; the pools have the model's shapes.
  Status run(const CudaStep& step, const StepPlaces& places);

  // On the device, of the step that was queued last.
  const float* logits() const noexcept { return logits_.as<float>(); }  // [outputs, vocab_tokens]
  // Of each output the token with the largest logit; -1 if no logit is a number. Others may be put
  // in their place. The next step's tokens can be these: embed_rows.     [outputs]
  std::int32_t* sampled() noexcept { return sampled_.as<std::int32_t>(); }
  // See StepOutputs.                                                         [rows]
  const std::int32_t* broken() const noexcept { return broken_.as<std::int32_t>(); }

 private:
  // What a norm adds to the residual stream before it.
  struct Branch {
    const float* rows = nullptr;  // nullptr: nothing
    const float* bias = nullptr;
    const float* norm = nullptr;
  };
  struct Product {
    const std::byte* x;
    const CudaMatrix& w;
    std::byte* y;
    std::int64_t outputs;
    std::int64_t inputs;
    bool f32_out;
  };
  // One in f32 with all outputs of all ranks, each of which computes its own, and what adapters add
  // to them.
  struct CutProduct {
    const std::byte* x;
    const CudaMatrix& w;
    const CudaMemory& whole;
    std::int64_t outputs;
    std::int64_t inputs;
    const AdaptedLayer* adapted_or_null = nullptr;
    Projection projection = Projection::kOutput;
  };
  struct GatedMlp {
    const CudaMatrix& gate_up;
    const float* gate_up_bias;
    const CudaMatrix& down;
    std::int64_t width;
  };
  // One layer's part of a step.
  struct Place {
    const CudaLayerGroup& group;
    const float* angles;
    const std::int32_t* slots;
    std::int64_t layer;  // of the pool
    AdaptedLayer adapted;
  };

  Status allocate();
  Status allocate_rows(CudaMemory& memory, std::int64_t rows, std::int64_t row_bytes);
  Status upload_angles(ThreadPool& threads);
  Status upload_angles_of(const RopeConfig& rope, ThreadPool& threads, CudaUpload& upload,
                          CudaMemory& angles);

  Status embed(const CudaStep& step, const StepPlaces& places);
  Place place_of(std::size_t layer, const CudaStep& step, const StepPlaces& places) const;
  NormRows norm_of(const Branch& branch, const float* norm) const;
  Status attend(const CudaStep& step, const StepPlaces& places, const CudaLayerWeights& layer,
                const Place& place);
  Status write_queries_and_keys(const CudaStep& step, const StepPlaces& places,
                                const CudaLayerWeights& layer, const Place& place);
  Status write_latent_rows(const CudaStep& step, const StepPlaces& places,
                           const CudaLayerWeights& layer, const Place& place);
  Status turn_and_store(const CudaStep& step, const StepPlaces& places,
                        const CudaLayerWeights& layer, const Place& place);
  Status store_by_pool(const CudaStep& step, const Place& place);
  Status mlp(const CudaStep& step, const CudaLayerWeights& layer, const AdaptedLayer& adapted);
  Status gated_mlp(const GatedMlp& mlp, const AdaptedLayer& adapted, std::int64_t rows);
  Status adapt_heads(const AdaptedLayer& adapted, std::int64_t rows);
  Status adapt_gates(const AdaptedLayer& adapted, std::int64_t width, std::int64_t rows);
  Status adapt_part(const CutProduct& product, std::int64_t rows);
  Status head(const CudaStep& step, const StepPlaces& places, const Branch& branch);
  Status multiply(const Product& product, std::int64_t rows);
  Status multiply_cut(const CutProduct& product, std::int64_t rows);
  // How many of a matrix's outputs are this rank's.
  std::int64_t own_columns(std::int64_t columns) const;
  // Where this rank's columns of rows go that are gathered to `whole`: there, if it is alone.
  std::byte* part_of(const CudaMemory& whole) const;
  Status gather(const CudaMemory& whole, std::int64_t rows, std::int64_t columns);

  const ModelConfig& config_;
  const CudaWeights& weights_;
  CudaTransformerLimits limits_;
  CudaDevice& device_;
  CudaStream& stream_;
  CudaGemm& gemm_;
  CudaRankRows* peers_;  // nullptr: it computes alone
  CudaAdapters& adapters_;
  std::int64_t qkv_columns_;
  std::int64_t value_columns_;  // that the output projection reads, of all ranks

  CudaMemory residual_;         // f32, what layers add to       [rows_max, hidden]
  CudaMemory normed_;           // what a branch reads           [rows_max, hidden]
  CudaMemory branch_;           // f32, what a branch gives      [rows_max, hidden]
  CudaMemory qkv_;              // f32      [rows_max, query_heads + 2 kv_heads, head_dim], or none
  CudaMemory query_;            // turned                        [rows_max, query_heads, head_dim]
  CudaMemory values_;           // of all ranks                  [rows_max, value_columns]
  CudaMemory gate_up_;          // of the widest MLP, this rank's part       [rows_max, 2, width]
  CudaMemory gated_;            // of all ranks                  [rows_max, width]
  CudaMemory logits_;           // f32                           [outputs_max, vocab_tokens]
  CudaMemory sampled_;          // i32                           [outputs_max]
  CudaMemory broken_;           // i32                           [rows_max]
  CudaMemory angles_;           // f32      [context_tokens_max, turned_dim / 2, 2]
  CudaMemory windowed_angles_;  // where layers with a window have another RoPE; else none
  std::unique_ptr<CudaLatent> latent_;    // nullptr where the model has none; instead of qkv_
  std::unique_ptr<CudaMixture> mixture_;  // nullptr: all layers are dense
};

}  // namespace stemma
