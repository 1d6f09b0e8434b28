// CudaWeights: the tensors of a model in the memory of a GPU, as its kernels want them: what one
// product can compute at once lies in one matrix, and the matrices of all experts of a mixture one
// behind the other.
//
// Matrices keep the type of the files, one for all of them, or are rounded while they are read, as
// a CPU rounds them: codes and scales in strips (device/rounded_strips.h). Vectors (norms, biases)
// become f32, exactly, and norms that files store as what differs from 1 have it added. A rank of
// several has its outputs of every matrix alone, and what is added to them before ranks gather
// (model/shard).
//
// Thread:     loaded by one thread; immutable afterwards.
// Memory:     every tensor once, in one piece on the device; while loading what weight_files and
//             cuda_upload need, and of rounded weights one tensor's codes twice on the host.
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
#include "device/cuda_device.h"
#include "device/weight_type.h"
#include "model/config.h"
#include "model/shard.h"
#include "model/weight_files.h"
#include "model/weight_rounding.h"
#include "model/weights.h"
#include "stemma/result.h"

namespace stemma {

// The second half of a layer that is a mixture; null where the layer is dense.
struct CudaMixtureWeights {
  const std::byte* router = nullptr;          // [experts, hidden]
  const float* correction = nullptr;          // [experts] where the choice is corrected
  const std::byte* gate_up = nullptr;         // [experts, 2, width, hidden]
  const std::byte* down = nullptr;            // [experts, hidden, width]
  const std::byte* shared_gate_up = nullptr;  // [2, shared_width, hidden]
  const std::byte* shared_down = nullptr;     // [hidden, shared_width]
};

// One layer: addresses of the device, aligned to 256 bytes. What the model does not have is null.
// Heads, outputs of matrices and widths of MLPs are those of the shard; q k and v, gate and up have
// biases of these, other biases are whole.
struct CudaLayerWeights {
  const float* attention_norm = nullptr;         // [hidden]
  const std::byte* qkv = nullptr;                // [(query_heads + 2 kv_heads) × head_dim, hidden]
  const float* qkv_bias = nullptr;               // [(query_heads + 2 kv_heads) × head_dim]
  const float* query_norm = nullptr;             // [head_dim]
  const float* key_norm = nullptr;               // [head_dim]
  const std::byte* output = nullptr;             // [hidden, value_columns]
  const float* output_bias = nullptr;            // [hidden]
  const float* attention_branch_norm = nullptr;  // [hidden]
  const float* mlp_norm = nullptr;               // [hidden]
  const std::byte* gate_up = nullptr;            // [2, intermediate, hidden]
  const float* gate_up_bias = nullptr;           // [2, intermediate]
  const std::byte* down = nullptr;               // [hidden, intermediate]
  const float* down_bias = nullptr;              // [hidden]
  const float* mlp_branch_norm = nullptr;        // [hidden]
  CudaLatentWeights latent;    // with latent attention, instead of what is of q and k
  CudaMixtureWeights mixture;  // instead of gate_up and down
};

struct CudaWeights {
  const std::byte* embeddings = nullptr;  // [vocab_tokens, hidden]
  std::vector<CudaLayerWeights> layers;
  const float* final_norm = nullptr;  // [hidden]
  // [vocab_tokens, hidden]; the embeddings where they are tied, of several ranks their part.
  const std::byte* head = nullptr;
  WeightType type = WeightType::kBf16;  // of the files, and of the rows that products read
  WeightRounding rounding = WeightRounding::kNone;
  RoundingReport rounding_report;
  Sha256Digest digest = {};  // of every byte of the files, as that of ModelWeights
  CudaMemory memory;         // where all of it lies
};

// kUnsupported, naming what of `config`, read from `config_path`, a GPU does not compute yet.
Status check_computable(const ModelConfig& config, std::string_view config_path);

// The formats of all matrices: "bf16", "int8+int4"; as ModelWeights names them.
std::string compute_format_of(const ModelConfig& config, const CudaWeights& weights);

// Reads all of `files`, what the shard holds of them to the device, and waits until everything is
// there. kNotFound and kInvalidArgument as check_tensors; kUnsupported for matrices of several
// types, for those that cannot be rounded and for tied embeddings of which a rank's part, rounded,
// does not begin with a strip. Memory belongs to `stream`. REQUIRES: check_computable and check_cut
// are ok; the device and `stream` outlive what it gives.
Result<CudaWeights> load_cuda_weights(const ModelConfig& config, WeightFiles& files,
                                      CudaDevice& device, CudaStream& stream, ThreadPool& threads,
                                      const WeightOptions& options = {});

}  // namespace stemma
