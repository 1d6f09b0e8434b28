#include "pool/row_array.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

namespace stemma {

namespace {

Error invalid(std::string detail) {
  return Error{ErrorCode::kInvalidArgument, "store: " + std::move(detail), 0};
}

bool takes(DType pool, DType rows) {
  return rows == pool || rows == DType::kF32;
}

}  // namespace

Status RowArray::check(std::string_view side, std::int64_t slot_count, const KvRows& rows,
                       DeviceKind device) const {
  if (rows.rows != slot_count) {
    return invalid(fmt::format("{} has {} rows for {} slots", side, rows.rows, slot_count));
  }
  if (rows.heads != shape_.heads || rows.head_dim != shape_.head_dim) {
    return invalid(fmt::format("{} has rows of [{}, {}], the pool of [{}, {}] (heads, dim)", side,
                               rows.heads, rows.head_dim, shape_.heads, shape_.head_dim));
  }
  // Of a single row nobody asks where the next one is: DLPack's writers say anything.
  if (rows.rows > 1 && rows.row_stride < shape_.row_elements()) {
    return invalid(fmt::format("{} has a row stride of {}, below the {} elements of a row", side,
                               rows.row_stride, shape_.row_elements()));
  }
  if (is_scaled(shape_.dtype) && is_scaled(rows.dtype)) {
    return invalid(fmt::format("{} is {} without scales, the pool takes f32, f16 or bf16", side,
                               dtype_name(rows.dtype)));
  }
  if (!is_scaled(shape_.dtype) && !takes(shape_.dtype, rows.dtype)) {
    const std::string_view or_f32 = shape_.dtype == DType::kF32 ? "" : " or f32";
    return invalid(fmt::format("{} is {}, the pool takes {}{}", side, dtype_name(rows.dtype),
                               dtype_name(shape_.dtype), or_f32));
  }
  if (rows.device != device) {
    return invalid(fmt::format("{} is on {}, the pool on {}", side, device_kind_name(rows.device),
                               device_kind_name(device)));
  }
  if (rows.elements == nullptr && rows.rows > 0) {
    return invalid(fmt::format("{} has rows but no elements", side));
  }
  return {};
}

StoreTask RowArray::store_task(std::int64_t layer, const KvRows& rows) const {
  StoreTask task;
  task.target = layer_begin(layer);
  task.target_dtype = shape_.dtype;
  task.page_size = shape_.page_size;
  task.page_stride = strides_.page;
  task.token_stride = strides_.token;
  task.source = static_cast<const std::byte*>(rows.elements);
  task.source_dtype = rows.dtype;
  task.rows = rows.rows;
  task.row_elements = shape_.row_elements();
  task.row_stride = rows.row_stride;
  task.scales = layer_scales(layer);
  task.scale_page_stride = scale_strides_.page;
  task.scale_head_stride = scale_strides_.head;
  task.head_dim = shape_.head_dim;
  return task;
}

template <typename Slot>
Status check_places(const KvShape& shape, std::int64_t layer, std::span<const Slot> slots) {
  if (layer < 0 || layer >= shape.layers) {
    return invalid(fmt::format("layer {} is outside the pool (0 ... {})", layer, shape.layers - 1));
  }
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const std::int64_t slot = slots[i];
    if (slot < 0 || slot >= shape.slots()) {
      return invalid(
          fmt::format("slots[{}] = {} is outside the pool (0 ... {})", i, slot, shape.slots() - 1));
    }
  }
  return {};
}

template Status check_places(const KvShape&, std::int64_t, std::span<const std::int64_t>);
template Status check_places(const KvShape&, std::int64_t, std::span<const std::int32_t>);

}  // namespace stemma
