// Mixture: the second half of a layer where each token goes to a few experts of many, and to the
// shared experts if there are any.
//
// Experts are computed in ascending order, each for all of its rows at once; a row starts from what
// the shared experts say and adds its experts' words in that order. Products give a row the same
// bits among any others, so a row's result depends on that row alone (I13).
//
// Thread:     one batch at a time; the work is spread over the ThreadPool.
// Memory:     scratch for the largest batch, at construction; compute does not allocate.
// Cost:       that of the experts that the batch's rows go to: each is read once.
// Not here:   the choice of experts (expert_choice), loading (weights).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "device/buffer.h"
#include "model/activation_rows.h"
#include "model/expert_choice.h"
#include "model/gated_mlp.h"
#include "model/mixture_config.h"
#include "stemma/result.h"

namespace stemma {

// Of one layer. `experts` is empty where a layer is dense.
struct MixtureWeights {
  PackedWeights router;           // [experts, hidden]
  std::vector<float> correction;  // [experts] where the choice is corrected, else empty
  std::vector<MlpWeights> experts;
  MlpWeights shared;  // empty without shared experts
};

struct MixtureParts {
  const MixtureConfig& config;  // must outlive the Mixture
  std::int64_t hidden = 0;
  std::int64_t rows_max = 0;
  ThreadPool& threads;
  RankRows* peers = nullptr;  // with which the experts' matrices are shared out; nullptr: none
};

class Mixture {
  struct Key {};

 public:
  // kOutOfMemory if the scratch cannot be had. REQUIRES: the model has mixtures.
  static Result<std::unique_ptr<Mixture>> create(const MixtureParts& parts);
  Mixture(Key, const MixtureParts& parts);  // for create

  // What the layer says to each of `rows` rows of `in`, valid until the next call. `scratch` is
  // wide enough for an expert and for the shared ones together.   [rows, hidden]
  // REQUIRES: where there are adapters, rows are all of their batch.
  const Rows& compute(const MixtureWeights& weights, const Rows& in, std::int64_t rows,
                      const MlpScratch& scratch, const LayerAdapters& adapters = {});

 private:
  // The rows that go to one expert, ascending, and what its words weigh there.
  struct Visits {
    std::span<const std::int32_t> rows;
    std::span<const float> weights;
  };

  Status allocate_scratch();
  void choose(const MixtureWeights& weights, const Rows& in, std::int64_t rows,
              const LayerAdapters& adapters);
  void sort_by_expert(std::int64_t rows);
  Visits visits_of(std::size_t expert) const;
  void add_expert(const MlpWeights& expert, const Visits& visits, const Rows& in,
                  const MlpScratch& scratch, const LayerAdapters& adapters);

  const MixtureConfig& config_;
  std::int64_t hidden_;
  std::int64_t rows_max_;
  ThreadPool& threads_;
  RankRows* peers_;

  Buffer scratch_;
  Rows scores_;      // [rows_max, experts]
  Rows keys_;        // [rows_max, experts]
  Rows group_keys_;  // [rows_max, groups]
  Rows gathered_;    // what an expert reads, then what it says    [rows_max, hidden]
  Rows sum_;         // [rows_max, hidden]
  std::vector<std::int32_t> ranked_;       // [rows_max, experts]
  std::vector<ExpertShare> shares_;        // [rows_max, experts_per_token]
  std::vector<std::int32_t> visit_rows_;   // of expert 0, of expert 1, ...
  std::vector<float> visit_weights_;       // the same
  std::vector<std::int64_t> first_visit_;  // [experts + 1]
};

}  // namespace stemma
