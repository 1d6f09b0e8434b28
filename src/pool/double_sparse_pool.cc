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

LayerPieces<const std::byte> DoubleSparsePool::layer_pieces(std::int64_t layer) const {
  return pieces_of<const std::byte>(shape_, layer, {&keys_, &values_, &labels_});
}

LayerPieces<std::byte> DoubleSparsePool::layer_pieces(std::int64_t layer) {
  return pieces_of<std::byte>(shape_, layer, {&keys_, &values_, &labels_});
}

KvLayerView DoubleSparsePool::layer_view(std::int64_t layer) const {
  KvLayerView view = layer_view_of(shape_, keys_, values_, layer);
  view.labels = labels_.layer_begin(layer);
  view.heavy_channels = channels_.of_layer(layer).data();
  view.label_channels = shape_.label_channels;
  view.label_page_stride = labels_.strides().page;
  view.label_token_stride = labels_.strides().token;
  view.label_head_stride = labels_.strides().head;
  return view;
}

TensorView DoubleSparsePool::logical_view() {
  return logical_view_of(shape_, keys_, 2, buffer_.bytes());
}

}  // namespace stemma
