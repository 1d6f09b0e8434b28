// Store kernels: rows scattered into a pool. Used by pools alone; arguments are checked there.
//
// Thread:     pure functions of their task; tasks with disjoint slots may run at once.
// Memory:     none.
// Cost:       each byte is read once and written once; many rows go past the caches, few stay in
//             them for the attention that follows.
// Not here:   checks (mha_pool), strides (kv_layout).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "stemma/kv_shape.h"

namespace stemma {

// The rows of K or V that one call stores. Slot s lies at element
// (s / page_size) × page_stride + (s % page_size) × token_stride of `target`; of a scaled dtype,
// the scale of its head h at (s / page_size) × scale_page_stride + s % page_size + h ×
// scale_head_stride of `scales`.
struct StoreTask {
  std::byte* target = nullptr;
  DType target_dtype = DType::kF32;
  std::int64_t page_size = 0;
  std::int64_t page_stride = 0;
  std::int64_t token_stride = 0;

  const std::byte* source = nullptr;
  DType source_dtype = DType::kF32;  // target_dtype or kF32; if that is scaled, any that is not
  std::int64_t rows = 0;
  std::int64_t row_elements = 0;
  std::int64_t row_stride = 0;  // of the source, in elements

  float* scales = nullptr;
  std::int64_t scale_page_stride = 0;
  std::int64_t scale_head_stride = 0;
  std::int64_t head_dim = 0;  // of a row's heads, each of which has a scale
};

// Row i of each side goes to slots[i] there. REQUIRES: K alone or K and V, with as many rows.
void store_rows(std::span<const StoreTask> sides, const std::int64_t* slots);
void store_rows(std::span<const StoreTask> sides, const std::int32_t* slots);

// f32 to 16 bits, bit for bit as to_bfloat16 and to_float16 (base/float16.h).
// REQUIRES: the target dtype is kF16 or kBF16.
void round_to_16_bits(const float* from, std::int64_t elements, DType target_dtype,
                      std::uint16_t* to);

// A row whose heads get a scale each.
struct ScaledRow {
  const std::byte* source = nullptr;  // [heads, head_dim]
  DType source_dtype = DType::kF32;   // one that is not scaled
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  DType target_dtype = DType::kInt8;  // one that is
  std::byte* codes = nullptr;         // [heads, head_dim]
  float* scales = nullptr;            // [heads], scale_stride apart
  std::int64_t scale_stride = 0;
};

// Codes and scales as DType says; those of a row alike on every SIMD target.
void scale_row(const ScaledRow& row);

// A row that is copied past the caches.
struct StreamedRow {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
};

// Copies whole lines past the caches, those of a few rows by turns. end_streaming orders them
// before what follows. REQUIRES: `bytes`, those of each row, is a multiple of 64 and `to` aligned
// to 64.
void stream_rows(std::span<const StreamedRow> rows, std::int64_t bytes);
void end_streaming();

}  // namespace stemma
