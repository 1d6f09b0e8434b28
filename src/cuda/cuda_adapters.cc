#include "cuda/cuda_adapters.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/math.h"

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

std::int64_t head_stride(std::span<const PackedWeights> matrices) {
  return matrices.size() < 2 ? 0 : static_cast<std::int64_t>(padded_floats(matrices.front()));
}

}  // namespace

CudaAdapters::CudaAdapters(const CudaAdaptersParts& parts)
    : parts_(parts), layers_(static_cast<std::size_t>(parts.layers)) {}

Status CudaAdapters::put(AdapterId place, const Adapter& adapter) {
  STEMMA_CHECK_EQ(adapter.layers.size(), layers_.size());
  STEMMA_ASSIGN_OR_RETURN(CudaUpload to_device,
                          CudaUpload::open(parts_.device, parts_.stream, parts_.threads));
  STEMMA_ASSIGN_OR_RETURN(Held held, upload(adapter, to_device));
  held_.resize(std::max(held_.size(), place.index() + 1));
  held_[place.index()] = std::move(held);
  Status written = write_table(to_device);
  if (written.ok()) written = parts_.stream.synchronize();
  if (!written.ok()) drop(place);
  return written;
}

// The table still has its changes, which no row reads.
void CudaAdapters::drop(AdapterId place) {
  held_[place.index()] = {};
}

CudaAdapters::Change CudaAdapters::change_of(const Adapter::Layer& layer, std::size_t place) const {
  const auto plain = [](const LowRank& change) -> Change {
    if (change.empty()) return {};
    return {{&change.down, 1}, {&change.up, 1}, change.scale};
  };
  if (place >= kPlaces) {
    const std::size_t of_experts = place - kPlaces;
    if (layer.experts.empty()) return {};
    return plain(layer.experts[of_experts % experts()][of_experts / experts()]);
  }
  const LatentChange& latent = layer.latent;
  if (place >= kProjections) {
    if (latent.empty()) return {};
    const bool keys = place == place_of(LatentSide::kKey);
    return keys ? Change{latent.key_down, {&latent.latent_up, 1}, latent.scale}
                : Change{{&latent.latent_down, 1}, latent.value_up, latent.scale};
  }
  return plain(layer.changes[place]);
}

Result<CudaAdapters::Held> CudaAdapters::upload(const Adapter& adapter, CudaUpload& upload) {
  Held held;
  std::vector<Change> changes;
  std::size_t floats = 0;
  for (const Adapter::Layer& layer : adapter.layers) {
    for (std::size_t place = 0; place < places(); ++place) {
      const Change& change = changes.emplace_back(change_of(layer, place));
      if (change.down.empty()) continue;
      floats += padded_floats(change.down) + padded_floats(change.up);
      held.rank_max = std::max(held.rank_max, change.down.front().n());
      // Of its experts at once the gate and the up.
      const std::size_t visits =
          place < kPlaces ? 1 : 2 * static_cast<std::size_t>(parts_.row_experts);
      held.products = std::max({held.products, visits, change.down.size(), change.up.size()});
    }
  }
  STEMMA_ASSIGN_OR_RETURN(held.matrices,
                          parts_.device.allocate(floats * sizeof(float), parts_.stream));
  float* next = held.matrices.as<float>();
  Status copied;
  const auto place_all = [&](std::span<const PackedWeights> matrices) {
    float* const first = next;
    for (const PackedWeights& matrix : matrices) {
      float* const to = std::exchange(next, next + padded_floats(matrix));
      if (copied.ok()) copied = upload_matrix(matrix, to, upload);
    }
    return first;
  };
  for (const Change& change : changes) {
    DeviceLowRank& there = held.changes.emplace_back();
    if (change.down.empty()) continue;
    there = {.down = place_all(change.down),
             .up = place_all(change.up),
             .rank = static_cast<std::int32_t>(change.down.front().n()),
             .scale = change.scale,
             .down_head_stride = head_stride(change.down),
             .up_head_stride = head_stride(change.up)};
  }
  STEMMA_RETURN_IF_ERROR(copied);
  return held;
}

// Of all that are held. What is there now stays until all of it is on its way.
Status CudaAdapters::write_table(CudaUpload& upload) {
  std::vector<bool> is_changed(layers_.size() * places());
  std::vector<DeviceLowRank> changes(is_changed.size() * held_.size());
  std::size_t products = 0;
  std::int64_t rank_max = 0;
  for (std::size_t adapter = 0; adapter < held_.size(); ++adapter) {
    const Held& held = held_[adapter];
    rank_max = std::max(rank_max, held.rank_max);
    products = std::max(products, held.products);
    for (std::size_t place = 0; place < held.changes.size(); ++place) {
      changes[place * held_.size() + adapter] = held.changes[place];
      if (held.changes[place].rank > 0) is_changed[place] = true;
    }
  }
  const auto inner_floats = static_cast<std::size_t>(parts_.rows_max * rank_max) * products;
  STEMMA_ASSIGN_OR_RETURN(CudaMemory inner,
                          parts_.device.allocate(inner_floats * sizeof(float), parts_.stream));
  STEMMA_ASSIGN_OR_RETURN(
      CudaMemory table,
      parts_.device.allocate(changes.size() * sizeof(DeviceLowRank), parts_.stream));
  STEMMA_RETURN_IF_ERROR(upload.write(table.bytes(), std::as_bytes(std::span(changes))));
  table_adapters_ = std::ssize(held_);
  point_into(table.as<const DeviceLowRank>(), is_changed);
  rank_max_ = rank_max;
  changes_ = std::move(table);
  inner_ = std::move(inner);
  return {};
}

void CudaAdapters::point_into(const DeviceLowRank* table, const std::vector<bool>& is_changed) {
  const auto adapters = static_cast<std::size_t>(table_adapters_);
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    // The changes of `count` places from `place` of the layer on.
    const auto changes_of = [&](std::size_t place, std::size_t count) {
      const std::size_t first = layer * places() + place;
      const auto begin = is_changed.begin() + static_cast<std::ptrdiff_t>(first);
      const auto end = begin + static_cast<std::ptrdiff_t>(count);
      return std::find(begin, end, true) == end ? nullptr : table + first * adapters;
    };
    LayerChanges& own = layers_[layer];
    for (std::size_t place = 0; place < kPlaces; ++place) own[place] = changes_of(place, 1);
    for (std::size_t i = 0; i < kExpertProjections; ++i) {
      own[kPlaces + i] = changes_of(kPlaces + i * experts(), experts());
    }
  }
}

Status CudaAdapters::upload_matrix(const PackedWeights& matrix, float* to,
                                   CudaUpload& upload) const {
  const auto columns = static_cast<std::size_t>(matrix.k());
  std::vector<float> rows(static_cast<std::size_t>(matrix.n()) * columns);
  constexpr std::int64_t kTaskRows = 64;
  parts_.threads.run(ceil_div(matrix.n(), kTaskRows), [&](std::int64_t task, int) {
    const std::int64_t end = std::min((task + 1) * kTaskRows, matrix.n());
    for (std::int64_t row = task * kTaskRows; row < end; ++row) {
      const auto first = static_cast<std::size_t>(row) * columns;
      matrix.unpack_row(row, std::span(rows).subspan(first, columns));
    }
  });
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
                    .type = parts_.type,
                    .f32_out = rows.f32_out,
                    .visits = rows.visits,
                    .adapters_count = table_adapters_,
                    .x_rows = rows.x_rows,
                    .y_rows = rows.y_rows};
  const LayerChanges& layer = layers_[static_cast<std::size_t>(rows.of.layer)];
  const std::size_t first = rows.visits.rows == nullptr ? 0 : kPlaces;
  for (const AdaptedProduct& product : products) {
    const DeviceLowRank* const changes =
        layer[first + static_cast<std::size_t>(product.projection)];
    if (changes == nullptr) continue;
    call.matrices[call.matrices_count++] = {changes, product.y, product.outputs};
  }
  return call.matrices_count == 0 ? Status() : adapt_rows(parts_.stream, call);
}

Status CudaAdapters::add_of_heads(const AdaptedHeads& heads) {
  const LayerChanges& layer = layers_[static_cast<std::size_t>(heads.of.layer)];
  const DeviceLowRank* const changes = layer[place_of(heads.side)];
  if (changes == nullptr) return {};
  return adapt_rows(parts_.stream, {.adapters = heads.of.row_adapters,
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
                                    .type = parts_.type,
                                    .f32_out = false});
}

}  // namespace stemma
