// RowPrefetch: the rows of K or V that are wanted next, asked for a few cache lines at a time while
// the present ones are computed. Memory and arithmetic then overlap, whatever the page size.
//
// Rows are asked for in order, shortly before they are used, and as many bytes of each as lie
// together: the processor's own prefetcher then follows and helps.
//
// Thread:     a value of one task.
// Memory:     none.
// Cost:       an instruction a line.
// Not here:   which rows (attention_cpu.cc), how many lines at which step (the steps themselves).
#pragma once

#include <cstddef>
#include <cstdint>

namespace stemma {

struct RowPrefetch {
  const std::byte* first = nullptr;  // row i begins at first + offsets[i]
  const std::int64_t* offsets = nullptr;
  std::int64_t rows = 0;
  std::int64_t row_bytes = 0;
  const RowPrefetch* after_or_null = nullptr;  // what follows when all rows have been asked for
  std::int64_t next_row = 0;
  std::int64_t next_byte = 0;

  // The next `lines` lines, into the second-level cache; fewer at the end.
  void step(std::int64_t lines) {
    for (; lines > 0; --lines) {
      if (next_row >= rows) {
        if (after_or_null == nullptr) return;
        *this = RowPrefetch(*after_or_null);
        if (rows == 0) return;
      }
      __builtin_prefetch(first + offsets[next_row] + next_byte, 0, 2);
      next_byte += 64;
      if (next_byte >= row_bytes) {
        next_byte = 0;
        ++next_row;
      }
    }
  }
};

}  // namespace stemma
