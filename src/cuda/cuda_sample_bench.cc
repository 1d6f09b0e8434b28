#include "cuda/cuda_sample_bench.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "base/prng.h"
#include "cuda/rows_cuda.h"
#include "cuda/sample_cuda.h"
#include "device/cuda_clock.h"

namespace stemma {

namespace {

struct Case {
  const char* rules;
  RowSampling sampling;
};
constexpr std::array<Case, 5> kCases = {{
    {"none", {}},
    {"temperature", {.temperature = 1}},
    {"top_k", {.temperature = 1, .top_k = 50}},
    {"top_p", {.temperature = 1, .top_p = 0.95f}},
    {"all", {.temperature = 0.8f, .top_k = 200, .top_p = 0.9f, .min_p = 0.01f}},
}};

struct Stage {
  std::int64_t rows_max = 0;
  std::int64_t columns = 0;
  CudaStream stream;
  CudaClock clock;
  CudaMemory logits;
  CudaMemory sampling;
  CudaMemory tokens;
  PinnedMemory pinned;  // of logits, then of what rows say
};

// Bell-shaped logits, at most 12 from their mean.
Status fill_logits(Stage& stage) {
  Prng random(1);
  auto* const logits = stage.pinned.as<float>();
  for (std::int64_t i = 0; i < stage.rows_max * stage.columns; ++i) {
    const std::uint64_t bits = random();
    std::uint64_t sum = 0;
    for (int part = 0; part < 4; ++part) sum += bits >> (16 * part) & 0xFFFF;
    logits[i] = 6.0f * (static_cast<float>(sum) * 0x1p-16f - 2.0f);
  }
  STEMMA_RETURN_IF_ERROR(
      stage.stream.copy_in(stage.logits.bytes(), logits, stage.logits.size_bytes()));
  return stage.stream.synchronize();
}

Result<Stage> make_stage(CudaDevice& device, const CudaSampleBenchOptions& options) {
  Stage stage;
  stage.rows_max = *std::max_element(options.rows.begin(), options.rows.end());
  stage.columns = options.columns;
  const auto rows = static_cast<std::size_t>(stage.rows_max);
  STEMMA_ASSIGN_OR_RETURN(stage.stream, device.make_stream());
  STEMMA_ASSIGN_OR_RETURN(stage.clock, CudaClock::create(device));
  const std::size_t logit_bytes = rows * static_cast<std::size_t>(stage.columns) * sizeof(float);
  STEMMA_ASSIGN_OR_RETURN(stage.logits, device.allocate(logit_bytes, stage.stream));
  STEMMA_ASSIGN_OR_RETURN(stage.sampling,
                          device.allocate(rows * sizeof(RowSampling), stage.stream));
  STEMMA_ASSIGN_OR_RETURN(stage.tokens, device.allocate(rows * sizeof(std::int32_t), stage.stream));
  STEMMA_ASSIGN_OR_RETURN(
      stage.pinned, device.allocate_pinned(std::max(logit_bytes, rows * sizeof(RowSampling))));
  STEMMA_RETURN_IF_ERROR(fill_logits(stage));
  return stage;
}

Status set_rules(Stage& stage, const RowSampling& sampling) {
  Prng random(2);
  auto* const rows = stage.pinned.as<RowSampling>();
  for (std::int64_t i = 0; i < stage.rows_max; ++i) {
    rows[i] = sampling;
    rows[i].unit = random.unit();
  }
  STEMMA_RETURN_IF_ERROR(
      stage.stream.copy_in(stage.sampling.bytes(), rows, stage.sampling.size_bytes()));
  return stage.stream.synchronize();
}

Status draw(Stage& stage, std::int64_t rows) {
  return sample_rows(stage.stream, {.logits = stage.logits.as<float>(),
                                    .sampling = stage.sampling.as<RowSampling>(),
                                    .tokens = stage.tokens.as<std::int32_t>(),
                                    .rows = rows,
                                    .columns = stage.columns});
}

Status read_once(Stage& stage, std::int64_t rows) {
  return top_rows(stage.stream, {.logits = stage.logits.as<float>(),
                                 .tokens = stage.tokens.as<std::int32_t>(),
                                 .rows = rows,
                                 .columns = stage.columns});
}

// Microseconds of one of several calls.
Result<double> call_us(Stage& stage, std::int64_t rows, int calls,
                       Status (*call)(Stage&, std::int64_t)) {
  STEMMA_ASSIGN_OR_RETURN(const double seconds, stage.clock.seconds(stage.stream, calls, [&](int) {
    return call(stage, rows);
  }));
  return seconds * 1e6;
}

Result<BenchLine> bench_case(Stage& stage, std::int64_t rows, const Case& what,
                             const CudaSampleBenchOptions& options) {
  STEMMA_RETURN_IF_ERROR(set_rules(stage, what.sampling));
  STEMMA_RETURN_IF_ERROR(draw(stage, rows));  // the first call of a kernel loads it
  STEMMA_RETURN_IF_ERROR(read_once(stage, rows));
  std::vector<double> values(static_cast<std::size_t>(options.samples));
  std::vector<double> bounds(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    STEMMA_ASSIGN_OR_RETURN(values[i], call_us(stage, rows, options.calls, draw));
    STEMMA_ASSIGN_OR_RETURN(bounds[i], call_us(stage, rows, options.calls, read_once));
  }
  BenchLine line;
  line.bench = "cuda_sample";
  line.params = {{"rules", what.rules},
                 {"rows", std::to_string(rows)},
                 {"vocab_tokens", std::to_string(stage.columns)}};
  line.value = median(values);
  line.unit = "us";
  line.bound = median(bounds);
  line.bound_name = "top_rows";
  line.ratio = line.value > 0 ? line.bound / line.value : 0;
  line.repeats = options.samples;
  line.spread = line.value > 0 ? spread(values) : 0;
  return line;
}

}  // namespace

Status bench_cuda_sampling(CudaDevice& device, const CudaSampleBenchOptions& options,
                           BenchSink sink) {
  STEMMA_ASSIGN_OR_RETURN(Stage stage, make_stage(device, options));
  for (const std::int64_t rows : options.rows) {
    for (const Case& what : kCases) {
      STEMMA_ASSIGN_OR_RETURN(const BenchLine line, bench_case(stage, rows, what, options));
      sink(line);
    }
  }
  return {};
}

}  // namespace stemma
