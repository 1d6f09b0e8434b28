// A batch is computed layer after layer, as a model does, and the layers together are larger than
// the last-level cache: rows come from memory. After each layer comes a window of multiply-adds and
// after each sample a pass of reading, so that a sample is compared with the bounds of its moment.
#include "attention/latent_attention_bench.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "attention/attention.h"
#include "attention/bench_batch.h"
#include "base/math.h"
#include "device/buffer.h"
#include "device/machine_probe.h"
#include "device/simd_target.h"

namespace stemma {

namespace {

constexpr std::int64_t kLatentDim = 512;
constexpr std::int64_t kHeadDim = kLatentDim + 64;
constexpr std::int64_t kPageSize = 64;
constexpr int kSamples = 9;
constexpr double kSampleFlops = 4e9;  // at least
constexpr std::size_t kWorkingSetMax = std::size_t{1} << 30;

struct LatentBenchCase {
  std::int64_t query_heads = 0;
  std::int64_t requests = 0;
  std::int64_t context_tokens = 0;
  DType dtype = DType::kBF16;
  std::int64_t rows_each = 1;  // more: a chunk of a prompt
};

constexpr LatentBenchCase kCases[] = {
    {128, 1, 16384, DType::kBF16},    {128, 4, 4096, DType::kBF16},
    {128, 1, 16384, DType::kF32},     {16, 1, 16384, DType::kBF16},
    {16, 4, 4096, DType::kBF16},      {16, 1, 16384, DType::kF32},
    {16, 4, 4096, DType::kF32},       {128, 1, 4096, DType::kBF16, 32},
    {16, 1, 4096, DType::kBF16, 256},
};

// As many layers as the working set holds.
struct Layers {
  KvLayerView first;
  std::int64_t layer_bytes = 0;
  std::int64_t count = 0;

  KvLayerView view(std::int64_t layer) const {
    KvLayerView view = first;
    view.k = static_cast<const std::byte*>(first.k) + layer % count * layer_bytes;
    view.v = view.k;
    return view;
  }
};

Layers layers_of(const LatentBenchCase& bench_case, const Buffer& memory) {
  const std::int64_t tokens = bench_case.requests * bench_case.context_tokens;
  Layers layers;
  layers.first = {.k = memory.bytes(),
                  .v = memory.bytes(),
                  .dtype = bench_case.dtype,
                  .pages = tokens / kPageSize,
                  .page_size = kPageSize,
                  .heads = 1,
                  .head_dim = kHeadDim,
                  .value_dim = kLatentDim,
                  .page_stride = kPageSize * kHeadDim,
                  .token_stride = kHeadDim,
                  .head_stride = kHeadDim};
  layers.layer_bytes = tokens * kHeadDim * dtype_bytes(bench_case.dtype);
  layers.count = static_cast<std::int64_t>(memory.size_bytes()) / layers.layer_bytes;
  return layers;
}

// The arrays and the attention of one case.
class LatentRun {
 public:
  static Result<std::unique_ptr<LatentRun>> create(const LatentBenchCase& bench_case,
                                                   const Buffer& memory, ThreadPool& threads) {
    std::unique_ptr<LatentRun> run(new LatentRun(bench_case, memory));
    const AttentionShape shape = {.query_heads = bench_case.query_heads,
                                  .kv_heads = 1,
                                  .head_dim = kHeadDim,
                                  .scale = 1 / std::sqrt(static_cast<float>(kHeadDim)),
                                  .latent_dim = kLatentDim};
    const AttentionLimits limits = {bench_case.requests * bench_case.rows_each, bench_case.requests,
                                    bench_case.context_tokens};
    STEMMA_ASSIGN_OR_RETURN(run->attention_, make_attention("cpu", shape, limits, threads));
    run->attention_->plan(run->batch_.view());
    return run;
  }

  // Seconds of one layer.
  double next_layer() {
    const double start = bench_seconds_now();
    attention_->run(layers_.view(layer_++), q_.data(), out_.data());
    return bench_seconds_now() - start;
  }

  double layer_bytes() const { return static_cast<double>(layers_.layer_bytes); }
  double layer_flops() const { return layer_flops_; }

 private:
  LatentRun(const LatentBenchCase& bench_case, const Buffer& memory)
      : layers_(layers_of(bench_case, memory)) {
    batch_.requests = bench_case.requests;
    batch_.rows_each = bench_case.rows_each;
    batch_.context_tokens = bench_case.context_tokens;
    batch_.page_size = kPageSize;
    batch_.fill(layers_.first.pages, false);
    const auto rows = static_cast<std::int64_t>(batch_.positions.size());
    const std::int64_t queries = rows * bench_case.query_heads;
    q_.assign(static_cast<std::size_t>(queries * kHeadDim), 0.5f);
    out_.resize(static_cast<std::size_t>(queries * kLatentDim));
    for (const std::int32_t position : batch_.positions) {
      layer_flops_ += 2.0 * static_cast<double>((kHeadDim + kLatentDim) * bench_case.query_heads) *
                      (position + 1);
    }
  }

  Layers layers_;
  BenchBatch batch_;
  std::unique_ptr<Attention> attention_;
  std::vector<float> q_, out_;
  std::int64_t layer_ = 0;
  double layer_flops_ = 0;
};

BenchLine name_case(const LatentBenchCase& bench_case, int threads) {
  BenchLine line;
  line.bench = "attention";
  line.params = {{"phase", bench_case.rows_each == 1 ? "mla_decode" : "mla_prefill"},
                 {"context_tokens", std::to_string(bench_case.context_tokens)},
                 {"requests", std::to_string(bench_case.requests)},
                 {"rows", std::to_string(bench_case.requests * bench_case.rows_each)},
                 {"query_heads", std::to_string(bench_case.query_heads)},
                 {"latent_dim", std::to_string(kLatentDim)},
                 {"head_dim", std::to_string(kHeadDim)},
                 {"kv_dtype", std::string(dtype_name(bench_case.dtype))},
                 {"page_size", std::to_string(kPageSize)},
                 {"threads", std::to_string(threads)},
                 {"simd", std::string(simd_target_name())}};
  line.unit = "gflop/s";
  line.repeats = kSamples;
  return line;
}

Result<BenchLine> measure(const LatentBenchCase& bench_case, const Buffer& memory,
                          ThreadPool& threads) {
  STEMMA_ASSIGN_OR_RETURN(const std::unique_ptr<LatentRun> run,
                          LatentRun::create(bench_case, memory, threads));
  const std::span<const std::byte> area(memory.bytes(), memory.size_bytes());
  const double flops_per_byte = run->layer_flops() / run->layer_bytes();
  std::vector<double> values, bounds, ratios;
  bool reading_is_tighter = false;
  run->next_layer();
  double read_before = read_pass_gb_per_s(std::span(&area, 1), threads);
  for (int sample = 0; sample < kSamples; ++sample) {
    double flops = 0;
    double seconds = 0;
    std::vector<double> peaks;
    while (flops < kSampleFlops) {
      seconds += run->next_layer();
      flops += run->layer_flops();
      peaks.push_back(fma_peak_now_gflop_per_s(threads));
    }
    const double read_after = read_pass_gb_per_s(std::span(&area, 1), threads);
    const double read_bound = (read_before + read_after) / 2 * flops_per_byte;
    read_before = read_after;
    reading_is_tighter = read_bound < median(peaks);
    values.push_back(flops / seconds * 1e-9);
    bounds.push_back(std::min(read_bound, median(peaks)));
    ratios.push_back(values.back() / bounds.back());
  }
  BenchLine line = name_case(bench_case, threads.threads());
  line.value = median(values);
  line.bound = median(bounds);
  line.bound_name = reading_is_tighter ? "read_bandwidth" : "fma_peak";
  line.ratio = median(ratios);
  line.spread = spread(ratios);
  return Result<BenchLine>(std::move(line));
}

}  // namespace

Status bench_latent_attention(std::vector<BenchLine>& lines) {
  const std::size_t working_set = std::min(2 * llc_bytes(), kWorkingSetMax);
  STEMMA_ASSIGN_OR_RETURN(Buffer memory, Buffer::allocate(round_up(working_set, kHugePageBytes)));
  std::memset(memory.bytes(), 0x3D, memory.size_bytes());  // values of about 0.05 in each dtype
  ThreadPool pair(2);
  for (const int thread_count : {1, 2}) {
    ThreadPool threads(thread_count);
    const std::size_t first = lines.size();
    const double ratio_before = two_core_ratio(pair);
    for (const LatentBenchCase& bench_case : kCases) {
      STEMMA_ASSIGN_OR_RETURN(BenchLine line, measure(bench_case, memory, threads));
      lines.push_back(std::move(line));
    }
    if (thread_count == 1) continue;
    const double ratio = std::min(ratio_before, two_core_ratio(pair));
    for (std::size_t i = first; i < lines.size(); ++i) {
      lines[i].params.emplace_back("two_core_ratio", std::to_string(ratio));
    }
  }
  return {};
}

}  // namespace stemma
