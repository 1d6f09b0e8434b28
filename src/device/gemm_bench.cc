#include "device/gemm_bench.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/float16.h"
#include "base/math.h"
#include "device/buffer.h"
#include "device/gemm.h"
#include "device/machine_probe.h"
#include "device/openblas.h"
#include "device/simd_target.h"

namespace stemma {

namespace {

constexpr int kProductsMax = 8;  // of a small shape in one sample
constexpr double kSampleFlops = 16e9;
constexpr double kComparedFlops = 4e9;  // of each of two, in one sample

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
constexpr std::array<std::int64_t, 3> kFewRoundedRows = {1, 4, 16};
constexpr std::array kRounded = {WeightFormat::kInt8, WeightFormat::kInt4,
                                 WeightFormat::kInt4Shifted};
constexpr std::int64_t kComparedRows = 16;

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

Result<PackedWeights> make_weights(Shape shape, WeightFormat format, ThreadPool& pool) {
  constexpr std::uint16_t kOnesAndHalves[] = {0x3F80, 0xBF00};  // bf16: 1 and -0.5
  std::vector<std::uint16_t> values(static_cast<std::size_t>(shape.n * shape.k));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = kOnesAndHalves[i % 3 % 2];
  if (!is_quantised(format)) {
    return PackedWeights::pack(values.data(), WeightType::kBf16, shape.n, shape.k, pool);
  }
  StoredMatrix stored = {
      .weights = values.data(), .type = WeightType::kBf16, .n = shape.n, .k = shape.k};
  const auto groups =
      static_cast<std::size_t>(shape.n * ceil_div(shape.k, PackedWeights::kGroupInputs));
  const std::vector<BFloat16> scales(groups, to_bfloat16(0.125f));
  std::vector<std::int8_t> shifts(groups);
  for (std::size_t i = 0; i < groups; ++i) shifts[i] = static_cast<std::int8_t>(1 + i % 4);
  if (format == WeightFormat::kInt4Shifted) {
    stored.scales_or_null = scales.data();
    stored.shifts_or_null = shifts.data();
  }
  RoundingError unused;
  return PackedWeights::quantise(stored, format, pool, unused);
}

// What a format's products are computed with at most: weights of 8 and 4 bits meet rows of 16 bits
// in pairs.
struct Peak {
  const char* name;
  double (*rested)(ThreadPool& pool);
  double (*now)(ThreadPool& pool);
};

Peak peak_of(WeightFormat format) {
  if (is_quantised(format)) {
    return {"pair_peak", pair_peak_gflop_per_s, pair_peak_now_gflop_per_s};
  }
  return {"fma_peak", fma_peak_gflop_per_s, fma_peak_now_gflop_per_s};
}

// What one line is of.
struct Case {
  std::int64_t rows = 0;
  Shape shape;
  WeightFormat format = WeightFormat::kBf16;
};

// Samples of one case, each with the bound measured around it.
class Samples {
 public:
  void add(double value, double bound) {
    values_.push_back(value);
    bounds_.push_back(bound);
    ratios_.push_back(value / bound);
  }

  BenchLine line(const Case& subject, int threads) const {
    BenchLine line;
    line.bench = "gemm";
    line.params = {{"rows", std::to_string(subject.rows)},
                   {"n", std::to_string(subject.shape.n)},
                   {"k", std::to_string(subject.shape.k)},
                   {"weights", std::string(weight_format_name(subject.format))},
                   {"threads", std::to_string(threads)},
                   {"simd", std::string(simd_target_name())}};
    line.value = median(values_);
    line.unit = "gflop/s";
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

int products_of(double flops_each, double flops) {
  return static_cast<int>(std::clamp(flops / flops_each, 1.0, double{kProductsMax}));
}

Result<BenchLine> bench_prefill(const Case& subject, int repeats, ThreadPool& pool) {
  STEMMA_ASSIGN_OR_RETURN(const PackedWeights w, make_weights(subject.shape, subject.format, pool));
  STEMMA_ASSIGN_OR_RETURN(const Operands operands,
                          make_operands(subject.rows, subject.shape, pool));
  const Peak peak = peak_of(subject.format);
  const double product_flops = flops(subject.rows, subject.shape);
  const int products = products_of(product_flops, kSampleFlops);
  Samples samples;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    double seconds = 0;
    std::vector<double> peaks;
    for (int i = 0; i < products; ++i) {
      const double start = seconds_now();
      gemm(operands.a_view, w, {}, operands.c_view, pool);
      seconds += seconds_now() - start;
      peaks.push_back(peak.now(pool));
    }
    samples.add(product_flops * products / seconds * 1e-9, median(peaks));
  }
  BenchLine line = samples.line(subject, pool.threads());
  line.params.emplace_back("rested_peak_gflop_per_s",
                           std::to_string(std::llround(peak.rested(pool))));
  line.bound_name = peak.name;
  return Result<BenchLine>(std::move(line));
}

// Many equal layers, so that none is in a cache when its turn comes.
struct Cycle {
  WeightFormat format = WeightFormat::kBf16;
  std::vector<PackedWeights> layers;
  std::vector<std::span<const std::byte>> areas;
  double weight_bytes = 0;
};

Result<Cycle> make_cycle(WeightFormat format, std::size_t weight_bytes, ThreadPool& pool) {
  Cycle cycle;
  cycle.format = format;
  do {
    STEMMA_ASSIGN_OR_RETURN(PackedWeights w, make_weights(kCycledShape, format, pool));
    const std::size_t layer_bytes = w.size_bytes();
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
  const Peak peak_of_format = peak_of(cycle.format);
  const double peak =
      one_row ? std::numeric_limits<double>::infinity() : peak_of_format.rested(pool);
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
  BenchLine line = samples.line({rows, kCycledShape, cycle.format}, pool.threads());
  if (one_row) line.unit = "gb/s";
  line.bound_name = reading_is_tighter ? "read_bandwidth" : peak_of_format.name;
  return Result<BenchLine>(std::move(line));
}

// The same weights in f32, as OpenBLAS reads them, layer behind layer.
Result<Buffer> make_stored(std::int64_t layers, Shape shape, ThreadPool& pool) {
  const auto values = static_cast<std::size_t>(layers * shape.n * shape.k);
  STEMMA_ASSIGN_OR_RETURN(Buffer stored, Buffer::allocate(values * sizeof(float)));
  pool.run(layers, [&](std::int64_t layer, int) {
    const auto own = static_cast<std::size_t>(shape.n * shape.k);
    const auto weights = stored.as<float>().subspan(static_cast<std::size_t>(layer) * own, own);
    for (std::size_t i = 0; i < own; ++i) weights[i] = i % 3 % 2 == 0 ? 1.0f : -0.5f;
  });
  return Result<Buffer>(std::move(stored));
}

// Ours, of bf16 weights, against OpenBLAS's, of the same weights in f32; they take turns.
Result<BenchLine> bench_against(const OpenBlas& blas, std::span<const PackedWeights> layers,
                                const Case& subject, int repeats, ThreadPool& pool) {
  const Shape shape = subject.shape;
  STEMMA_ASSIGN_OR_RETURN(Buffer stored, make_stored(std::ssize(layers), shape, pool));
  STEMMA_ASSIGN_OR_RETURN(const Operands operands, make_operands(subject.rows, shape, pool));
  blas.set_threads(pool.threads());
  const double pass_flops = flops(subject.rows, shape) * static_cast<double>(layers.size());
  const int passes = products_of(pass_flops, kComparedFlops);
  const auto rate_of = [&](FunctionRef<void(std::size_t layer)> product) {
    const double start = seconds_now();
    for (int pass = 0; pass < passes; ++pass) {
      for (std::size_t layer = 0; layer < layers.size(); ++layer) product(layer);
    }
    return pass_flops * passes / (seconds_now() - start) * 1e-9;
  };
  const auto own = static_cast<std::size_t>(shape.n * shape.k);
  const auto ours = [&](std::size_t layer) {
    gemm(operands.a_view, layers[layer], {}, operands.c_view, pool);
  };
  const auto theirs = [&](std::size_t layer) {
    blas.multiply(operands.a_view, stored.as<float>().data() + layer * own, operands.c_view);
  };
  theirs(0);
  Samples samples;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const double before = rate_of(theirs);
    fma_peak_now_gflop_per_s(pool);  // until their threads wait no more
    const double own_rate = rate_of(ours);
    samples.add(own_rate, (before + rate_of(theirs)) / 2);
    fma_peak_now_gflop_per_s(pool);
  }
  BenchLine line = samples.line(subject, pool.threads());
  line.params.emplace_back("against", "openblas");
  line.bound_name = "openblas_sgemm";
  return Result<BenchLine>(std::move(line));
}

// A line that says what is missing where there is nothing to compare with.
BenchLine nothing_to_compare_with() {
  BenchLine line;
  line.bench = "gemm";
  line.params = {{"against", "openblas"}, {"missing", "libopenblas.so.0"}};
  line.bound_name = "openblas_sgemm";
  return line;
}

Status bench_all_against(const GemmBenchOptions& options, const Cycle& cycle, ThreadPool& pool,
                         std::vector<BenchLine>& lines) {
  const std::optional<OpenBlas> blas = OpenBlas::try_load();
  if (!blas.has_value()) {
    lines.push_back(nothing_to_compare_with());
    return {};
  }
  for (const Shape shape : kPrefillShapes) {
    STEMMA_ASSIGN_OR_RETURN(const PackedWeights w, make_weights(shape, WeightFormat::kBf16, pool));
    STEMMA_ASSIGN_OR_RETURN(BenchLine line,
                            bench_against(*blas, std::span(&w, 1), {options.prefill_rows, shape},
                                          options.repeats, pool));
    lines.push_back(std::move(line));
  }
  STEMMA_ASSIGN_OR_RETURN(
      BenchLine line,
      bench_against(*blas, cycle.layers, {kComparedRows, kCycledShape}, options.repeats, pool));
  lines.push_back(std::move(line));
  return {};
}

Status bench_rounded(const GemmBenchOptions& options, const Cycle& cycle, ThreadPool& pool,
                     std::vector<BenchLine>& lines) {
  for (const std::int64_t rows : kFewRoundedRows) {
    STEMMA_ASSIGN_OR_RETURN(BenchLine line, bench_few_rows(cycle, rows, options.repeats, pool));
    lines.push_back(std::move(line));
  }
  STEMMA_ASSIGN_OR_RETURN(
      BenchLine line,
      bench_prefill({options.prefill_rows, kCycledShape, cycle.format}, options.repeats, pool));
  lines.push_back(std::move(line));
  return {};
}

// Of each format.
struct Cycles {
  Cycle stored;
  std::array<Cycle, kRounded.size()> rounded;
};

Result<Cycles> make_cycles(std::size_t weight_bytes, ThreadPool& pool) {
  Cycles cycles;
  STEMMA_ASSIGN_OR_RETURN(cycles.stored, make_cycle(WeightFormat::kBf16, weight_bytes, pool));
  for (std::size_t i = 0; i < kRounded.size(); ++i) {
    STEMMA_ASSIGN_OR_RETURN(cycles.rounded[i], make_cycle(kRounded[i], weight_bytes, pool));
  }
  return Result<Cycles>(std::move(cycles));
}

Status bench_with_threads(const GemmBenchOptions& options, const Cycles& cycles, ThreadPool& pool,
                          std::vector<BenchLine>& lines) {
  for (const Shape shape : kPrefillShapes) {
    STEMMA_ASSIGN_OR_RETURN(BenchLine line,
                            bench_prefill({options.prefill_rows, shape}, options.repeats, pool));
    lines.push_back(std::move(line));
  }
  for (const std::int64_t rows : kFewRows) {
    STEMMA_ASSIGN_OR_RETURN(BenchLine line,
                            bench_few_rows(cycles.stored, rows, options.repeats, pool));
    lines.push_back(std::move(line));
  }
  for (const Cycle& cycle : cycles.rounded) {
    STEMMA_RETURN_IF_ERROR(bench_rounded(options, cycle, pool, lines));
  }
  return bench_all_against(options, cycles.stored, pool, lines);
}

}  // namespace

Result<std::vector<BenchLine>> bench_gemm(const GemmBenchOptions& options) {
  STEMMA_CHECK(options.threads_max >= 1 && options.repeats >= 1, "a benchmark runs");
  constexpr std::size_t kWeightBytesMax = std::size_t{5} << 28;
  const std::size_t weight_bytes =
      options.weight_bytes != 0 ? options.weight_bytes : std::min(2 * llc_bytes(), kWeightBytesMax);
  ThreadPool one(1);
  STEMMA_ASSIGN_OR_RETURN(const Cycles cycles, make_cycles(weight_bytes, one));
  std::vector<BenchLine> lines;
  STEMMA_RETURN_IF_ERROR(bench_with_threads(options, cycles, one, lines));
  if (options.threads_max == 1) return Result<std::vector<BenchLine>>(std::move(lines));
  ThreadPool many(options.threads_max);
  ThreadPool pair(2);
  const std::size_t first = lines.size();
  const double ratio_before = two_core_ratio(pair);
  STEMMA_RETURN_IF_ERROR(bench_with_threads(options, cycles, many, lines));
  const double ratio = std::min(ratio_before, two_core_ratio(pair));
  for (std::size_t i = first; i < lines.size(); ++i) {
    lines[i].params.emplace_back("two_core_ratio", std::to_string(ratio));
  }
  return Result<std::vector<BenchLine>>(std::move(lines));
}

}  // namespace stemma
