#include "model/activation_rows.h"

#include <algorithm>
#include <cstddef>

#include "base/math.h"

namespace stemma {
namespace {

// Rows begin at cache lines.
constexpr std::int64_t kAlignmentFloats = 16;

// An operation on one row takes about as long as handing out a task: a task takes several rows.
constexpr std::int64_t kRowsPerTaskMin = 8;
constexpr std::int64_t kTasksPerThread = 4;

}  // namespace

Result<Buffer> allocate_rows(std::span<const RowsWanted> wanted) {
  std::int64_t floats = 0;
  for (const RowsWanted& part : wanted) {
    floats += round_up(part.rows_max * part.columns, kAlignmentFloats);
  }
  STEMMA_ASSIGN_OR_RETURN(Buffer buffer,
                          Buffer::allocate(static_cast<std::size_t>(floats) * sizeof(float)));
  float* next = buffer.as<float>().data();
  for (const RowsWanted& part : wanted) {
    part.rows = Rows{next, part.columns};
    next += round_up(part.rows_max * part.columns, kAlignmentFloats);
  }
  return buffer;
}

void for_rows(ThreadPool& threads, std::int64_t rows,
              FunctionRef<void(std::int64_t row)> operation) {
  const std::int64_t tasks =
      std::clamp<std::int64_t>(rows / kRowsPerTaskMin, 1, kTasksPerThread * threads.threads());
  threads.run(tasks, [&](std::int64_t task, int) {
    const std::int64_t end = rows * (task + 1) / tasks;
    for (std::int64_t row = rows * task / tasks; row < end; ++row) {
      operation(row);
    }
  });
}

}  // namespace stemma
