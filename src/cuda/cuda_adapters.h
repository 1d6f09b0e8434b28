// CudaAdapters: the adapters that requests may name, in the memory of a GPU, and what they add to
// the products of a layer.
//
// Thread:     as the stream.                           Invariants: I13 (docs/INVARIANTS.md).
// Memory:     on the device every A and B in f32, whatever their files have, and rank f32 a row.
// Cost:       creation copies every adapter once; add two launches, which rows without an adapter
//             leave at once.
// Not here:   files (model/adapter), kernels (adapted_rows_cuda), which request has which adapter
//             (engine/).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "cuda/adapted_rows_cuda.h"
#include "cuda/cuda_upload.h"
#include "device/cuda_device.h"
#include "device/weight_type.h"
#include "model/adapter.h"
#include "stemma/result.h"

namespace stemma {

struct CudaAdaptersParts {
  std::span<const Adapter> adapters;  // at least one; by AdapterId
  std::int64_t rows_max = 0;
  WeightType type = WeightType::kBf16;  // of the rows that products read
  CudaDevice& device;
  CudaStream& stream;
  ThreadPool& threads;
};

// A product of the layer, and whose it is.
struct AdaptedProduct {
  Projection projection = Projection::kQuery;
  std::byte* y = nullptr;  // of its first row
  std::int64_t outputs = 0;
};

// Products of the same input.
struct AdaptedProducts {
  std::int64_t layer = 0;
  const std::byte* x = nullptr;  // [rows, inputs]
  std::int64_t inputs = 0;
  std::int64_t rows = 0;
  std::int64_t y_stride = 0;                   // of their rows, in values
  bool f32_out = true;                         // else of the rows' type
  const std::int32_t* row_adapters = nullptr;  // on the device, [rows]; -1: none
};

class CudaAdapters {
  struct Key {};

 public:
  // Waits until everything is on the device; the adapters may be gone then. kOutOfMemory, and
  // kUnsupported for a change of latent attention. Device and stream must outlive it.
  static Result<std::unique_ptr<CudaAdapters>> create(const CudaAdaptersParts& parts);
  explicit CudaAdapters(Key, CudaStream& stream, WeightType type) : stream_(stream), type_(type) {}

  // Queues what adapters add to `products`, at most three of them. May be recorded.
  // REQUIRES: rows.rows <= rows_max; each of row_adapters is -1 or one of the adapters.
  Status add(const AdaptedProducts& rows, std::span<const AdaptedProduct> products);

 private:
  // Of one layer: the changes of all adapters, on the device; nullptr where none changes it.
  using LayerChanges = std::array<const DeviceLowRank*, kProjections>;

  Status take_memory(const CudaAdaptersParts& parts);
  Status upload(const CudaAdaptersParts& parts);
  static Status upload_matrix(const PackedWeights& matrix, float* to, CudaUpload& upload);

  CudaStream& stream_;
  WeightType type_;
  std::int64_t rank_max_ = 0;
  std::vector<LayerChanges> layers_;
  CudaMemory matrices_;
  CudaMemory changes_;  // DeviceLowRank  [layers, kProjections, adapters]
  CudaMemory inner_;    // f32            [rows_max, kAdaptedMatricesMax, rank_max]
};

}  // namespace stemma
