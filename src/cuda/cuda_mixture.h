// CudaMixture: the second half of a layer where each row goes to a few experts of many, queued on a
// stream of a GPU: scores, choice, visits sorted by expert, one product for the gates of all
// experts, one for what they say, and the sum of a row's experts, in ascending order, on top of
// what the shared experts say. The host learns nothing of the choice, so that all of it can be
// recorded.
//
// What a row is given depends on that row alone (I13), beside the vendor's products too: a choice
// jumps where two scores meet, so that even scores that differ in their last bit could send a row
// elsewhere when its batch changes. Scores are therefore always sums in one order
// (ordered_gemm_slices), and products over experts have no other kind (experts_cuda). What the
// vendor's products did to the row before is still in it.
//
// Of several ranks each has its outputs of every expert's matrices; they all choose alike, gather
// what is between the two products, and then the sums (docs/decisions/0012).
//
// Thread:     as the stream.                           Invariants: I13 (docs/INVARIANTS.md).
// Memory:     on the device, at creation, for the largest batch: of each visit (row × expert of
//             that row) the gates, what is between, and hidden f32 of what the expert says.
// Cost:       of few rows the time to read the matrices of the experts that any of them goes to,
//             and seven launches, two more of each product that an adapter changes; of many the
//             products: row_experts × 6 × hidden × width a row.
// Not here:   the shared experts' product and the norm before (cuda_transformer), kernels
//             (expert_choice_cuda, experts_cuda, rows_cuda).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "cuda/cuda_adapters.h"
#include "cuda/cuda_rank_rows.h"
#include "cuda/cuda_weights.h"
#include "cuda/expert_choice_cuda.h"
#include "device/cuda_device.h"
#include "device/weight_type.h"
#include "model/mixture_config.h"
#include "stemma/result.h"

namespace stemma {

// All of it must outlive the CudaMixture.
struct CudaMixtureParts {
  const MixtureConfig& config;
  std::int64_t hidden = 0;
  std::int64_t rows_max = 0;
  WeightType type = WeightType::kBf16;  // of the rows that products read
  CudaDevice& device;
  CudaStream& stream;
  CudaRankRows* peers = nullptr;  // of the ranks that compute it together; nullptr: this one alone
  CudaAdapters* adapters = nullptr;  // that rows may have, of the shard; nullptr: none
};

struct MixtureRows {
  const std::byte* in = nullptr;  // of the type of rows           [rows, hidden]
  float* out = nullptr;           //                               [rows, hidden]
  std::int64_t rows = 0;
  bool from_zero = false;  // else what experts say is added to what is in `out`
  AdaptedLayer adapted = {};
};

class CudaMixture {
  struct Key {};

 public:
  // kOutOfMemory if the scratch cannot be had. REQUIRES: the model has mixtures that
  // check_computable lets pass.
  static Result<std::unique_ptr<CudaMixture>> create(const CudaMixtureParts& parts);
  CudaMixture(Key, const CudaMixtureParts& parts);  // for create

  // Queues what the layer's experts say to each of rows.rows rows. May be recorded.
  // REQUIRES: at most rows_max rows.
  Status add(const CudaMixtureWeights& weights, const MixtureRows& rows);

 private:
  // How visits of one batch are cut.
  struct Tiles {
    std::int64_t visits = 0;
    std::int64_t tile_visits = 0;
    std::int64_t count = 0;
  };

  Status allocate();
  Tiles tiles_of(std::int64_t rows) const;
  std::int64_t slices() const;
  Status choose(const CudaMixtureWeights& weights, const MixtureRows& rows, const Tiles& tiles);
  Status compute(const CudaMixtureWeights& weights, const MixtureRows& rows, const Tiles& tiles);
  Status gate(const Tiles& tiles);
  Status adapt_scores(const MixtureRows& rows);
  Status adapt_gates(const MixtureRows& rows, const Tiles& tiles);
  Status adapt_words(const MixtureRows& rows, const Tiles& tiles);
  AdaptedVisits visits() const;
  Status sum(const MixtureRows& rows);

  const MixtureConfig& config_;
  std::int64_t hidden_;
  std::int64_t rows_max_;
  WeightType type_;
  CudaDevice& device_;
  CudaStream& stream_;
  CudaRankRows* peers_;
  CudaAdapters* adapters_;
  std::int64_t own_width_;   // outputs of gate and of up that are this rank's
  std::int64_t own_hidden_;  // and of down

  CudaMemory scores_;       // f32                           [slices, rows_max, experts]
  CudaMemory chosen_;       // i32, ascending                [visits_max]
  CudaMemory weights_;      // f32                           [visits_max]
  CudaMemory sorted_;       // i32: visits, by expert        [visits_max]
  CudaMemory sorted_rows_;  // i32: their rows               [visits_max]
  CudaMemory tiles_;        // ExpertTile                    [most tiles of any batch]
  CudaMemory gate_up_;      // of sorted visits              [visits_max, 2, own_width]
  CudaMemory gated_;        // of sorted visits              [visits_max, width]
  CudaMemory said_;         // f32, of visits                [visits_max, own_hidden]
};

}  // namespace stemma
