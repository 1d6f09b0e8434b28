#include "model/activation_rows.h"

#include <algorithm>
#include <cstddef>

#include "base/math.h"

namespace stemma {
namespace {

// Rows begin at cache lines.
constexpr std::int64_t kAlignmentFloats = 16;

// What a thread does to as many values takes about as long as it takes to hand it a task: a few
// microseconds.
constexpr std::int64_t kValuesPerTaskMin = 16'384;
constexpr std::int64_t kUsualColumns = 2048;
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

void for_rows(ThreadPool& threads, const RowWork& work,
              FunctionRef<void(std::int64_t row)> operation) {
  const std::int64_t values = work.rows * work.columns;
  const std::int64_t tasks_max = std::min(work.rows, kTasksPerThread * threads.threads());
  const std::int64_t tasks =
      std::clamp<std::int64_t>(values / kValuesPerTaskMin, 1, std::max<std::int64_t>(tasks_max, 1));
  threads.run(tasks, [&](std::int64_t task, int) {
    const std::int64_t end = work.rows * (task + 1) / tasks;
    for (std::int64_t row = work.rows * task / tasks; row < end; ++row) {
      operation(row);
    }
  });
}

void for_rows(ThreadPool& threads, std::int64_t rows,
              FunctionRef<void(std::int64_t row)> operation) {
  for_rows(threads, {rows, kUsualColumns}, operation);
}

}  // namespace stemma
