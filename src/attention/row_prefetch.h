// RowPrefetch: the rows of K or V that are wanted next, asked for a cache line at a time while the
// present ones are computed. Memory and arithmetic then overlap, whatever the page size.
//
// Lines are asked for one by one, evenly between the multiplications: a burst fills the few places
// that wait for memory, and the computation's own reads then wait for one of them. They come from
// two rows by turns, a row and the one half of kPrefetchRows after it, each in order: the
// processor's own prefetcher follows both and runs ahead. Along a single row it falls behind, and
// memory then gives half as much.
//
// Thread:     a value of one task.
// Memory:     none.
// Cost:       four instructions a line.
// Not here:   which rows (attention_cpu.cc), how many lines at which step (the steps themselves).
#pragma once

#include <cstddef>
#include <cstdint>

// A function called now and then from a loop that holds everything in vector registers: it saves
// what it uses and uses no vectors, so that the loop need not keep its values in memory for the
// sake of the call. It may call nothing but what is inlined into it, which says so.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define STEMMA_KEEPS_REGISTERS \
  __attribute__((noinline, no_caller_saved_registers, target("general-regs-only")))
#define STEMMA_INLINED_INTO_IT __attribute__((always_inline, target("general-regs-only")))
#else
#define STEMMA_KEEPS_REGISTERS __attribute__((noinline))
#define STEMMA_INLINED_INTO_IT __attribute__((always_inline))
#endif

namespace stemma {

inline constexpr std::int64_t kLineBytes = 64;

// Rows that are asked for together: the first half by turns with the second.
inline constexpr std::int64_t kPrefetchRows = 32;

struct RowPrefetch {
  const std::byte* first = nullptr;  // row i begins at first + offsets[i]
  const std::int64_t* offsets = nullptr;
  std::int64_t rows = 0;
  std::int64_t row_bytes = 0;

  // Where a cursor stands: the next line and the one after it, which the pair's other row has; how
  // many lines of the pair are left; which pair of the present kPrefetchRows comes next.
  const std::byte* line = nullptr;
  const std::byte* other_line = nullptr;
  std::int64_t lines = 0;
  std::int64_t next_pair = 0;
  bool exhausted = false;  // all rows have been asked for
  // The latest stretch of memory that touch() has read from, for each row of a pair: scattered rows
  // of one pair mostly lie in two.
  std::uintptr_t walked = 0;
  std::uintptr_t other_walked = 0;

  // Goes on to the next two rows; false when none is left. A last row that has no other is asked
  // for twice.
  STEMMA_KEEPS_REGISTERS bool advance() {
    exhausted = rows == 0;
    if (exhausted) return false;
    const std::int64_t together = rows < kPrefetchRows ? rows : kPrefetchRows;
    const std::int64_t pairs = (together + 1) / 2;
    const std::int64_t other = next_pair + pairs < together ? next_pair + pairs : next_pair;
    line = first + offsets[next_pair];
    other_line = first + offsets[other];
    touch(line, walked);
    touch(other_line, other_walked);
    lines = 2 * ((row_bytes + kLineBytes - 1) / kLineBytes);
    if (++next_pair == pairs) {
      next_pair = 0;
      offsets += together;
      rows -= together;
    }
    return true;
  }

 private:
  // A prefetch is dropped where the processor would have to walk the page table for it; a read is
  // not, and what follows in the same huge page then needs no walk.
  STEMMA_INLINED_INTO_IT static void touch(const std::byte* at, std::uintptr_t& last) {
    constexpr int kHugePageBits = 21;
    const std::uintptr_t stretch = reinterpret_cast<std::uintptr_t>(at) >> kHugePageBits;
    if (stretch == last) return;
    last = stretch;
    static_cast<void>(*static_cast<const volatile std::byte*>(at));
  }
};

// What a loop holds of a RowPrefetch: it stays in registers while the loop runs.
class PrefetchCursor {
 public:
  explicit PrefetchCursor(RowPrefetch& rows)
      : rows_(rows), line_(rows.line), other_line_(rows.other_line), lines_(rows.lines) {}
  ~PrefetchCursor() {
    rows_.line = line_;
    rows_.other_line = other_line_;
    rows_.lines = lines_;
  }
  PrefetchCursor(const PrefetchCursor&) = delete;
  PrefetchCursor& operator=(const PrefetchCursor&) = delete;

  // The next line, into the second-level cache; nothing when all have been asked for.
  void step() {
    if (lines_ == 0) [[unlikely]] {
      if (rows_.exhausted || !rows_.advance()) return;
      line_ = rows_.line;
      other_line_ = rows_.other_line;
      lines_ = rows_.lines;
    }
    __builtin_prefetch(line_, 0, 2);
    const std::byte* const next = line_ + kLineBytes;
    line_ = other_line_;
    other_line_ = next;
    --lines_;
  }

  void step(std::int64_t lines) {
    for (; lines > 0; --lines) step();
  }

 private:
  RowPrefetch& rows_;
  const std::byte* line_;
  const std::byte* other_line_;
  std::int64_t lines_;
};

}  // namespace stemma
