// Transformer: the computation of a decoder-only model over one batch of rows.
//
// Each layer: norm, q k v, RoPE (or the rows of latent attention), store K and V, attention over
// the pool, output projection, norm, gated MLP or a mixture of experts. All arithmetic is f32.
// Every operation sees one row at a time or, in the GEMM, gives a row bits that depend on that row
// alone; attention reads K and V back from the pool in the pool's precision, in prefill as in
// decode (I13).
//
// Thread:     forward by one thread at a time; the work is spread over the ThreadPool.
// Memory:     scratch for the largest batch, at construction; forward does not allocate.
// Cost:       about two operations a weight and row, and attention.
// Not here:   loading (model_runner), attention (attention/), which rows run (sched/).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "attention/attention.h"
#include "base/thread_pool.h"
#include "device/buffer.h"
#include "model/activation_rows.h"
#include "model/adapter.h"
#include "model/adapter_pass.h"
#include "model/config.h"
#include "model/latent_attention.h"
#include "model/mixture.h"
#include "model/rank_rows.h"
#include "model/rope.h"
#include "model/weights.h"
#include "stemma/kv_batch.h"
#include "stemma/kv_pool.h"
#include "stemma/result.h"
#include "stemma/runner.h"

namespace stemma {

// The largest batch that forward will be given.
struct TransformerLimits {
  std::int64_t rows_max = 0;
  std::int64_t outputs_max = 0;
  std::int64_t requests_max = 0;
};

// What it computes with; everything must outlive it. Attentions have the model's shape and at least
// these limits; of a group of layers that the model has none of, there is none. One rank of several
// has the weights, the attentions and the config of its shard.
struct TransformerParts {
  const ModelConfig& config;
  const ModelWeights& weights;
  TransformerLimits limits;
  Attention* attention;           // of layers that look back over the whole text
  Attention* windowed_attention;  // of those with a window
  ThreadPool& threads;
  RankGroup* ranks = nullptr;  // that compute it together; nullptr: this one alone
};

// What embeddings that are scaled are multiplied by: √hidden as their own type has it; else 1.
float embedding_scale(const ModelConfig& config, WeightType type);

class Transformer {
  struct Key {};

 public:
  // kOutOfMemory if the scratch cannot be had.
  static Result<std::unique_ptr<Transformer>> create(const TransformerParts& parts);
  Transformer(Key, const TransformerParts& parts);  // for create

  // Computes `batch` and gives the logits of its logit_rows, valid until the next call. Of several
  // ranks all compute the same batch, and rank 0 alone has the logits: the others give none. A rank
  // that cannot go on keeps the others company to the end, and then says why.
  // REQUIRES: the batch is within the limits, its tokens in the vocabulary, and the pools have the
  // model's shapes.
  Result<LogitsView> forward(const KvBatch& batch, KvPools pools);

  // See AdapterPass::use. REQUIRES: they are of this model.
  Status use_adapters(std::span<const Adapter> adapters) { return adapters_.use(adapters); }

 private:
  // What layers with a window, and those without, do each in their own way.
  struct LayerGroup {
    Attention* attention = nullptr;  // nullptr: there are no such layers
    Rope rope;
    Rows cosines;  // [rows_max, turned_dim / 2]
    Rows sines;    // [rows_max, turned_dim / 2]
  };
  // One layer's part of a batch.
  struct Place {
    LayerGroup& group;
    KvPool& pool;
    std::int64_t layer;  // of the pool
    std::span<const SlotId> slots;
    LayerAdapters adapters;
  };

  Status allocate_scratch();
  Status make_peers(RankGroup& ranks);
  Status make_parts();

  void embed(const KvBatch& batch);
  void compute_angles(const KvBatch& batch);
  Place place_of(std::size_t layer, const KvBatch& batch, const KvPools& pools);
  Status attend(const LayerWeights& layer, const KvBatch& batch, const Place& place);
  void write_queries_and_keys(const LayerWeights& layer, const Place& place, std::int64_t rows);
  Status attend_to_pool(const KvBatch& batch, const Place& place);
  const Rows& attended_values(const LayerWeights& layer, const Place& place, std::int64_t rows);
  Status store(const Place& place, std::int64_t rows);
  void turn_heads(const LayerWeights& layer, const LayerGroup& group, std::int64_t row);
  void mlp(const LayerWeights& layer, const Place& place, std::int64_t rows);
  LogitsView head(const KvBatch& batch);

  void normalise(std::span<const float> weight, std::int64_t rows);
  // `norm`: of what the branch gives, where the model has one; else empty.
  void add_branch(const Rows& branch, std::span<const float> norm, std::int64_t rows);
  void project_output(const LayerWeights& layer, const Place& place, const Rows& values,
                      std::int64_t rows);

  const ModelConfig& config_;
  const ModelWeights& weights_;
  TransformerLimits limits_;
  ThreadPool& threads_;
  float norm_epsilon_;
  float embedding_scale_;
  LayerGroup full_;
  LayerGroup windowed_;

  Buffer scratch_;
  Rows residual_;  // the stream that layers add to    [rows_max, hidden]
  Rows branch_;    // what a branch reads, then what it adds    [rows_max, hidden]
  Rows query_;     // [rows_max, query_heads × head_dim]
  Rows key_;       // [rows_max, kv_heads × head_dim]
  Rows value_;     // [rows_max, kv_heads × head_dim]; none with latent attention
  Rows attended_;  // [rows_max, attended_columns]
  Rows gate_;      // [rows_max, the widest MLP]
  Rows up_;        // [rows_max, the widest MLP]
  Rows logits_;    // [outputs_max, vocab_tokens]; none on ranks that others lead
  Rows values_;    // of all ranks' heads    [rows_max, value_columns]; none on a rank alone
  std::unique_ptr<RankRows> peers_;          // nullptr: it computes alone
  std::unique_ptr<LatentAttention> latent_;  // nullptr where the model has none
  std::unique_ptr<Mixture> mixture_;         // nullptr where the model has none
  AdapterPass adapters_;
};

}  // namespace stemma
