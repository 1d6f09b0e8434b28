// Adapter: low-rank changes of a model's matrices (LoRA, arXiv 2106.09685), loaded from a directory
// as PEFT writes it: adapter_config.json and adapter_model.safetensors.
//
// Where an adapter changes a matrix W [out, in] of a layer, it has A [rank, in] and B [out, rank]:
// the layer computes W x + scale · B (A x). What is not changed has neither.
//
// Every tensor of the file is used, and every matrix that the configuration names is there: an
// adapter of another model, or of matrices that this build leaves as they are (embeddings), is
// refused by the file and the tensor. Single experts and routers may all be missing, whatever is
// named: where the trainer's model had all experts in one tensor they were no linear layers, and
// their names are those of other matrices.
//
// A rank of several has A whole, and of B the outputs that it has of W (shard).
//
// Thread:     loaded by one thread; immutable afterwards.
// Memory:     its matrices, packed in their own type: A with its rank rounded up to a panel.
// Cost:       one read of the file, by every rank.
// Not here:   what it adds to a batch (adapter_pass), who asks for it (engine/).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest.h"
#include "base/file.h"
#include "base/thread_pool.h"
#include "device/packed_weights.h"
#include "model/config.h"
#include "model/shard.h"
#include "stemma/result.h"
#include "stemma/runner.h"

namespace stemma {

// A matrix of a layer that an adapter may change. Those of latent attention are named as in
// LatentWeights. Gate, up and down are an expert's, or those of all rows: of the layer's MLP or, in
// a mixture, of the shared experts.
enum class Projection : std::uint8_t {
  kGate,
  kUp,
  kDown,
  kQuery,
  kKey,
  kValue,
  kOutput,
  kRouter,
  kQueryDown,
  kQueryUp,
  kLatentDown,
  kLatentUp,  // of LatentChange
};
inline constexpr std::size_t kProjections = 11;       // without kLatentUp
inline constexpr std::size_t kExpertProjections = 3;  // gate, up and down, the first ones

// What an adapter has for one of them; empty where it leaves it as it is.
struct LowRank {
  float scale = 1;     // of their product
  PackedWeights down;  // A   [rank, in]
  PackedWeights up;    // B   [out, rank], of the outputs that are held here

  bool empty() const noexcept { return up.n() == 0; }
};

// What it has for the matrix W [heads × (plain_dim + value_dim), latent rank] that gives each head
// its keys and values back from a latent row. As latent attention never computes those keys, the
// change is absorbed as W is: queries get Aᵀ (B_Kᵀ q), values B_V (A c).
struct LatentChange {
  float scale = 1;                      // of the products of two
  PackedWeights latent_down;            // A                  [rank, latent rank]
  PackedWeights latent_up;              // Aᵀ                 [latent rank, rank]
  std::vector<PackedWeights> key_down;  // of each head B_Kᵀ  [rank, plain_dim], of those held here
  std::vector<PackedWeights> value_up;  // of each head B_V   [value_dim, rank]

  bool empty() const noexcept { return latent_up.n() == 0; }
};

struct Adapter {
  struct Layer {
    std::array<LowRank, kProjections> changes;
    LatentChange latent;
    // Of every expert of a mixture; empty where none of them is changed.
    std::vector<std::array<LowRank, kExpertProjections>> experts;
  };

  std::string name;  // what requests call it
  // Of the scales and of names, types, shapes and bytes of its tensors: equal for adapters that
  // compute the same from the same files, wherever they lie and in whatever order; on every rank.
  Sha256Digest digest = {};
  std::vector<Layer> layers;  // of the model

  const LowRank& at(std::int64_t layer, Projection projection) const {
    return layers[static_cast<std::size_t>(layer)].changes[static_cast<std::size_t>(projection)];
  }
  // nullptr where it leaves the layer's experts as they are. REQUIRES: gate, up or down.
  const LowRank* of_expert_or_null(std::int64_t layer, std::int64_t expert,
                                   Projection projection) const {
    const auto& experts = layers[static_cast<std::size_t>(layer)].experts;
    if (experts.empty()) return nullptr;
    return &experts[static_cast<std::size_t>(expert)][static_cast<std::size_t>(projection)];
  }
};

// A matrix of a model that adapters can change.
struct AdaptableMatrix {
  std::string path;  // "model.layers.3.self_attn.q_proj"
  std::int64_t layer = 0;
  std::optional<std::int64_t> expert = std::nullopt;  // whose it is, of one of a mixture's
  Projection projection = Projection::kQuery;
  std::int64_t outputs = 0;
  std::int64_t inputs = 0;
};

// All of them, in the order of the computation.
std::vector<AdaptableMatrix> adaptable_matrices(const ModelConfig& config);

// The names of A and B of the matrix `path` in an adapter's file.
std::string adapter_down_name(std::string_view path);
std::string adapter_up_name(std::string_view path);

inline constexpr std::string_view kAdapterConfigFile = "adapter_config.json";
inline constexpr std::string_view kAdapterWeightsFile = "adapter_model.safetensors";

// An adapter to be loaded.
struct AdapterSource {
  std::string name;       // what requests call it
  std::string directory;  // of its two files
};

// Keeps what `shard` holds. Errors are one line that names the file and the field or the tensor.
// REQUIRES: config_of_shard(config, shard) is ok.
Result<Adapter> load_adapter(Files& files, const AdapterSource& source, const ModelConfig& config,
                             ThreadPool& pool, const Shard& shard = {});

}  // namespace stemma
