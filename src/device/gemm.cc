// A product is cut along N into runs of whole panels and, when there are many rows, along M too.
// The cut decides only who computes an output, never how.
#include "device/gemm.h"

#include <algorithm>

#include "base/check.h"
#include "base/math.h"
#include "device/gemm_kernel.h"

namespace stemma {

namespace {

// Panels that share one pass over those activations.
constexpr std::int64_t kTaskPanelsMax = 16;
// Weights below which a task costs more to hand out than to share.
constexpr std::int64_t kTaskBytesMin = 128 << 10;
// Tasks a thread should get, so that the last to finish is not far behind.
constexpr std::int64_t kTasksPerThread = 4;

// Every target's tile divides this: only the last task of a column of tasks has a ragged tile.
constexpr std::int64_t kTileRowsMax = 12;

struct Cut {
  std::int64_t rows = 0;    // a task's
  std::int64_t panels = 0;  // a task's
  std::int64_t row_tasks = 0;
  std::int64_t panel_tasks = 0;
};

Cut cut_product(std::int64_t rows, const PackedWeights& w, int threads) {
  Cut cut;
  cut.row_tasks = ceil_div(rows, kGemmTaskRowsMax);
  cut.rows = round_up(ceil_div(rows, cut.row_tasks), kTileRowsMax);
  const std::int64_t share = ceil_div(w.panels() * cut.row_tasks, threads * kTasksPerThread);
  const auto fewest =
      ceil_div(kTaskBytesMin, static_cast<std::int64_t>(w.panel_bytes()) * cut.rows);
  cut.panels = std::min(std::max(share, fewest), std::max(kTaskPanelsMax, fewest));
  cut.row_tasks = ceil_div(rows, cut.rows);
  cut.panel_tasks = ceil_div(w.panels(), cut.panels);
  return cut;
}

}  // namespace

void gemm(const ConstMatrixView& a, const PackedWeights& w, std::span<const float> bias,
          const MatrixView& c, ThreadPool& pool) {
  STEMMA_CHECK_EQ(a.columns, w.k());
  STEMMA_CHECK_EQ(c.columns, w.n());
  STEMMA_CHECK_EQ(a.rows, c.rows);
  STEMMA_CHECK(a.row_stride >= a.columns && c.row_stride >= c.columns, "rows do not overlap");
  STEMMA_CHECK(bias.empty() || static_cast<std::int64_t>(bias.size()) == w.n(),
               "a bias has one value for each output");
  if (a.rows == 0) return;
  const GemmKernel kernel = gemm_kernel();
  const Cut cut = cut_product(a.rows, w, pool.threads());
  pool.run(cut.row_tasks * cut.panel_tasks, [&](std::int64_t index, int) {
    // Panels run slowest, so that neighbouring tasks share weights while these are in a cache.
    const std::int64_t panel = index / cut.row_tasks * cut.panels;
    const std::int64_t row = index % cut.row_tasks * cut.rows;
    const std::int64_t column = panel * PackedWeights::kPanelColumns;
    GemmTask task;
    task.a = a.values + row * a.row_stride;
    task.a_stride = a.row_stride;
    task.rows = std::min(cut.rows, a.rows - row);
    task.panels = w.panel(panel);
    task.type = w.type();
    task.k = w.k();
    task.columns = std::min(cut.panels * PackedWeights::kPanelColumns, w.n() - column);
    task.bias_or_null = bias.empty() ? nullptr : bias.data() + column;
    task.c = c.values + row * c.row_stride + column;
    task.c_stride = c.row_stride;
    kernel(task);
  });
}

}  // namespace stemma
