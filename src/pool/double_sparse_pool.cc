#include "pool/double_sparse_pool.h"

#include <utility>

#include "base/check.h"

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
  STEMMA_RETURN_IF_ERROR(validate(shape));
  STEMMA_CHECK(shape.kind == KvKind::kDoubleSparse, "a shape with labels");
  STEMMA_RETURN_IF_ERROR(validate_heavy_channels(channels, shape));
  STEMMA_ASSIGN_OR_RETURN(Buffer buffer,
                          Buffer::allocate(static_cast<std::size_t>(shape.total_bytes())));
  buffer.prefault(threads);
  return std::unique_ptr<DoubleSparsePool>(
      new DoubleSparsePool(shape, layout, std::move(channels), std::move(buffer)));
}

DoubleSparsePool::DoubleSparsePool(const KvShape& shape, KvLayout layout, HeavyChannels channels,
                                   Buffer buffer)
    : shape_(shape),
      layout_(layout),
      channels_(std::move(channels)),
      buffer_(std::move(buffer)),
      keys_(shape, layout, buffer_.bytes()),
      values_(shape, layout, buffer_.bytes() + keys_.total_bytes()),
      labels_(label_rows(shape), label_strides(shape, layout),
              buffer_.bytes() + 2 * keys_.total_bytes()) {}

Status DoubleSparsePool::store(std::int64_t layer, std::span<const std::int64_t> slots,
                               const KvRows& k, const KvRows& v) {
  return store_checked(layer, slots, k, v);
}

Status DoubleSparsePool::store(std::int64_t layer, std::span<const std::int32_t> slots,
                               const KvRows& k, const KvRows& v) {
  return store_checked(layer, slots, k, v);
}

template <typename Slot>
Status DoubleSparsePool::store_checked(std::int64_t layer, std::span<const Slot> slots,
                                       const KvRows& k, const KvRows& v) {
  const auto slot_count = static_cast<std::int64_t>(slots.size());
  STEMMA_RETURN_IF_ERROR(keys_.check("k", slot_count, k));
  STEMMA_RETURN_IF_ERROR(values_.check("v", slot_count, v));
  STEMMA_RETURN_IF_ERROR(check_places(shape_, layer, slots));
  keys_.store(layer, slots, k);
  values_.store(layer, slots, v);
  store_labels(layer, slots);
  return {};
}

template <typename Slot>
void DoubleSparsePool::store_labels(std::int64_t layer, std::span<const Slot> slots) {
  for (const Slot slot : slots) {
    if (shape_.dtype == DType::kF32) {
      gather_label<float>(layer, slot);
    } else {
      gather_label<std::uint16_t>(layer, slot);  // f16 and bf16 alike: elements are moved
    }
  }
}

// From K as it was stored: what is read back later is what was labelled.
template <typename Element>
void DoubleSparsePool::gather_label(std::int64_t layer, std::int64_t slot) {
  const std::int64_t page = slot / shape_.page_size;
  const std::int64_t offset = slot % shape_.page_size;
  const auto row_of = [&](const RowArray& rows) {
    return reinterpret_cast<Element*>(rows.layer_begin(layer)) + page * rows.strides().page +
           offset * rows.strides().token;
  };
  const Element* key = row_of(keys_);
  Element* label = row_of(labels_);
  const std::int32_t* channel = channels_.of_layer(layer).data();
  for (std::int64_t head = 0; head < shape_.heads; ++head) {
    for (std::int64_t i = 0; i < shape_.label_channels; ++i) label[i] = key[*channel++];
    key += keys_.strides().head;
    label += labels_.strides().head;
  }
}

template <typename Byte>
LayerPieces<Byte> DoubleSparsePool::pieces_of(std::int64_t layer) const {
  STEMMA_CHECK(layer >= 0 && layer < shape_.layers, "a layer of the pool");
  LayerPieces<Byte> pieces;
  for (const RowArray* const rows : {&keys_, &values_, &labels_}) {
    pieces.push_back(rows->piece<Byte>(layer));
  }
  return pieces;
}

LayerPieces<const std::byte> DoubleSparsePool::layer_pieces(std::int64_t layer) const {
  return pieces_of<const std::byte>(layer);
}

LayerPieces<std::byte> DoubleSparsePool::layer_pieces(std::int64_t layer) {
  return pieces_of<std::byte>(layer);
}

KvLayerView DoubleSparsePool::layer_view(std::int64_t layer) const {
  STEMMA_CHECK(layer >= 0 && layer < shape_.layers, "a layer of the pool");
  KvLayerView view;
  view.k = keys_.layer_begin(layer);
  view.v = values_.layer_begin(layer);
  view.dtype = shape_.dtype;
  view.pages = shape_.pages;
  view.page_size = shape_.page_size;
  view.heads = shape_.heads;
  view.head_dim = shape_.head_dim;
  view.value_dim = shape_.head_dim;
  view.page_stride = keys_.strides().page;
  view.token_stride = keys_.strides().token;
  view.head_stride = keys_.strides().head;
  view.labels = labels_.layer_begin(layer);
  view.heavy_channels = channels_.of_layer(layer).data();
  view.label_channels = shape_.label_channels;
  view.label_page_stride = labels_.strides().page;
  view.label_token_stride = labels_.strides().token;
  view.label_head_stride = labels_.strides().head;
  return view;
}

TensorView DoubleSparsePool::logical_view() {
  const KvStrides& strides = keys_.strides();
  TensorView view;
  view.bytes = buffer_.bytes();
  view.dtype = shape_.dtype;
  view.dims = 6;
  view.shape = {2, shape_.layers, shape_.pages, shape_.page_size, shape_.heads, shape_.head_dim};
  view.stride = {strides.side, strides.layer, strides.page, strides.token, strides.head, 1};
  return view;
}

}  // namespace stemma
