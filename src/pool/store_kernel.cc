// What makes scattered rows slower than one long memcpy is the wait for each new place: for its
// address translation, and for the lines that a plain store reads before it writes them.
//
//   few rows    plain stores; the lines of a row ahead are asked for. The rows stay in the caches,
//               where attention reads them next.
//   many rows   streaming stores, which read nothing; only the translation of a row ahead is asked
//               for, by touching its first line. They would not have stayed in the caches anyway.
#include "pool/store_kernel.h"

#include <algorithm>
#include <cstring>

namespace stemma {

namespace {

constexpr std::int64_t kLineBytes = 64;
constexpr std::int64_t kAheadBytes = 4096;      // plain: lines asked for, in bytes of rows
constexpr std::int64_t kAheadRows = 8;          // streaming: translations asked for
constexpr std::int64_t kStreamBytes = 1 << 19;  // K or V of one call; half a second-level cache

template <typename Slot>
std::byte* place(const StoreTask& task, Slot slot) {
  const std::int64_t s = slot;
  const std::int64_t element =
      s / task.page_size * task.page_stride + s % task.page_size * task.token_stride;
  return task.target + element * dtype_bytes(task.target_dtype);
}

std::int64_t row_bytes(const StoreTask& task) {
  return task.row_elements * dtype_bytes(task.target_dtype);
}

// Scaling a row takes longer than its lines take to be read.
bool streams(const StoreTask& task) {
  if (is_scaled(task.target_dtype)) return false;
  const bool whole_lines = row_bytes(task) % kLineBytes == 0 &&
                           reinterpret_cast<std::uintptr_t>(task.target) % kLineBytes == 0;
  return whole_lines && row_bytes(task) * task.rows >= kStreamBytes;
}

void store_scaled_row(const StoreTask& task, const std::byte* source, std::int64_t slot,
                      std::byte* target) {
  ScaledRow row;
  row.source = source;
  row.source_dtype = task.source_dtype;
  row.heads = task.row_elements / task.head_dim;
  row.head_dim = task.head_dim;
  row.target_dtype = task.target_dtype;
  row.codes = target;
  row.scales = task.scales + slot / task.page_size * task.scale_page_stride + slot % task.page_size;
  row.scale_stride = task.scale_head_stride;
  scale_row(row);
}

void store_row(const StoreTask& task, const std::byte* source, std::int64_t slot,
               std::byte* target) {
  if (is_scaled(task.target_dtype)) return store_scaled_row(task, source, slot, target);
  if (task.source_dtype == task.target_dtype) {
    std::memcpy(target, source, static_cast<std::size_t>(row_bytes(task)));
    return;
  }
  round_to_16_bits(reinterpret_cast<const float*>(source), task.row_elements, task.target_dtype,
                   reinterpret_cast<std::uint16_t*>(target));
}

void stream_row(const StoreTask& task, const std::byte* source, std::byte* target) {
  if (task.source_dtype == task.target_dtype) {
    stream_bytes(source, row_bytes(task), target);
    return;
  }
  constexpr std::int64_t kPieceElements = 1024;
  alignas(kLineBytes) std::uint16_t piece[kPieceElements];
  const auto* const values = reinterpret_cast<const float*>(source);
  for (std::int64_t i = 0; i < task.row_elements; i += kPieceElements) {
    const std::int64_t elements = std::min(kPieceElements, task.row_elements - i);
    round_to_16_bits(values + i, elements, task.target_dtype, piece);
    stream_bytes(reinterpret_cast<const std::byte*>(piece), 2 * elements, target + 2 * i);
  }
}

void prefetch_for_writing(const std::byte* begin, std::int64_t bytes) {
  for (std::int64_t offset = 0; offset < bytes; offset += kLineBytes) {
    __builtin_prefetch(begin + offset, 1, 3);
  }
}

template <typename Slot>
void store_few_rows(const StoreTask& task, const Slot* slots) {
  const std::int64_t source_stride_bytes = task.row_stride * dtype_bytes(task.source_dtype);
  const std::int64_t ahead = std::max<std::int64_t>(1, kAheadBytes / row_bytes(task));
  const std::byte* source = task.source;
  for (std::int64_t row = 0; row < task.rows; ++row, source += source_stride_bytes) {
    if (row + ahead < task.rows) {
      prefetch_for_writing(place(task, slots[row + ahead]), row_bytes(task));
    }
    store_row(task, source, slots[row], place(task, slots[row]));
  }
}

template <typename Slot>
void store_many_rows(const StoreTask& task, const Slot* slots) {
  const std::int64_t source_stride_bytes = task.row_stride * dtype_bytes(task.source_dtype);
  const std::byte* source = task.source;
  for (std::int64_t row = 0; row < task.rows; ++row, source += source_stride_bytes) {
    if (row + kAheadRows < task.rows) {
      __builtin_prefetch(place(task, slots[row + kAheadRows]), 0, 3);
    }
    stream_row(task, source, place(task, slots[row]));
  }
  end_streaming();
}

template <typename Slot>
void store_all_rows(const StoreTask& task, const Slot* slots) {
  return streams(task) ? store_many_rows(task, slots) : store_few_rows(task, slots);
}

}  // namespace

void store_rows(const StoreTask& task, const std::int64_t* slots) {
  store_all_rows(task, slots);
}

void store_rows(const StoreTask& task, const std::int32_t* slots) {
  store_all_rows(task, slots);
}

}  // namespace stemma
