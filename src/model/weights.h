// Weights: the tensors of a model, found by their published names, checked, and packed for the
// GEMM.
//
// Matrices keep the type of the file (f32, f16, bf16) and are computed from it, or are rounded to
// whole numbers (weight_rounding); vectors (norms, biases) become f32, exactly. Names and shapes
// are those of the Hugging Face files of each family.
//
// Thread:     loaded by one thread; immutable afterwards.
// Memory:     each matrix once, packed; while loading, one tensor more. Tied embeddings are not
//             stored twice, but for a rank's rows of them that are outputs too.
// Cost:       one read of the files, by every rank.
// Not here:   file formats (weight_files, safetensors), who holds what (shard), the computation
//             (transformer).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/digest.h"
#include "base/thread_pool.h"
#include "device/packed_weights.h"
#include "model/config.h"
#include "model/gated_mlp.h"
#include "model/latent_attention.h"
#include "model/mixture.h"
#include "model/shard.h"
#include "model/tensor_values.h"
#include "model/weight_files.h"
#include "model/weight_rounding.h"
#include "stemma/result.h"

namespace stemma {

// One transformer layer. A bias that the model does not have is empty. Of several ranks each has
// its part of the outputs of every matrix and bias that is cut (shard).
struct LayerWeights {
  std::vector<float> attention_norm;  // [hidden]
  PackedWeights query;                // [query_heads × head_dim, hidden]
  PackedWeights key;                  // [kv_heads × head_dim, hidden]
  PackedWeights value;                // [kv_heads × head_dim, hidden]
  PackedWeights output;               // [hidden, value_columns]
  std::vector<float> query_bias;
  std::vector<float> key_bias;
  std::vector<float> value_bias;
  std::vector<float> output_bias;
  std::vector<float> query_norm;  // [head_dim] with head_norms, else empty
  std::vector<float> key_norm;
  std::vector<float> attention_branch_norm;  // [hidden] with branch_norms, else empty
  std::vector<float> mlp_branch_norm;
  std::vector<float> mlp_norm;  // [hidden]
  LatentWeights latent;         // with latent attention, instead of query, key and value
  MlpWeights mlp;               // of intermediate width; empty where the layer is a mixture
  MixtureWeights mixture;       // empty where it is dense
};

struct ModelWeights {
  PackedWeights embeddings;  // [vocab_tokens, hidden]
  std::vector<LayerWeights> layers;
  std::vector<float> final_norm;  // [hidden]
  PackedWeights separate_head;    // [vocab_tokens, hidden]; empty where `embeddings` serve as it
  Sha256Digest digest = {};       // of every byte of the files
  RoundingReport rounding;        // empty where nothing was rounded

  // The matrix that turns the last hidden state into logits.
  const PackedWeights& head() const noexcept {
    return separate_head.n() == 0 ? embeddings : separate_head;
  }
  // The formats that matrices are computed from, in order of first use: "bf16", "bf16+f32" for
  // mixed files, "int8+int4+bf16" for a rounded mixture and its router.
  std::string compute_format() const;
};

// Every tensor that `config` needs, in the order of the computation.
std::vector<TensorSpec> needed_tensors(const ModelConfig& config);

// Where config.json says no type, that of the embeddings in `files` if they have one that weights
// can be; it is logged.
void settle_weights_dtype(const WeightFiles& files, ModelConfig& config);

// Whether every one of them is in `files` with its shape and a weight type; the error names the
// tensor with expected and found shape.
Status check_tensors(const ModelConfig& config, const WeightFiles& files);

// How far a load has come, in bytes of weights.
struct LoadProgress {
  std::int64_t done_bytes = 0;
  std::int64_t total_bytes = 0;
};
using ProgressCallback = std::function<void(const LoadProgress&)>;

struct WeightOptions {
  WeightRounding rounding = WeightRounding::kNone;
  Shard shard = {};                // what of them is kept
  ProgressCallback progress = {};  // may be empty
};

// Reads all of `files`, and keeps what `shard` holds: all outputs of the matrices, or a rank's.
// Before that, every tensor that `config` needs must be there with its shape and a weight type; the
// error names the tensor with expected and found shape. What rounding cost is logged once.
Result<ModelWeights> load_weights(const ModelConfig& config, WeightFiles& files, ThreadPool& pool,
                                  const WeightOptions& options);

}  // namespace stemma
