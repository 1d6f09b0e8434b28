#include "pool/mha_pool.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <utility>

#include "base/check.h"
#include "pool/store_kernel.h"

namespace stemma {

namespace {

Error invalid(std::string detail) {
  return Error{ErrorCode::kInvalidArgument, std::move(detail), 0};
}

// kInvalidArgument naming the first slot outside [0, slot_limit).
template <typename Slot>
Status check_slots(std::span<const Slot> slots, std::int64_t slot_limit) {
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const std::int64_t slot = slots[i];
    if (slot < 0 || slot >= slot_limit) {
      return invalid(fmt::format("store: slots[{}] = {} is outside the pool (0 ... {})", i, slot,
                                 slot_limit - 1));
    }
  }
  return {};
}

StoreTask store_task(const KvShape& shape, const KvStrides& strides, const KvRows& rows) {
  StoreTask task;
  task.target_dtype = shape.dtype;
  task.page_size = shape.page_size;
  task.page_stride = strides.page;
  task.token_stride = strides.token;
  task.source = static_cast<const std::byte*>(rows.elements);
  task.source_dtype = rows.dtype;
  task.rows = rows.rows;
  task.row_elements = shape.row_elements();
  task.row_stride = rows.row_stride;
  return task;
}

}  // namespace

Result<std::unique_ptr<MhaPool>> MhaPool::create(const KvShape& shape, KvLayout layout,
                                                 ThreadPool& threads) {
  STEMMA_RETURN_IF_ERROR(validate(shape));
  STEMMA_ASSIGN_OR_RETURN(Buffer buffer,
                          Buffer::allocate(static_cast<std::size_t>(shape.total_bytes())));
  buffer.prefault(threads);
  return std::unique_ptr<MhaPool>(new MhaPool(shape, layout, std::move(buffer)));
}

MhaPool::MhaPool(const KvShape& shape, KvLayout layout, Buffer buffer)
    : shape_(shape),
      layout_(layout),
      strides_(kv_strides(shape, layout)),
      buffer_(std::move(buffer)) {}

Status MhaPool::store(std::int64_t layer, std::span<const std::int64_t> slots, const KvRows& k,
                      const KvRows& v) {
  return store_checked(layer, slots, k, v);
}

Status MhaPool::store(std::int64_t layer, std::span<const std::int32_t> slots, const KvRows& k,
                      const KvRows& v) {
  return store_checked(layer, slots, k, v);
}

template <typename Slot>
Status MhaPool::store_checked(std::int64_t layer, std::span<const Slot> slots, const KvRows& k,
                              const KvRows& v) {
  if (layer < 0 || layer >= shape_.layers) {
    return invalid(
        fmt::format("store: layer {} is outside the pool (0 ... {})", layer, shape_.layers - 1));
  }
  const auto slot_count = static_cast<std::int64_t>(slots.size());
  STEMMA_RETURN_IF_ERROR(check_rows("k", slot_count, k));
  STEMMA_RETURN_IF_ERROR(check_rows("v", slot_count, v));
  STEMMA_RETURN_IF_ERROR(check_slots(slots, shape_.slots()));
  const std::array<const KvRows*, 2> sides = {&k, &v};
  for (std::int64_t side = 0; side < 2; ++side) {
    StoreTask task = store_task(shape_, strides_, *sides[static_cast<std::size_t>(side)]);
    task.target = buffer_.bytes() + side_offset_bytes(side, layer);
    store_rows(task, slots.data());
  }
  return {};
}

Status MhaPool::check_rows(std::string_view side, std::int64_t slot_count,
                           const KvRows& rows) const {
  if (rows.rows != slot_count) {
    return invalid(fmt::format("store: {} has {} rows for {} slots", side, rows.rows, slot_count));
  }
  if (rows.heads != shape_.heads || rows.head_dim != shape_.head_dim) {
    return invalid(fmt::format("store: {} has rows of [{}, {}], the pool of [{}, {}] (heads, dim)",
                               side, rows.heads, rows.head_dim, shape_.heads, shape_.head_dim));
  }
  if (rows.row_stride < shape_.row_elements()) {
    return invalid(fmt::format("store: {} has a row stride of {}, below the {} elements of a row",
                               side, rows.row_stride, shape_.row_elements()));
  }
  if (rows.dtype != shape_.dtype && rows.dtype != DType::kF32) {
    return invalid(fmt::format("store: {} is {}, the pool takes {} or f32", side,
                               dtype_name(rows.dtype), dtype_name(shape_.dtype)));
  }
  if (rows.device != device()) {
    return invalid(fmt::format("store: {} is on {}, the pool on {}", side,
                               device_kind_name(rows.device), device_kind_name(device())));
  }
  if (rows.elements == nullptr && rows.rows > 0) {
    return invalid(fmt::format("store: {} has rows but no elements", side));
  }
  return {};
}

std::int64_t MhaPool::side_offset_bytes(std::int64_t side, std::int64_t layer) const {
  return (side * strides_.side + layer * strides_.layer) * dtype_bytes(shape_.dtype);
}

template <typename Byte>
LayerPieces<Byte> MhaPool::pieces_in(Byte* pool, std::int64_t layer) const {
  STEMMA_CHECK(layer >= 0 && layer < shape_.layers, "a layer of the pool");
  const std::int64_t element_bytes = dtype_bytes(shape_.dtype);
  LayerPieces<Byte> pieces;
  for (std::int64_t side = 0; side < 2; ++side) {
    pieces.push_back({.page0 = pool + side_offset_bytes(side, layer),
                      .page_stride_bytes = strides_.page * element_bytes,
                      .bytes = shape_.page_size * strides_.token * element_bytes});
  }
  return pieces;
}

LayerPieces<const std::byte> MhaPool::layer_pieces(std::int64_t layer) const {
  return pieces_in(buffer_.bytes(), layer);
}

LayerPieces<std::byte> MhaPool::layer_pieces(std::int64_t layer) {
  return pieces_in(buffer_.bytes(), layer);
}

KvLayerView MhaPool::layer_view(std::int64_t layer) const {
  STEMMA_CHECK(layer >= 0 && layer < shape_.layers, "a layer of the pool");
  const std::int64_t element_bytes = dtype_bytes(shape_.dtype);
  const std::byte* const k = buffer_.bytes() + layer * strides_.layer * element_bytes;
  KvLayerView view;
  view.k = k;
  view.v = k + strides_.side * element_bytes;
  view.dtype = shape_.dtype;
  view.pages = shape_.pages;
  view.page_size = shape_.page_size;
  view.heads = shape_.heads;
  view.head_dim = shape_.head_dim;
  view.page_stride = strides_.page;
  view.token_stride = strides_.token;
  view.head_stride = strides_.head;
  return view;
}

TensorView MhaPool::logical_view() {
  TensorView view;
  view.bytes = buffer_.bytes();
  view.dtype = shape_.dtype;
  view.dims = 6;
  view.shape = {2, shape_.layers, shape_.pages, shape_.page_size, shape_.heads, shape_.head_dim};
  view.stride = {strides_.side, strides_.layer, strides_.page, strides_.token, strides_.head, 1};
  return view;
}

}  // namespace stemma
