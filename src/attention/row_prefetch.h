// RowPrefetch: the rows of K or V that are wanted next, asked for a cache line at a time while the
// present ones are computed. Memory and arithmetic then overlap, whatever the page size.
//
// Rows are asked for in order, shortly before they are used, and as many bytes of each as lie
// together: the processor's own prefetcher then follows and helps. Lines are asked for one by one,
// evenly between the multiplications: a burst fills the few places that wait for memory, and the
// computation's own reads then wait for one of them.
//
// Thread:     a value of one task.
// Memory:     none.
// Cost:       four instructions a line.
// Not here:   which rows (attention_cpu.cc), how many lines at which step (the steps themselves).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/math.h"

namespace stemma {

inline constexpr std::int64_t kLineBytes = 64;

struct RowPrefetch {
  const std::byte* first = nullptr;  // row i begins at first + offsets[i]
  const std::int64_t* offsets = nullptr;
  std::int64_t rows = 0;
  std::int64_t row_bytes = 0;
  const RowPrefetch* after_or_null = nullptr;  // what follows when all rows have been asked for
  const std::byte* line = nullptr;             // the next one of the present row
  const std::byte* row_end = nullptr;          // where that row's lines end

  // Goes on to the next row; false when none is left.
  bool next_row() {
    if (rows == 0) {
      if (after_or_null == nullptr || after_or_null->rows == 0) return false;
      *this = RowPrefetch(*after_or_null);
    }
    line = first + *offsets;
    row_end = line + round_up(row_bytes, kLineBytes);
    ++offsets;
    --rows;
    return true;
  }
};

// What a loop holds of a RowPrefetch: two pointers, which stay in registers while it runs.
class PrefetchCursor {
 public:
  explicit PrefetchCursor(RowPrefetch& rows)
      : rows_(rows), line_(rows.line), row_end_(rows.row_end) {}
  ~PrefetchCursor() {
    rows_.line = line_;
    rows_.row_end = row_end_;
  }
  PrefetchCursor(const PrefetchCursor&) = delete;
  PrefetchCursor& operator=(const PrefetchCursor&) = delete;

  // The next line, into the second-level cache; nothing when all have been asked for.
  void step() {
    if (line_ == row_end_) [[unlikely]] {
      if (!rows_.next_row()) return;
      line_ = rows_.line;
      row_end_ = rows_.row_end;
    }
    __builtin_prefetch(line_, 0, 2);
    line_ += kLineBytes;
  }

  void step(std::int64_t lines) {
    for (; lines > 0; --lines) step();
  }

 private:
  RowPrefetch& rows_;
  const std::byte* line_;
  const std::byte* row_end_;
};

}  // namespace stemma
