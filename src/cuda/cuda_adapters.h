// CudaAdapters: the adapters that requests may name, in the memory of a GPU, and what they add to
// the products of a layer.
//
// Thread:     as the stream.                           Invariants: I13 (docs/INVARIANTS.md).
// Memory:     on the device every A and B in f32, whatever their files have, of several ranks what
//             each holds of B; and rank f32 a row and product.
// Cost:       put copies the adapter, and the table of all; add is two launches, which rows without
//             an adapter leave at once.
// Not here:   files (model/adapter), kernels (adapted_rows_cuda), which request has which adapter
//             (engine/).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "cuda/adapted_rows_cuda.h"
#include "cuda/cuda_upload.h"
#include "device/cuda_device.h"
#include "device/weight_type.h"
#include "model/adapter.h"
#include "model/adapter_pass.h"
#include "stemma/result.h"

namespace stemma {

struct CudaAdaptersParts {
  std::int64_t layers = 0;       // of the model
  std::int64_t experts = 0;      // of its mixtures; 0: it has none
  std::int64_t row_experts = 0;  // that a row goes to
  std::int64_t rows_max = 0;
  WeightType type = WeightType::kBf16;  // of the rows that products read
  CudaDevice& device;
  CudaStream& stream;
  ThreadPool& threads;
};

// Whose products adapters change.
struct AdaptedLayer {
  std::int64_t layer = 0;                      // of the model
  const std::int32_t* row_adapters = nullptr;  // on the device, [rows]; -1: none
};

// A product of the layer, and whose it is.
struct AdaptedProduct {
  Projection projection = Projection::kQuery;
  std::byte* y = nullptr;  // of its first row
  std::int64_t outputs = 0;
};

// Products of the same input.
struct AdaptedProducts {
  AdaptedLayer of;
  const std::byte* x = nullptr;  // [rows, inputs]
  std::int64_t inputs = 0;
  std::int64_t rows = 0;
  std::int64_t y_stride = 0;  // of their rows, in values
  bool f32_out = true;        // else of the rows' type
  // Of a mixture's experts: the visits that rows are, and where these lie.
  AdaptedVisits visits = {};
  const std::int32_t* x_rows = nullptr;
  const std::int32_t* y_rows = nullptr;
};

// A product of each head of latent attention: from its query to the latent row's columns, or from
// those to its value. Strides in values of the rows' type.
struct AdaptedHeads {
  AdaptedLayer of;
  LatentSide side = LatentSide::kKey;
  const std::byte* x = nullptr;  // of the first row and head
  std::byte* y = nullptr;
  std::int64_t heads = 0;
  std::int64_t inputs = 0;  // of a head
  std::int64_t outputs = 0;
  std::int64_t rows = 0;
  std::int64_t x_stride = 0;
  std::int64_t x_head_stride = 0;
  std::int64_t y_stride = 0;
  std::int64_t y_head_stride = 0;
};

class CudaAdapters {
 public:
  // There are none at first. Device, stream and threads must outlive it.
  explicit CudaAdapters(const CudaAdaptersParts& parts);

  // Rows may have this adapter from now on. Waits until it is on the device; `adapter` may be gone
  // then. kOutOfMemory: all is as before. What was recorded before must not run any more.
  // REQUIRES: there is none at `place`; it is the model's, of as many layers.
  Status put(AdapterId place, const Adapter& adapter);
  // Gives its memory back, behind what is queued. REQUIRES: no row has it any more.
  void drop(AdapterId place);

  // Queues what adapters add to `products`, at most three of them, or two of visits. May be
  // recorded. REQUIRES: rows.rows <= rows_max, of visits row_experts times that; each of
  // row_adapters is -1 or one of the adapters.
  Status add(const AdaptedProducts& rows, std::span<const AdaptedProduct> products);
  // The same of heads. REQUIRES: they are the model's.
  Status add_of_heads(const AdaptedHeads& heads);

 private:
  // What can be changed of a layer: its projections, and keys and values of latent attention;
  // behind them, and so at as many places more, the gates of all experts, their ups and downs.
  static constexpr std::size_t kPlaces = kProjections + 2;
  // Of one layer: the changes of all adapters, on the device; nullptr where none changes it, of
  // experts where none changes any.
  using LayerChanges = std::array<const DeviceLowRank*, kPlaces + kExpertProjections>;

  // What an adapter has for one of them: A and B of each head, or one for all; or nothing.
  struct Change {
    std::span<const PackedWeights> down;
    std::span<const PackedWeights> up;
    float scale = 1;
  };
  static constexpr std::size_t place_of(LatentSide side) {
    return kProjections + static_cast<std::size_t>(side);
  }
  std::size_t experts() const { return static_cast<std::size_t>(parts_.experts); }
  std::size_t places() const { return kPlaces + kExpertProjections * experts(); }
  Change change_of(const Adapter::Layer& layer, std::size_t place) const;

  // One adapter on the device; of no changes: there is none.
  struct Held {
    CudaMemory matrices;
    std::vector<DeviceLowRank> changes;  // [layers, places]; of rank 0: it leaves that as it is
    std::int64_t rank_max = 0;
    std::size_t products = kAdaptedMatricesMax;  // of one row at once
  };
  Result<Held> upload(const Adapter& adapter, CudaUpload& upload);
  Status upload_matrix(const PackedWeights& matrix, float* to, CudaUpload& upload) const;
  Status write_table(CudaUpload& upload);
  void point_into(const DeviceLowRank* table, const std::vector<bool>& is_changed);

  CudaAdaptersParts parts_;
  std::vector<Held> held_;  // by AdapterId
  std::int64_t rank_max_ = 0;
  std::vector<LayerChanges> layers_;
  CudaMemory changes_;  // DeviceLowRank  [layers, places, table_adapters]
  std::int64_t table_adapters_ = 0;
  CudaMemory inner_;  // f32            [rows_max, products of one row, rank_max]
};

}  // namespace stemma
