#include "cuda/cuda_adapters.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace stemma {
namespace {

// Calls visit(layer, projection, adapter, change) for every change of every adapter, in the order
// in which they lie on the device.
template <typename Visit>
void for_each_change(std::span<const Adapter> adapters, const Visit& visit) {
  const std::size_t layers = adapters.front().layers.size();
  for (std::size_t layer = 0; layer < layers; ++layer) {
    for (std::size_t projection = 0; projection < kProjections; ++projection) {
      for (std::size_t adapter = 0; adapter < adapters.size(); ++adapter) {
        visit(layer, projection, adapter, adapters[adapter].layers[layer].changes[projection]);
      }
    }
  }
}

// Rows are read in accesses of 16 bytes.
std::size_t padded_floats(const PackedWeights& matrix) {
  constexpr std::size_t kAnAccess = 4;
  const auto floats = static_cast<std::size_t>(matrix.n() * matrix.k());
  return (floats + kAnAccess - 1) / kAnAccess * kAnAccess;
}

Status check_changes(std::span<const Adapter> adapters) {
  for (const Adapter& adapter : adapters) {
    for (const Adapter::Layer& layer : adapter.layers) {
      if (layer.latent.empty()) continue;
      return Error{ErrorCode::kUnsupported, "--adapter " + adapter.name +
                                                ": changes of latent attention are not for a GPU "
                                                "yet"};
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<CudaAdapters>> CudaAdapters::create(const CudaAdaptersParts& parts) {
  STEMMA_CHECK(!parts.adapters.empty(), "without adapters there is nothing to add");
  STEMMA_RETURN_IF_ERROR(check_changes(parts.adapters));
  auto adapters = std::make_unique<CudaAdapters>(Key(), parts.stream, parts.type);
  STEMMA_RETURN_IF_ERROR(adapters->take_memory(parts));
  STEMMA_RETURN_IF_ERROR(adapters->upload(parts));
  return adapters;
}

Status CudaAdapters::take_memory(const CudaAdaptersParts& parts) {
  std::size_t floats = 0;
  std::size_t changes = 0;
  for_each_change(parts.adapters,
                  [&](std::size_t, std::size_t, std::size_t, const LowRank& change) {
                    ++changes;
                    if (change.empty()) return;
                    floats += padded_floats(change.down) + padded_floats(change.up);
                    rank_max_ = std::max(rank_max_, change.down.n());
                  });
  const auto take = [&](CudaMemory& memory, std::size_t bytes) -> Status {
    STEMMA_ASSIGN_OR_RETURN(memory, parts.device.allocate(bytes, stream_));
    return {};
  };
  STEMMA_RETURN_IF_ERROR(take(matrices_, floats * sizeof(float)));
  STEMMA_RETURN_IF_ERROR(take(changes_, changes * sizeof(DeviceLowRank)));
  const std::int64_t inner = parts.rows_max * kAdaptedMatricesMax * rank_max_;
  return take(inner_, static_cast<std::size_t>(inner) * sizeof(float));
}

Status CudaAdapters::upload(const CudaAdaptersParts& parts) {
  STEMMA_ASSIGN_OR_RETURN(CudaUpload upload,
                          CudaUpload::open(parts.device, stream_, parts.threads));
  std::vector<DeviceLowRank> changes;
  layers_.resize(parts.adapters.front().layers.size());
  float* next = matrices_.as<float>();
  Status copied;
  const auto place = [&](const PackedWeights& matrix) {
    float* const to = std::exchange(next, next + padded_floats(matrix));
    if (copied.ok()) copied = upload_matrix(matrix, to, upload);
    return to;
  };
  for_each_change(parts.adapters, [&](std::size_t layer, std::size_t projection,
                                      std::size_t adapter, const LowRank& change) {
    DeviceLowRank there;
    if (!change.empty()) {
      const std::size_t first = changes.size() - adapter;
      layers_[layer][projection] = changes_.as<const DeviceLowRank>() + first;
      there.down = place(change.down);
      there.up = place(change.up);
      there.rank = static_cast<std::int32_t>(change.down.n());
      there.scale = parts.adapters[adapter].scale;
    }
    changes.push_back(there);
  });
  STEMMA_RETURN_IF_ERROR(copied);
  STEMMA_RETURN_IF_ERROR(upload.write(changes_.bytes(), std::as_bytes(std::span(changes))));
  return stream_.synchronize();
}

Status CudaAdapters::upload_matrix(const PackedWeights& matrix, float* to, CudaUpload& upload) {
  const auto columns = static_cast<std::size_t>(matrix.k());
  std::vector<float> rows(static_cast<std::size_t>(matrix.n()) * columns);
  for (std::int64_t row = 0; row < matrix.n(); ++row) {
    matrix.unpack_row(row,
                      std::span(rows).subspan(static_cast<std::size_t>(row) * columns, columns));
  }
  return upload.write(to, std::as_bytes(std::span(rows)));
}

Status CudaAdapters::add(const AdaptedProducts& rows, std::span<const AdaptedProduct> products) {
  AdaptRows call = {.adapters = rows.row_adapters,
                    .x = rows.x,
                    .inner = inner_.as<float>(),
                    .rows = rows.rows,
                    .inputs = rows.inputs,
                    .rank_max = rank_max_,
                    .y_stride = rows.y_stride,
                    .type = type_,
                    .f32_out = rows.f32_out};
  const LayerChanges& layer = layers_[static_cast<std::size_t>(rows.layer)];
  for (const AdaptedProduct& product : products) {
    const DeviceLowRank* const changes = layer[static_cast<std::size_t>(product.projection)];
    if (changes == nullptr) continue;
    call.matrices[call.matrices_count++] = {changes, product.y, product.outputs};
  }
  return call.matrices_count == 0 ? Status() : adapt_rows(stream_, call);
}

}  // namespace stemma
