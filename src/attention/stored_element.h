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
#include "base/float8.h"
#include "stemma/ids.h"
#include "stemma/kv_pool.h"
#include "stemma/kv_shape.h"

namespace stemma {

// The element of K and V at which it begins.
inline std::int64_t stored_row(const KvLayerView& layer, SlotId slot, std::int64_t kv_head) {
  return slot.value() / layer.page_size * layer.page_stride +
         slot.value() % layer.page_size * layer.token_stride + kv_head * layer.head_stride;
}

// The scale of such a row; 1 if the dtype is not scaled. `scales`: those of K or of V.
inline double stored_scale(const KvLayerView& layer, const float* scales, SlotId slot,
                           std::int64_t kv_head) {
  if (scales == nullptr) return 1;
  return scales[slot.value() / layer.page_size * layer.scale_page_stride +
                slot.value() % layer.page_size + kv_head * layer.scale_head_stride];
}

// Element i of K, V or labels that are stored as `dtype`; of a scaled one, its code.
inline double stored_element(const void* elements, DType dtype, std::int64_t i) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<const float*>(elements)[i];
    case DType::kF16:
      return to_float(static_cast<const Float16*>(elements)[i]);
    case DType::kBF16:
      return to_float(static_cast<const BFloat16*>(elements)[i]);
    case DType::kFp8E4M3:
      return to_float(static_cast<const Float8E4M3*>(elements)[i]);
    case DType::kFp8E5M2:
      return to_float(static_cast<const Float8E5M2*>(elements)[i]);
    case DType::kInt8:
      return static_cast<const std::int8_t*>(elements)[i];
  }
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace stemma
