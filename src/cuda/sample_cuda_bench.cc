// cuda_cuda_bench: what drawing the tokens of a decode step takes, beside reading its logits once
// for the largest (top_rows). Both over the same logits again and again, which the caches of a
// large GPU hold as they hold what a product has just written.
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "base/prng.h"
#include "cuda/rows_cuda.h"
#include "cuda/sample_cuda.h"
#include "device/cuda_bench.h"

namespace stemma {

namespace {

constexpr std::int64_t kVocab = 128256;
constexpr std::int64_t kRowsMax = 256;
constexpr int kCalls = 20;  // in a sample
constexpr int kSamples = 15;

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
  CudaStream stream;
  CudaEvent start;
  CudaEvent end;
  CudaMemory logits;
  CudaMemory sampling;
  CudaMemory tokens;
  PinnedMemory pinned;  // of logits, then of what rows say
};

// Bell-shaped logits, at most 12 from their mean.
Status fill_logits(Stage& stage) {
  Prng random(1);
  auto* const logits = stage.pinned.as<float>();
  for (std::int64_t i = 0; i < kRowsMax * kVocab; ++i) {
    const std::uint64_t bits = random();
    std::uint64_t sum = 0;
    for (int part = 0; part < 4; ++part) sum += bits >> (16 * part) & 0xFFFF;
    logits[i] = 6.0f * (static_cast<float>(sum) * 0x1p-16f - 2.0f);
  }
  STEMMA_RETURN_IF_ERROR(
      stage.stream.copy_in(stage.logits.bytes(), logits, stage.logits.size_bytes()));
  return stage.stream.synchronize();
}

Result<Stage> make_stage(CudaDevice& device) {
  Stage stage;
  STEMMA_ASSIGN_OR_RETURN(stage.stream, device.make_stream());
  STEMMA_ASSIGN_OR_RETURN(stage.start, device.make_timer());
  STEMMA_ASSIGN_OR_RETURN(stage.end, device.make_timer());
  constexpr std::size_t kLogitBytes = kRowsMax * kVocab * sizeof(float);
  STEMMA_ASSIGN_OR_RETURN(stage.logits, device.allocate(kLogitBytes, stage.stream));
  STEMMA_ASSIGN_OR_RETURN(stage.sampling,
                          device.allocate(kRowsMax * sizeof(RowSampling), stage.stream));
  STEMMA_ASSIGN_OR_RETURN(stage.tokens,
                          device.allocate(kRowsMax * sizeof(std::int32_t), stage.stream));
  STEMMA_ASSIGN_OR_RETURN(stage.pinned, device.allocate_pinned(kLogitBytes));
  STEMMA_RETURN_IF_ERROR(fill_logits(stage));
  return stage;
}

Status set_rules(Stage& stage, const RowSampling& sampling) {
  Prng random(2);
  auto* const rows = stage.pinned.as<RowSampling>();
  for (std::int64_t i = 0; i < kRowsMax; ++i) {
    rows[i] = sampling;
    rows[i].unit = random.unit();
  }
  STEMMA_RETURN_IF_ERROR(
      stage.stream.copy_in(stage.sampling.bytes(), rows, kRowsMax * sizeof(RowSampling)));
  return stage.stream.synchronize();
}

Status draw(Stage& stage, std::int64_t rows) {
  return sample_rows(stage.stream, {.logits = stage.logits.as<float>(),
                                    .sampling = stage.sampling.as<RowSampling>(),
                                    .tokens = stage.tokens.as<std::int32_t>(),
                                    .rows = rows,
                                    .columns = kVocab});
}

Status read_once(Stage& stage, std::int64_t rows) {
  return top_rows(stage.stream, {.logits = stage.logits.as<float>(),
                                 .tokens = stage.tokens.as<std::int32_t>(),
                                 .rows = rows,
                                 .columns = kVocab});
}

// Microseconds of one of several calls.
Result<double> call_us(Stage& stage, std::int64_t rows, Status (*call)(Stage&, std::int64_t)) {
  STEMMA_RETURN_IF_ERROR(stage.stream.record(stage.start));
  for (int i = 0; i < kCalls; ++i) STEMMA_RETURN_IF_ERROR(call(stage, rows));
  STEMMA_RETURN_IF_ERROR(stage.stream.record(stage.end));
  STEMMA_RETURN_IF_ERROR(stage.end.wait());
  STEMMA_ASSIGN_OR_RETURN(const double ms, stage.end.milliseconds_since(stage.start));
  return ms * 1000 / kCalls;
}

Result<BenchLine> bench_case(Stage& stage, std::int64_t rows, const Case& what) {
  STEMMA_RETURN_IF_ERROR(set_rules(stage, what.sampling));
  STEMMA_RETURN_IF_ERROR(draw(stage, rows));  // the first call of a kernel loads it
  STEMMA_RETURN_IF_ERROR(read_once(stage, rows));
  std::array<double, kSamples> values = {};
  std::array<double, kSamples> bounds = {};
  for (std::size_t i = 0; i < kSamples; ++i) {
    STEMMA_ASSIGN_OR_RETURN(values[i], call_us(stage, rows, draw));
    STEMMA_ASSIGN_OR_RETURN(bounds[i], call_us(stage, rows, read_once));
  }
  BenchLine line;
  line.bench = "cuda_sample";
  line.params = {{"rules", what.rules},
                 {"rows", std::to_string(rows)},
                 {"vocab_tokens", std::to_string(kVocab)}};
  line.value = median(values);
  line.unit = "us";
  line.bound = median(bounds);
  line.bound_name = "top_rows";
  line.ratio = line.value > 0 ? line.bound / line.value : 0;
  line.repeats = kSamples;
  line.spread = line.value > 0 ? spread(values) : 0;
  return line;
}

}  // namespace

Result<std::vector<BenchLine>> run_cuda_benches(CudaDevice& device) {
  STEMMA_ASSIGN_OR_RETURN(Stage stage, make_stage(device));
  std::vector<BenchLine> lines;
  for (const std::int64_t rows : {1, 16, 64, 128, 256}) {
    for (const Case& what : kCases) {
      STEMMA_ASSIGN_OR_RETURN(BenchLine line, bench_case(stage, rows, what));
      lines.push_back(std::move(line));
    }
  }
  return lines;
}

}  // namespace stemma
