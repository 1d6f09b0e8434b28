#include "cuda/cuda_adapters.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace stemma {
namespace {

// Rows are read in accesses of 16 bytes.
std::size_t padded_floats(const PackedWeights& matrix) {
  constexpr std::size_t kAnAccess = 4;
  const auto floats = static_cast<std::size_t>(matrix.n() * matrix.k());
  return (floats + kAnAccess - 1) / kAnAccess * kAnAccess;
}

std::size_t padded_floats(std::span<const PackedWeights> matrices) {
  std::size_t floats = 0;
  for (const PackedWeights& matrix : matrices) floats += padded_floats(matrix);
  return floats;
}

}  // namespace

Result<std::unique_ptr<CudaAdapters>> CudaAdapters::create(const CudaAdaptersParts& parts) {
  STEMMA_CHECK(!parts.adapters.empty(), "without adapters there is nothing to add");
  auto adapters = std::make_unique<CudaAdapters>(Key(), parts.stream, parts.type);
  STEMMA_RETURN_IF_ERROR(adapters->take_memory(parts));
  STEMMA_RETURN_IF_ERROR(adapters->upload(parts));
  return adapters;
}

CudaAdapters::Change CudaAdapters::change_of(const Adapter::Layer& layer, std::size_t place) {
  const LatentChange& latent = layer.latent;
  if (place >= kProjections) {
    if (latent.empty()) return {};
    const bool keys = place == place_of(LatentSide::kKey);
    return keys ? Change{latent.key_down, {&latent.latent_up, 1}, latent.scale}
                : Change{{&latent.latent_down, 1}, latent.value_up, latent.scale};
  }
  const LowRank& change = layer.changes[place];
  if (change.empty()) return {};
  return {{&change.down, 1}, {&change.up, 1}, change.scale};
}

template <typename Visit>
void CudaAdapters::for_each_change(std::span<const Adapter> adapters, const Visit& visit) {
  const std::size_t layers = adapters.front().layers.size();
  for (std::size_t layer = 0; layer < layers; ++layer) {
    for (std::size_t place = 0; place < kPlaces; ++place) {
      for (std::size_t adapter = 0; adapter < adapters.size(); ++adapter) {
        visit(layer, place, adapter, change_of(adapters[adapter].layers[layer], place));
      }
    }
  }
}

Status CudaAdapters::take_memory(const CudaAdaptersParts& parts) {
  std::size_t floats = 0;
  std::size_t changes = 0;
  std::size_t products = kAdaptedMatricesMax;  // of one input
  for_each_change(parts.adapters, [&](std::size_t, std::size_t, std::size_t, const Change& change) {
    ++changes;
    if (change.down.empty()) return;
    floats += padded_floats(change.down) + padded_floats(change.up);
    rank_max_ = std::max(rank_max_, change.down.front().n());
    products = std::max({products, change.down.size(), change.up.size()});
  });
  const auto take = [&](CudaMemory& memory, std::size_t bytes) -> Status {
    STEMMA_ASSIGN_OR_RETURN(memory, parts.device.allocate(bytes, stream_));
    return {};
  };
  STEMMA_RETURN_IF_ERROR(take(matrices_, floats * sizeof(float)));
  STEMMA_RETURN_IF_ERROR(take(changes_, changes * sizeof(DeviceLowRank)));
  const auto inner = static_cast<std::size_t>(parts.rows_max * rank_max_) * products;
  return take(inner_, inner * sizeof(float));
}

Status CudaAdapters::upload(const CudaAdaptersParts& parts) {
  STEMMA_ASSIGN_OR_RETURN(CudaUpload upload,
                          CudaUpload::open(parts.device, stream_, parts.threads));
  std::vector<DeviceLowRank> changes;
  layers_.resize(parts.adapters.front().layers.size());
  float* next = matrices_.as<float>();
  Status copied;
  const auto place_all = [&](std::span<const PackedWeights> matrices) {
    float* const first = next;
    for (const PackedWeights& matrix : matrices) {
      float* const to = std::exchange(next, next + padded_floats(matrix));
      if (copied.ok()) copied = upload_matrix(matrix, to, upload);
    }
    return first;
  };
  const auto head_stride = [](std::span<const PackedWeights> matrices) {
    return matrices.size() < 2 ? 0 : static_cast<std::int64_t>(padded_floats(matrices.front()));
  };
  for_each_change(parts.adapters, [&](std::size_t layer, std::size_t place, std::size_t adapter,
                                      const Change& change) {
    DeviceLowRank there;
    if (!change.down.empty()) {
      const std::size_t first = changes.size() - adapter;
      layers_[layer][place] = changes_.as<const DeviceLowRank>() + first;
      there = {.down = place_all(change.down),
               .up = place_all(change.up),
               .rank = static_cast<std::int32_t>(change.down.front().n()),
               .scale = change.scale,
               .down_head_stride = head_stride(change.down),
               .up_head_stride = head_stride(change.up)};
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
  AdaptRows call = {.adapters = rows.of.row_adapters,
                    .x = rows.x,
                    .inner = inner_.as<float>(),
                    .rows = rows.rows,
                    .inputs = rows.inputs,
                    .rank_max = rank_max_,
                    .x_stride = rows.inputs,
                    .y_stride = rows.y_stride,
                    .type = type_,
                    .f32_out = rows.f32_out};
  const LayerChanges& layer = layers_[static_cast<std::size_t>(rows.of.layer)];
  for (const AdaptedProduct& product : products) {
    const DeviceLowRank* const changes = layer[static_cast<std::size_t>(product.projection)];
    if (changes == nullptr) continue;
    call.matrices[call.matrices_count++] = {changes, product.y, product.outputs};
  }
  return call.matrices_count == 0 ? Status() : adapt_rows(stream_, call);
}

Status CudaAdapters::add_of_heads(const AdaptedHeads& heads) {
  const LayerChanges& layer = layers_[static_cast<std::size_t>(heads.of.layer)];
  const DeviceLowRank* const changes = layer[place_of(heads.side)];
  if (changes == nullptr) return {};
  return adapt_rows(stream_, {.adapters = heads.of.row_adapters,
                              .x = heads.x,
                              .matrices = {{changes, heads.y, heads.outputs}},
                              .matrices_count = 1,
                              .inner = inner_.as<float>(),
                              .rows = heads.rows,
                              .heads = heads.heads,
                              .inputs = heads.inputs,
                              .rank_max = rank_max_,
                              .x_stride = heads.x_stride,
                              .x_head_stride = heads.x_head_stride,
                              .y_stride = heads.y_stride,
                              .y_head_stride = heads.y_head_stride,
                              .type = type_,
                              .f32_out = false});
}

}  // namespace stemma
