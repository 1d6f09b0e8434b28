// Where the row of a token's head begins in a layer, and one of its elements in double: for
// reference twins and measurements.
//
// Thread:     a pure function.
// Memory:     none.
// Cost:       a branch an element.
// Not here:   kernels (device/load_f32-inl).
#pragma once

#include <cstdint>
#include <limits>

#include "base/float16.h"
#include "stemma/ids.h"
#include "stemma/kv_pool.h"
#include "stemma/kv_shape.h"

namespace stemma {

// The element of K and V at which it begins.
inline std::int64_t stored_row(const KvLayerView& layer, SlotId slot, std::int64_t kv_head) {
  return slot.value() / layer.page_size * layer.page_stride +
         slot.value() % layer.page_size * layer.token_stride + kv_head * layer.head_stride;
}

// Element i of K, V or labels that are stored as `dtype`.
inline double stored_element(const void* elements, DType dtype, std::int64_t i) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<const float*>(elements)[i];
    case DType::kF16:
      return to_float(static_cast<const Float16*>(elements)[i]);
    case DType::kBF16:
      return to_float(static_cast<const BFloat16*>(elements)[i]);
  }
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace stemma
