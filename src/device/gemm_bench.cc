#include "device/gemm_bench.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "base/check.h"
#include "device/buffer.h"
#include "device/gemm.h"
#include "device/machine_probe.h"
#include "device/simd_target.h"

namespace stemma {

namespace {

constexpr int kProductsMax = 8;  // of a small shape in one sample
constexpr double kSampleFlops = 16e9;

struct Shape {
  std::int64_t n = 0;
  std::int64_t k = 0;
};

// Projections and feed-forward layers of models of 0.5 to 3 billion parameters.
constexpr std::array<Shape, 6> kPrefillShapes = {Shape{896, 896},   Shape{4864, 896},
                                                 Shape{896, 4864},  Shape{2048, 2048},
                                                 Shape{8192, 2048}, Shape{2048, 8192}};
constexpr Shape kCycledShape{4864, 896};
constexpr std::array<std::int64_t, 6> kFewRows = {1, 2, 4, 8, 16, 32};

double flops(std::int64_t rows, Shape shape) {
  return 2.0 * static_cast<double>(rows) * static_cast<double>(shape.n) *
         static_cast<double>(shape.k);
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A and C of a product, prefaulted, with values that are neither zero nor subnormal.
struct Operands {
  Buffer a;
  Buffer c;
  ConstMatrixView a_view;
  MatrixView c_view;
};

Result<Operands> make_operands(std::int64_t rows, Shape shape, ThreadPool& pool) {
  Operands operands;
  const auto a_values = static_cast<std::size_t>(rows * shape.k);
  const auto c_values = static_cast<std::size_t>(rows * shape.n);
  STEMMA_ASSIGN_OR_RETURN(operands.a, Buffer::allocate(a_values * sizeof(float)));
  STEMMA_ASSIGN_OR_RETURN(operands.c, Buffer::allocate(c_values * sizeof(float)));
  const std::span<float> a = operands.a.as<float>();
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = 0.5f + static_cast<float>(i % 7) * 0.125f;
  operands.c.prefault(pool);
  operands.a_view = ConstMatrixView{a.data(), rows, shape.k, shape.k};
  operands.c_view = MatrixView{operands.c.as<float>().data(), rows, shape.n, shape.n};
  return Result<Operands>(std::move(operands));
}

Result<PackedWeights> make_weights(Shape shape, ThreadPool& pool) {
  constexpr std::uint16_t kOnesAndHalves[] = {0x3F80, 0xBF00};  // bf16: 1 and -0.5
  std::vector<std::uint16_t> values(static_cast<std::size_t>(shape.n * shape.k));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = kOnesAndHalves[i % 3 % 2];
  return PackedWeights::pack(values.data(), WeightType::kBf16, shape.n, shape.k, pool);
}

// Samples of one case, each with the bound measured around it.
class Samples {
 public:
  void add(double value, double bound) {
    values_.push_back(value);
    bounds_.push_back(bound);
    ratios_.push_back(value / bound);
  }

  BenchLine line(std::int64_t rows, Shape shape, int threads) const {
    BenchLine line;
    line.bench = "gemm";
    line.params = {{"rows", std::to_string(rows)},       {"n", std::to_string(shape.n)},
                   {"k", std::to_string(shape.k)},       {"weights", "bf16"},
                   {"threads", std::to_string(threads)}, {"simd", std::string(simd_target_name())}};
    line.value = median(values_);
    line.bound = median(bounds_);
    line.ratio = median(ratios_);
    line.repeats = static_cast<int>(values_.size());
    line.spread = spread(ratios_);
    return line;
  }

 private:
  std::vector<double> values_;
  std::vector<double> bounds_;
  std::vector<double> ratios_;
};

Result<BenchLine> bench_prefill(Shape shape, const GemmBenchOptions& options, ThreadPool& pool) {
  STEMMA_ASSIGN_OR_RETURN(const PackedWeights w, make_weights(shape, pool));
  STEMMA_ASSIGN_OR_RETURN(const Operands operands,
                          make_operands(options.prefill_rows, shape, pool));
  const double product_flops = flops(options.prefill_rows, shape);
  const int products =
      static_cast<int>(std::clamp(kSampleFlops / product_flops, 1.0, double{kProductsMax}));
  Samples samples;
  for (int repeat = 0; repeat < options.repeats; ++repeat) {
    double seconds = 0;
    std::vector<double> peaks;
    for (int i = 0; i < products; ++i) {
      const double start = seconds_now();
      gemm(operands.a_view, w, {}, operands.c_view, pool);
      seconds += seconds_now() - start;
      peaks.push_back(fma_peak_now_gflop_per_s(pool));
    }
    samples.add(product_flops * products / seconds * 1e-9, median(peaks));
  }
  BenchLine line = samples.line(options.prefill_rows, shape, pool.threads());
  line.params.emplace_back("rested_peak_gflop_per_s",
                           std::to_string(std::llround(fma_peak_gflop_per_s(pool))));
  line.unit = "gflop/s";
  line.bound_name = "fma_peak";
  return Result<BenchLine>(std::move(line));
}

// Many equal layers, so that none is in a cache when its turn comes.
struct Cycle {
  std::vector<PackedWeights> layers;
  std::vector<std::span<const std::byte>> areas;
  double weight_bytes = 0;
};

Result<Cycle> make_cycle(std::size_t weight_bytes, ThreadPool& pool) {
  Cycle cycle;
  do {
    STEMMA_ASSIGN_OR_RETURN(PackedWeights w, make_weights(kCycledShape, pool));
    const auto layer_bytes = static_cast<std::size_t>(w.panels()) * w.panel_bytes();
    cycle.areas.emplace_back(w.panel(0), layer_bytes);
    cycle.weight_bytes += static_cast<double>(layer_bytes);
    cycle.layers.push_back(std::move(w));
  } while (cycle.weight_bytes < static_cast<double>(weight_bytes));
  return Result<Cycle>(std::move(cycle));
}

Result<BenchLine> bench_few_rows(const Cycle& cycle, std::int64_t rows, int repeats,
                                 ThreadPool& pool) {
  STEMMA_ASSIGN_OR_RETURN(const Operands operands, make_operands(rows, kCycledShape, pool));
  const double cycle_flops = flops(rows, kCycledShape) * static_cast<double>(cycle.layers.size());
  const double flops_per_byte = cycle_flops / cycle.weight_bytes;
  const bool one_row = rows == 1;
  const double peak =
      one_row ? std::numeric_limits<double>::infinity() : fma_peak_gflop_per_s(pool);
  Samples samples;
  bool reading_is_tighter = true;
  double read_before = read_pass_gb_per_s(cycle.areas, pool);
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const double start = seconds_now();
    for (const PackedWeights& w : cycle.layers) {
      gemm(operands.a_view, w, {}, operands.c_view, pool);
    }
    const double rate = cycle.weight_bytes / (seconds_now() - start) * 1e-9;
    const double read_after = read_pass_gb_per_s(cycle.areas, pool);
    const double read = (read_before + read_after) / 2;
    read_before = read_after;
    reading_is_tighter = read * flops_per_byte < peak;
    const double bound = std::min(read * flops_per_byte, peak);
    samples.add(one_row ? rate : rate * flops_per_byte, one_row ? read : bound);
  }
  BenchLine line = samples.line(rows, kCycledShape, pool.threads());
  line.unit = one_row ? "gb/s" : "gflop/s";
  line.bound_name = reading_is_tighter ? "read_bandwidth" : "fma_peak";
  return Result<BenchLine>(std::move(line));
}

Status bench_with_threads(const GemmBenchOptions& options, const Cycle& cycle, ThreadPool& pool,
                          std::vector<BenchLine>& lines) {
  for (const Shape shape : kPrefillShapes) {
    STEMMA_ASSIGN_OR_RETURN(BenchLine line, bench_prefill(shape, options, pool));
    lines.push_back(std::move(line));
  }
  for (const std::int64_t rows : kFewRows) {
    STEMMA_ASSIGN_OR_RETURN(BenchLine line, bench_few_rows(cycle, rows, options.repeats, pool));
    lines.push_back(std::move(line));
  }
  return {};
}

}  // namespace

Result<std::vector<BenchLine>> bench_gemm(const GemmBenchOptions& options) {
  STEMMA_CHECK(options.threads_max >= 1 && options.repeats >= 1, "a benchmark runs");
  constexpr std::size_t kWeightBytesMax = std::size_t{5} << 28;
  const std::size_t weight_bytes =
      options.weight_bytes != 0 ? options.weight_bytes : std::min(2 * llc_bytes(), kWeightBytesMax);
  ThreadPool one(1);
  STEMMA_ASSIGN_OR_RETURN(const Cycle cycle, make_cycle(weight_bytes, one));
  std::vector<BenchLine> lines;
  STEMMA_RETURN_IF_ERROR(bench_with_threads(options, cycle, one, lines));
  if (options.threads_max == 1) return Result<std::vector<BenchLine>>(std::move(lines));
  ThreadPool many(options.threads_max);
  ThreadPool pair(2);
  const std::size_t first = lines.size();
  const double ratio_before = two_core_ratio(pair);
  STEMMA_RETURN_IF_ERROR(bench_with_threads(options, cycle, many, lines));
  const double ratio = std::min(ratio_before, two_core_ratio(pair));
  for (std::size_t i = first; i < lines.size(); ++i) {
    lines[i].params.emplace_back("two_core_ratio", std::to_string(ratio));
  }
  return Result<std::vector<BenchLine>>(std::move(lines));
}

}  // namespace stemma
