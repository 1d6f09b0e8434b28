#include "pool/double_sparse_pool.h"

#include <utility>

namespace stemma {

Result<std::unique_ptr<DoubleSparsePool>> DoubleSparsePool::create(const KvShape& shape,
                                                                   KvLayout layout,
                                                                   HeavyChannels channels,
                                                                   ThreadPool& threads) {
  STEMMA_ASSIGN_OR_RETURN(Buffer buffer, take_memory(shape, KvKind::kDoubleSparse, threads));
  STEMMA_RETURN_IF_ERROR(validate_heavy_channels(channels, shape));
  return std::unique_ptr<DoubleSparsePool>(
      new DoubleSparsePool(shape, layout, std::move(channels), std::move(buffer)));
}

DoubleSparsePool::DoubleSparsePool(const KvShape& shape, KvLayout layout, HeavyChannels channels,
                                   Buffer buffer)
    : RowPool(shape, layout, std::move(buffer)), channels_(std::move(channels)) {}

Status DoubleSparsePool::store(std::int64_t layer, std::span<const std::int64_t> slots,
                               const KvRows& k, const KvRows& v) {
  STEMMA_RETURN_IF_ERROR(RowPool::store(layer, slots, k, v));
  store_labels(layer, slots);
  return {};
}

Status DoubleSparsePool::store(std::int64_t layer, std::span<const std::int32_t> slots,
                               const KvRows& k, const KvRows& v) {
  STEMMA_RETURN_IF_ERROR(RowPool::store(layer, slots, k, v));
  store_labels(layer, slots);
  return {};
}

template <typename Slot>
void DoubleSparsePool::store_labels(std::int64_t layer, std::span<const Slot> slots) {
  for (const Slot slot : slots) {
    if (shape().dtype == DType::kF32) {
      gather_label<float>(layer, slot);
    } else {
      gather_label<std::uint16_t>(layer, slot);  // f16 and bf16 alike: elements are moved
    }
  }
}

// From K as it was stored: what is read back later is what was labelled.
template <typename Element>
void DoubleSparsePool::gather_label(std::int64_t layer, std::int64_t slot) {
  const std::int64_t page = slot / shape().page_size;
  const std::int64_t offset = slot % shape().page_size;
  const auto row_of = [&](const RowArray& rows) {
    return reinterpret_cast<Element*>(rows.layer_begin(layer)) + page * rows.strides().page +
           offset * rows.strides().token;
  };
  const RowArray& keys = arrays().keys();
  const RowArray& labels = arrays().labels();
  const Element* key = row_of(keys);
  Element* label = row_of(labels);
  const std::int32_t* channel = channels_.of_layer(layer).data();
  for (std::int64_t head = 0; head < shape().heads; ++head) {
    for (std::int64_t i = 0; i < shape().label_channels; ++i) label[i] = key[*channel++];
    key += keys.strides().head;
    label += labels.strides().head;
  }
}

KvLayerView DoubleSparsePool::layer_view(std::int64_t layer) const {
  KvLayerView view = RowPool::layer_view(layer);
  view.heavy_channels = channels_.of_layer(layer).data();
  return view;
}

}  // namespace stemma
