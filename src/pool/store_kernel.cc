// A row is a memcpy or a rounding pass. What makes scattered rows slower than one long memcpy is
// the wait for the first bytes of each new place (its address translation and its ownership), so
// the lines of a row some rows ahead are asked for while this one is written.
#include "pool/store_kernel.h"

#include <algorithm>
#include <cstring>

namespace stemma {

namespace {

constexpr std::int64_t kLineBytes = 64;
// How far ahead places are asked for. Nearer, the wait shows; farther, lines of other rows are
// pushed out of the nearest cache first.
constexpr std::int64_t kAheadBytes = 4096;

template <typename Slot>
std::byte* place(const StoreTask& task, Slot slot) {
  const std::int64_t s = slot;
  const std::int64_t element =
      s / task.page_size * task.page_stride + s % task.page_size * task.token_stride;
  return task.target + element * dtype_bytes(task.target_dtype);
}

void prefetch_for_writing(const std::byte* begin, std::int64_t bytes) {
  for (std::int64_t offset = 0; offset < bytes; offset += kLineBytes) {
    __builtin_prefetch(begin + offset, 1, 3);
  }
}

void store_row(const StoreTask& task, const std::byte* source, std::byte* target) {
  if (task.source_dtype == task.target_dtype) {
    std::memcpy(target, source,
                static_cast<std::size_t>(task.row_elements * dtype_bytes(task.target_dtype)));
    return;
  }
  round_to_16_bits(reinterpret_cast<const float*>(source), task.row_elements, task.target_dtype,
                   reinterpret_cast<std::uint16_t*>(target));
}

template <typename Slot>
void store_all_rows(const StoreTask& task, const Slot* slots) {
  const std::int64_t row_bytes = task.row_elements * dtype_bytes(task.target_dtype);
  const std::int64_t source_stride_bytes = task.row_stride * dtype_bytes(task.source_dtype);
  const std::int64_t ahead = std::max<std::int64_t>(1, kAheadBytes / row_bytes);
  const std::byte* source = task.source;
  for (std::int64_t row = 0; row < task.rows; ++row, source += source_stride_bytes) {
    if (row + ahead < task.rows) prefetch_for_writing(place(task, slots[row + ahead]), row_bytes);
    store_row(task, source, place(task, slots[row]));
  }
}

}  // namespace

void store_rows(const StoreTask& task, const std::int64_t* slots) {
  store_all_rows(task, slots);
}

void store_rows(const StoreTask& task, const std::int32_t* slots) {
  store_all_rows(task, slots);
}

}  // namespace stemma
