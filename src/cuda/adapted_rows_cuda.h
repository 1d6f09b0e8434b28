// Adapted rows: kernels that add to each row of a product what the adapter of its request makes of
// the same input, scale × B (A x). Rows with different adapters and with none mix freely. A product
// may be one of each head, whose inputs and outputs lie side by side, or one of a mixture's
// experts, whose rows are visits.
//
// All sums are f32, in an order that depends on the row and its adapter alone (I13). Rows without
// an adapter are neither read nor written.
//
// Thread:     as CudaStream.
// Memory:     none; addresses are the device's, aligned to 16 bytes.
// Cost:       two launches; a row reads A and B of its adapter, from L2 but for the first.
// Not here:   where adapters lie (cuda_adapters), the products (CudaGemm).
#pragma once

#include <cstdint>

#include "device/cuda_device.h"
#include "device/weight_type.h"
#include "stemma/result.h"

namespace stemma {

// What one adapter has for one matrix.
struct DeviceLowRank {
  const float* down = nullptr;  // A   [rank, inputs]
  const float* up = nullptr;    // B   [outputs, rank]
  std::int32_t rank = 0;        // 0: it leaves the matrix as it is
  float scale = 1;
  // From one head's A to the next one's, and of B; 0: all heads have the same.
  std::int64_t down_head_stride = 0;
  std::int64_t up_head_stride = 0;
};

// A matrix whose product is changed.
struct AdaptedMatrix {
  const DeviceLowRank* changes = nullptr;  // [adapters]; of visits [experts, adapters_count]
  void* y = nullptr;                       // the product, of its first row and head
  std::int64_t outputs = 0;
};

// Of one input: the queries, the keys and the values.
inline constexpr int kAdaptedMatricesMax = 3;

// Rows of a product over experts: visits, as they are sorted by expert (expert_choice_cuda).
struct AdaptedVisits {
  const std::int32_t* rows = nullptr;    // [rows]: of the batch; nullptr: there are no visits
  const std::int32_t* sorted = nullptr;  // [rows]: which visits they are
  const std::int32_t* chosen = nullptr;  // [visits]: the experts
};

struct AdaptRows {
  const std::int32_t* adapters = nullptr;  // [rows of the batch]; -1: none
  const void* x = nullptr;                 // [rows, heads, inputs], of `type`
  AdaptedMatrix matrices[kAdaptedMatricesMax] = {};
  std::int64_t matrices_count = 0;
  float* inner = nullptr;  // scratch  [rows, heads, matrices_count, rank_max]
  std::int64_t rows = 0;
  std::int64_t heads = 1;
  std::int64_t inputs = 0;    // of a head; a multiple of 8, as strides of x are
  std::int64_t rank_max = 0;  // of all changes
  // In values: from row to row, and from head to head.
  std::int64_t x_stride = 0;
  std::int64_t x_head_stride = 0;
  std::int64_t y_stride = 0;
  std::int64_t y_head_stride = 0;
  WeightType type = WeightType::kBf16;
  bool f32_out = true;  // y is f32, else of `type`
  AdaptedVisits visits = {};
  std::int64_t adapters_count = 0;       // of visits
  const std::int32_t* x_rows = nullptr;  // [rows]: where they lie; nullptr: one behind the other
  const std::int32_t* y_rows = nullptr;
};
// kInvalidArgument for extents that there are not; launch's errors.
Status adapt_rows(CudaStream& stream, const AdaptRows& params);

}  // namespace stemma
