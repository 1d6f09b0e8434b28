#include "pool/double_sparse_pool.h"

#include <utility>

namespace stemma {

namespace {

// Labels as rows of a pool by themselves: as many, of fewer columns.
KvShape label_rows(const KvShape& shape) {
  KvShape rows = shape;
  rows.head_dim = shape.label_channels;
  return rows;
}

// A page's labels lie head by head, so that those of one head are read in order.
KvStrides label_strides(const KvShape& shape, KvLayout layout) {
  KvStrides strides = kv_strides(label_rows(shape), layout);
  strides.token = shape.label_channels;
  strides.head = shape.page_size * shape.label_channels;
  return strides;
}

}  // namespace

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
    : RowPool(shape, layout, std::move(buffer)),
      channels_(std::move(channels)),
      labels_(label_rows(shape), label_strides(shape, layout), behind_values()) {}

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
  const Element* key = row_of(keys());
  Element* label = row_of(labels_);
  const std::int32_t* channel = channels_.of_layer(layer).data();
  for (std::int64_t head = 0; head < shape().heads; ++head) {
    for (std::int64_t i = 0; i < shape().label_channels; ++i) label[i] = key[*channel++];
    key += keys().strides().head;
    label += labels_.strides().head;
  }
}

LayerPieces<const std::byte> DoubleSparsePool::layer_pieces(std::int64_t layer) const {
  LayerPieces<const std::byte> pieces = RowPool::layer_pieces(layer);
  pieces.push_back(labels_.piece<const std::byte>(layer));
  return pieces;
}

LayerPieces<std::byte> DoubleSparsePool::layer_pieces(std::int64_t layer) {
  LayerPieces<std::byte> pieces = RowPool::layer_pieces(layer);
  pieces.push_back(labels_.piece<std::byte>(layer));
  return pieces;
}

KvLayerView DoubleSparsePool::layer_view(std::int64_t layer) const {
  KvLayerView view = RowPool::layer_view(layer);
  view.labels = labels_.layer_begin(layer);
  view.heavy_channels = channels_.of_layer(layer).data();
  view.label_channels = shape().label_channels;
  view.label_page_stride = labels_.strides().page;
  view.label_token_stride = labels_.strides().token;
  view.label_head_stride = labels_.strides().head;
  return view;
}

}  // namespace stemma
