// What makes scattered rows slower than one long memcpy is the wait for each new place: for its
// address translation, and for the lines that a plain store reads before it writes them.
//
//   few rows    plain stores; the lines of a row ahead are asked for. The rows stay in the caches,
//               where attention reads them next.
//   many rows   streaming stores, which read nothing, of a few rows of K and of V by turns: their
//               waits overlap. They would not have stayed in the caches anyway.
#include "pool/store_kernel.h"

#include <algorithm>
#include <cstring>

namespace stemma {

namespace {

constexpr std::int64_t kLineBytes = 64;
constexpr std::int64_t kAheadBytes = 4096;      // plain: lines asked for, in bytes of rows
constexpr std::size_t kStreamedRows = 4;        // at once, of all sides together
constexpr std::int64_t kStreamBytes = 1 << 19;  // K or V of one call; half a second-level cache

// Where slots lie. Most follow the one before in its page, and need no division.
class Places {
 public:
  explicit Places(const StoreTask& task)
      : task_(task),
        token_bytes_(task.token_stride * dtype_bytes(task.target_dtype)),
        page_bytes_(task.page_stride * dtype_bytes(task.target_dtype)) {}

  std::byte* of(std::int64_t slot) {
    if (slot == slot_ + 1 && in_page_ + 1 < task_.page_size) {
      ++in_page_;
      place_ += token_bytes_;
    } else {
      in_page_ = slot % task_.page_size;
      place_ = task_.target + slot / task_.page_size * page_bytes_ + in_page_ * token_bytes_;
    }
    slot_ = slot;
    return place_;
  }

 private:
  const StoreTask& task_;
  std::int64_t token_bytes_;
  std::int64_t page_bytes_;
  std::int64_t slot_ = -2;  // the latest
  std::int64_t in_page_ = 0;
  std::byte* place_ = nullptr;
};

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

void round_and_stream_row(const StoreTask& task, const std::byte* source, std::byte* target) {
  constexpr std::int64_t kPieceElements = 1024;
  alignas(kLineBytes) std::uint16_t piece[kPieceElements];
  const auto* const values = reinterpret_cast<const float*>(source);
  for (std::int64_t i = 0; i < task.row_elements; i += kPieceElements) {
    const std::int64_t elements = std::min(kPieceElements, task.row_elements - i);
    round_to_16_bits(values + i, elements, task.target_dtype, piece);
    const StreamedRow streamed = {reinterpret_cast<const std::byte*>(piece), target + 2 * i};
    stream_rows({&streamed, 1}, 2 * elements);
  }
}

void prefetch_for_writing(const std::byte* begin, std::int64_t bytes) {
  for (std::int64_t offset = 0; offset < bytes; offset += kLineBytes) {
    __builtin_prefetch(begin + offset, 1, 3);
  }
}

const std::byte* source_row(const StoreTask& task, std::int64_t row) {
  return task.source + row * task.row_stride * dtype_bytes(task.source_dtype);
}

template <typename Slot>
void store_few_rows(const StoreTask& task, const Slot* slots) {
  const std::int64_t ahead = std::max<std::int64_t>(1, kAheadBytes / row_bytes(task));
  Places places(task);
  Places places_ahead(task);
  for (std::int64_t row = 0; row < task.rows; ++row) {
    if (row + ahead < task.rows) {
      prefetch_for_writing(places_ahead.of(slots[row + ahead]), row_bytes(task));
    }
    store_row(task, source_row(task, row), slots[row], places.of(slots[row]));
  }
}

template <typename Slot>
void round_and_stream(const StoreTask& task, const Slot* slots) {
  Places places(task);
  for (std::int64_t row = 0; row < task.rows; ++row) {
    round_and_stream_row(task, source_row(task, row), places.of(slots[row]));
  }
}

// Rows as they are. REQUIRES: the sides' rows have as many bytes and lie as far apart.
template <typename Slot>
void stream_copies(std::span<const StoreTask> sides, const Slot* slots) {
  const StoreTask& first = sides.front();
  Places places(first);
  StreamedRow rows[kStreamedRows];
  std::size_t waiting = 0;
  for (std::int64_t row = 0; row < first.rows; ++row) {
    const std::ptrdiff_t offset = places.of(slots[row]) - first.target;
    for (const StoreTask& side : sides) {
      rows[waiting++] = {source_row(side, row), side.target + offset};
      if (waiting < kStreamedRows) continue;
      stream_rows(rows, row_bytes(first));
      waiting = 0;
    }
  }
  stream_rows({rows, waiting}, row_bytes(first));
}

template <typename Slot>
void store_side(const StoreTask& task, const Slot* slots) {
  if (!streams(task)) return store_few_rows(task, slots);
  if (task.source_dtype == task.target_dtype) {
    stream_copies<Slot>({&task, 1}, slots);
  } else {
    round_and_stream(task, slots);
  }
  end_streaming();
}

// Whether both sides are copied in one walk.
bool stream_together(std::span<const StoreTask> sides) {
  return std::all_of(sides.begin(), sides.end(), [&](const StoreTask& side) {
    return streams(side) && side.source_dtype == side.target_dtype &&
           row_bytes(side) == row_bytes(sides.front()) &&
           side.page_stride == sides.front().page_stride &&
           side.token_stride == sides.front().token_stride;
  });
}

template <typename Slot>
void store_all_rows(std::span<const StoreTask> sides, const Slot* slots) {
  if (!stream_together(sides)) {
    for (const StoreTask& side : sides) store_side(side, slots);
    return;
  }
  stream_copies(sides, slots);
  end_streaming();
}

}  // namespace

void store_rows(std::span<const StoreTask> sides, const std::int64_t* slots) {
  store_all_rows(sides, slots);
}

void store_rows(std::span<const StoreTask> sides, const std::int32_t* slots) {
  store_all_rows(sides, slots);
}

}  // namespace stemma
