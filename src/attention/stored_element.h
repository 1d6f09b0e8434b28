// One element of K, V or a label as it is stored, in double: for reference twins and measurements.
//
// Thread:     a pure function.
// Memory:     none.
// Cost:       a branch an element.
// Not here:   kernels (device/load_f32-inl).
#pragma once

#include <cstdint>
#include <limits>

#include "base/float16.h"
#include "stemma/kv_shape.h"

namespace stemma {

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
