// CudaWeights: the tensors of a model in the memory of a GPU, as its kernels want them: what one
// product can compute at once lies in one matrix, and the matrices of all experts of a mixture one
// behind the other.
//
// Rows that products read have the type that most values of the layers' matrices have in the files.
// Matrices of that type keep it; one of another type, as a router or an output matrix in f32 beside
// bf16, is f32, and so are all parts of one of which some are: f32 holds all others exactly. Or
// matrices are rounded while they are read, as a CPU rounds them, whatever their type: codes and
// scales in strips (device/rounded_strips.h). Vectors (norms, biases) become f32, exactly, and
// norms that files store as what differs from 1 have it added. A rank of several has its outputs of
// every matrix alone, and what is added to them before ranks gather (model/shard).
//
// Thread:     loaded by one thread; immutable afterwards.
// Memory:     every tensor once, in one piece on the device; while loading what weight_files and
//             cuda_upload need, and on the host one tensor's codes twice, or its values in f32, of
//             what is rounded or widened.
// Cost:       one read of the files; rounding what it costs a CPU.
// Not here:   file formats (weight_files), the computation (cuda_transformer), how weights are
//             rounded (device/packed_weights).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/digest.h"
#include "base/thread_pool.h"
#include "cuda/cuda_latent.h"
#include "cuda/cuda_matrix.h"
#include "device/cuda_device.h"
#include "device/weight_type.h"
#include "model/config.h"
#include "model/shard.h"
#include "model/weight_files.h"
#include "model/weight_rounding.h"
#include "model/weights.h"
#include "stemma/result.h"

namespace stemma {

// The second half of a layer that is a mixture; empty where the layer is dense.
struct CudaMixtureWeights {
  CudaMatrix router = {};             // [experts, hidden]
  const float* correction = nullptr;  // [experts] where the choice is corrected
  CudaMatrix gate_up = {};            // [experts, 2, width, hidden]
  CudaMatrix down = {};               // [experts, hidden, width]
  CudaMatrix shared_gate_up = {};     // [2, shared_width, hidden]
  CudaMatrix shared_down = {};        // [hidden, shared_width]
};

// One layer: addresses of the device, aligned to 256 bytes. What the model does not have is null or
// empty. Heads, outputs of matrices and widths of MLPs are those of the shard; q k and v, gate and
// up have biases of these, other biases are whole.
struct CudaLayerWeights {
  const float* attention_norm = nullptr;         // [hidden]
  CudaMatrix qkv;                                // [(query_heads + 2 kv_heads) × head_dim, hidden]
  const float* qkv_bias = nullptr;               // [(query_heads + 2 kv_heads) × head_dim]
  const float* query_norm = nullptr;             // [head_dim]
  const float* key_norm = nullptr;               // [head_dim]
  CudaMatrix output;                             // [hidden, value_columns]
  const float* output_bias = nullptr;            // [hidden]
  const float* attention_branch_norm = nullptr;  // [hidden]
  const float* mlp_norm = nullptr;               // [hidden]
  CudaMatrix gate_up;                            // [2, intermediate, hidden]
  const float* gate_up_bias = nullptr;           // [2, intermediate]
  CudaMatrix down;                               // [hidden, intermediate]
  const float* down_bias = nullptr;              // [hidden]
  const float* mlp_branch_norm = nullptr;        // [hidden]
  CudaLatentWeights latent;    // with latent attention, instead of what is of q and k
  CudaMixtureWeights mixture;  // instead of gate_up and down
};

struct CudaWeights {
  CudaMatrix embeddings;  // [vocab_tokens, hidden]
  std::vector<CudaLayerWeights> layers;
  const float* final_norm = nullptr;  // [hidden]
  // [vocab_tokens, hidden]; the embeddings where they are tied, of several ranks their part, or a
  // copy of that where it begins within a strip.
  CudaMatrix head;
  WeightType type = WeightType::kBf16;             // of the rows that products read
  WeightType embeddings_type = WeightType::kBf16;  // in the files: embedding_scale is of it
  WeightRounding rounding = WeightRounding::kNone;
  RoundingReport rounding_report;
  Sha256Digest digest = {};  // of every byte of the files, as that of ModelWeights
  CudaMemory memory;         // where all of it lies
};

// kUnsupported, naming what of `config`, read from `config_path`, a GPU does not compute yet.
Status check_computable(const ModelConfig& config, std::string_view config_path);

// The formats of all matrices: "bf16", "int8+int4"; as ModelWeights names them, but that what has
// another type than rows is "f32": "bf16+f32".
std::string compute_format_of(const CudaWeights& weights);

// Reads all of `files`, what the shard holds of them to the device, and waits until everything is
// there. kNotFound and kInvalidArgument as check_tensors; kUnsupported for matrices that cannot be
// rounded. Memory belongs to `stream`. REQUIRES: check_computable and check_cut are ok; the device
// and `stream` outlive what it gives.
Result<CudaWeights> load_cuda_weights(const ModelConfig& config, WeightFiles& files,
                                      CudaDevice& device, CudaStream& stream, ThreadPool& threads,
                                      const WeightOptions& options = {});

}  // namespace stemma
