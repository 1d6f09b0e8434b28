// A product is cut along N into runs of whole panels and, when there are many rows, along M too.
// The cut decides only who computes an output, never how.
#include "device/gemm.h"

#include <algorithm>
#include <array>

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

GemmKernel kernel_of(const PackedWeights& w) {
  return is_quantised(w.format()) ? quantised_gemm_kernel() : gemm_kernel();
}

void check_product(const Product& product) {
  STEMMA_CHECK_EQ(product.a.columns, product.w.k());
  STEMMA_CHECK_EQ(product.c.columns, product.w.n());
  STEMMA_CHECK_EQ(product.a.rows, product.c.rows);
  STEMMA_CHECK(
      product.a.row_stride >= product.a.columns && product.c.row_stride >= product.c.columns,
      "rows do not overlap");
}

// Panels run slowest, so that neighbouring tasks share weights while these are in a cache.
GemmTask task_of(const Product& product, std::span<const float> bias, const Cut& cut,
                 std::int64_t index) {
  const std::int64_t panel = index / cut.row_tasks * cut.panels;
  const std::int64_t row = index % cut.row_tasks * cut.rows;
  const std::int64_t column = panel * PackedWeights::kPanelColumns;
  GemmTask task;
  task.a = product.a.values + row * product.a.row_stride;
  task.a_stride = product.a.row_stride;
  task.rows = std::min(cut.rows, product.a.rows - row);
  task.panels = product.w.panel(panel);
  task.format = product.w.format();
  task.k = product.w.k();
  task.columns = std::min(cut.panels * PackedWeights::kPanelColumns, product.w.n() - column);
  task.bias_or_null = bias.empty() ? nullptr : bias.data() + column;
  task.c = product.c.values + row * product.c.row_stride + column;
  task.c_stride = product.c.row_stride;
  return task;
}

}  // namespace

void gemm(const ConstMatrixView& a, const PackedWeights& w, std::span<const float> bias,
          const MatrixView& c, ThreadPool& pool) {
  const GemmOutput output = {w, bias, c};
  gemm_all(a, std::span(&output, 1), pool);
}

void gemm_all(const ConstMatrixView& a, std::span<const GemmOutput> outputs, ThreadPool& pool) {
  STEMMA_CHECK_LE(outputs.size(), kGemmOutputsMax);
  std::array<Cut, kGemmOutputsMax> cuts;
  std::array<std::int64_t, kGemmOutputsMax> ends;  // of the tasks of each
  std::int64_t tasks = 0;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const GemmOutput& output = outputs[i];
    check_product({a, output.w, output.c});
    STEMMA_CHECK(
        output.bias.empty() || static_cast<std::int64_t>(output.bias.size()) == output.w.n(),
        "a bias has one value for each output");
    if (a.rows == 0) return;
    cuts[i] = cut_product(a.rows, output.w, pool.threads());
    tasks += cuts[i].row_tasks * cuts[i].panel_tasks;
    ends[i] = tasks;
  }
  pool.run(tasks, [&](std::int64_t index, int) {
    std::size_t i = 0;
    while (index >= ends[i]) ++i;
    const GemmOutput& output = outputs[i];
    const std::int64_t own = i == 0 ? index : index - ends[i - 1];
    kernel_of(output.w)(task_of({a, output.w, output.c}, output.bias, cuts[i], own));
  });
}

void gemm_each(std::int64_t count, FunctionRef<Product(std::int64_t index)> product,
               ThreadPool& pool) {
  if (count == 0) return;
  const Product first = product(0);
  if (first.a.rows == 0) return;
  const GemmKernel kernel = kernel_of(first.w);
  const Cut cut = cut_product(first.a.rows, first.w, pool.threads());
  const std::int64_t tasks = cut.row_tasks * cut.panel_tasks;
  pool.run(count * tasks, [&](std::int64_t index, int) {
    const Product own = product(index / tasks);
    check_product(own);
    STEMMA_CHECK(own.a.rows == first.a.rows && own.w.n() == first.w.n() && own.w.k() == first.w.k(),
                 "the products have one shape");
    STEMMA_CHECK(own.w.format() == first.w.format(), "and one format");
    kernel(task_of(own, {}, cut, index % tasks));
  });
}

}  // namespace stemma
