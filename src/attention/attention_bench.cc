// All cases lie in one piece of memory, read as pools of different shapes. Pages lie as an
// allocator that prefers contiguous runs hands them out; for "scattered" they are shuffled. A
// decode step reads the whole working set once, so that nothing of it is found in a cache; one of
// requests that share their begin reads that once.
#include "attention/attention_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "attention/attention.h"
#include "attention/bench_batch.h"
#include "attention/latent_attention_bench.h"
#include "device/buffer.h"
#include "device/machine_probe.h"
#include "device/simd_target.h"
#include "pool/kv_layout.h"

namespace stemma {

namespace {

constexpr std::int64_t kPrefillRows = 512;
constexpr std::int64_t kKvHeads = 8;
constexpr int kSamples = 5;
// Contexts of 32,768 tokens, two of them, have 256 MiB.
constexpr std::size_t kWorkingSetMin = std::size_t{1} << 28;
constexpr std::size_t kWorkingSetMax = std::size_t{1} << 30;

struct AttentionBenchCase {
  bool decode = true;
  std::int64_t context_tokens = 8192;
  std::int64_t group = 4;  // query heads of one KV head
  std::int64_t head_dim = 128;
  std::int64_t page_size = 64;
  bool scattered = false;
  // Of decode: tokens that all of so many requests have in common; 0: none, and as many requests as
  // there is memory for.
  std::int64_t shared_tokens = 0;
  std::int64_t sharing_requests = 0;
};

// What one sample took, and the bounds that were measured beside it.
struct Sample {
  double seconds = 0;
  double read_gb_per_s = 0;
  double gflop_per_s = 0;
};

KvShape shape_of(const AttentionBenchCase& bench_case, std::size_t working_set_bytes) {
  KvShape shape = {.layers = 1,
                   .pages = 1,
                   .page_size = bench_case.page_size,
                   .heads = kKvHeads,
                   .head_dim = bench_case.head_dim,
                   .dtype = DType::kBF16};
  shape.pages = static_cast<std::int64_t>(working_set_bytes) / shape.page_bytes();
  return shape;
}

KvLayerView view_of(const KvShape& shape, const Buffer& memory) {
  const KvStrides strides = kv_strides(shape, KvLayout::kLayerFirst);
  return {.k = memory.bytes(),
          .v = memory.bytes() + strides.side * dtype_bytes(shape.dtype),
          .dtype = shape.dtype,
          .pages = shape.pages,
          .page_size = shape.page_size,
          .heads = shape.heads,
          .head_dim = shape.head_dim,
          .value_dim = shape.head_dim,
          .page_stride = strides.page,
          .token_stride = strides.token,
          .head_stride = strides.head};
}

BenchBatch make_inputs(const AttentionBenchCase& bench_case, const KvShape& shape) {
  BenchBatch inputs;
  inputs.context_tokens = bench_case.context_tokens;
  inputs.rows_each = bench_case.decode ? 1 : kPrefillRows;
  inputs.requests = bench_case.decode ? shape.slots() / bench_case.context_tokens : 1;
  if (bench_case.sharing_requests > 0) inputs.requests = bench_case.sharing_requests;
  inputs.page_size = shape.page_size;
  inputs.shared_tokens = bench_case.shared_tokens;
  inputs.fill(shape.pages, bench_case.scattered);
  return inputs;
}

// Query, key and head triples of the batch, times the operations of one.
double operations(const AttentionBenchCase& bench_case, const BenchBatch& inputs) {
  double keys = 0;
  for (const std::int32_t position : inputs.positions) keys += position + 1;
  return 4.0 * static_cast<double>(bench_case.head_dim * kKvHeads * bench_case.group) * keys;
}

// Every page once.
double bytes_read(const AttentionBenchCase& bench_case, const BenchBatch& inputs) {
  const std::int64_t row_bytes = 2 * kKvHeads * bench_case.head_dim * dtype_bytes(DType::kBF16);
  const std::int64_t tokens = inputs.requests * (inputs.context_tokens - bench_case.shared_tokens) +
                              bench_case.shared_tokens;
  return static_cast<double>(tokens * row_bytes);
}

void name_case(const AttentionBenchCase& bench_case, const BenchBatch& inputs, int threads,
               BenchLine& line) {
  line.bench = "attention";
  line.params = {{"phase", bench_case.decode ? "decode" : "prefill"},
                 {"context_tokens", std::to_string(inputs.context_tokens)},
                 {"requests", std::to_string(inputs.requests)},
                 {"rows", std::to_string(inputs.positions.size())},
                 {"kv_heads", std::to_string(kKvHeads)},
                 {"group", std::to_string(bench_case.group)},
                 {"head_dim", std::to_string(bench_case.head_dim)},
                 {"kv_dtype", "bf16"},
                 {"page_size", std::to_string(bench_case.page_size)},
                 {"placement", bench_case.scattered ? "scattered" : "contiguous"},
                 {"threads", std::to_string(threads)},
                 {"simd", std::string(simd_target_name())}};
  if (bench_case.shared_tokens > 0) {
    line.params.emplace_back("shared_tokens", std::to_string(bench_case.shared_tokens));
  }
  line.repeats = kSamples;
}

// The probe's own pass between two samples leaves nothing of the case's memory in a cache.
Result<std::vector<Sample>> time_case(const AttentionBenchCase& bench_case, const KvLayerView& view,
                                      const BenchBatch& inputs, MachineProbe& probe,
                                      ThreadPool& threads) {
  const AttentionShape shape = {.query_heads = kKvHeads * bench_case.group,
                                .kv_heads = kKvHeads,
                                .head_dim = bench_case.head_dim,
                                .scale = 1 / std::sqrt(static_cast<float>(bench_case.head_dim))};
  const auto rows = static_cast<std::int64_t>(inputs.positions.size());
  STEMMA_ASSIGN_OR_RETURN(
      const std::unique_ptr<Attention> attention,
      make_attention("cpu", shape, {rows, inputs.requests, inputs.context_tokens}, threads));
  std::vector<float> q(static_cast<std::size_t>(rows * shape.query_heads * shape.head_dim), 0.5f);
  std::vector<float> out(q.size());
  attention->plan(inputs.view());
  std::vector<Sample> samples;
  for (int i = -1; i < kSamples; ++i) {
    Sample sample;
    sample.gflop_per_s = fma_peak_now_gflop_per_s(threads);
    sample.read_gb_per_s = probe.read_gb_per_s(threads);
    const double start = bench_seconds_now();
    attention->run(view, q.data(), out.data());
    sample.seconds = bench_seconds_now() - start;
    if (i >= 0) samples.push_back(sample);
  }
  return samples;
}

std::vector<double> values_of(const std::vector<Sample>& samples, double Sample::*field) {
  std::vector<double> values(samples.size());
  std::transform(samples.begin(), samples.end(), values.begin(),
                 [&](const Sample& sample) { return sample.*field; });
  return values;
}

double median_of(const std::vector<Sample>& samples, double Sample::*field) {
  return median(values_of(samples, field));
}

// A line against the tighter of the two bounds; `other_bound` is how much of its time the other
// would take.
BenchLine line_of(const std::vector<Sample>& samples, double giga_operations, double giga_bytes) {
  const double seconds = median_of(samples, &Sample::seconds);
  const double read_gb_per_s = median_of(samples, &Sample::read_gb_per_s);
  const double gflop_per_s = median_of(samples, &Sample::gflop_per_s);
  const double read_seconds = giga_bytes / read_gb_per_s;
  const double multiply_seconds = giga_operations / gflop_per_s;
  const bool bound_by_reading = read_seconds > multiply_seconds;
  BenchLine line;
  line.value = (bound_by_reading ? giga_bytes : giga_operations) / seconds;
  line.unit = bound_by_reading ? "gb/s" : "gflop/s";
  line.bound = bound_by_reading ? read_gb_per_s : gflop_per_s;
  line.bound_name = bound_by_reading ? "read_bandwidth" : "fma_peak";
  line.ratio = line.value / line.bound;
  line.spread = spread(values_of(samples, &Sample::seconds));
  line.params.emplace_back("other_bound",
                           fmt::format("{:.2f}", std::min(read_seconds, multiply_seconds) /
                                                     std::max(read_seconds, multiply_seconds)));
  return line;
}

Result<BenchLine> measure(const AttentionBenchCase& bench_case, const Buffer& memory,
                          MachineProbe& probe, ThreadPool& threads) {
  const KvShape shape = shape_of(bench_case, memory.size_bytes());
  const BenchBatch inputs = make_inputs(bench_case, shape);
  STEMMA_ASSIGN_OR_RETURN(const std::vector<Sample> samples,
                          time_case(bench_case, view_of(shape, memory), inputs, probe, threads));
  BenchLine bounded = line_of(samples, operations(bench_case, inputs) * 1e-9,
                              bytes_read(bench_case, inputs) * 1e-9);
  BenchLine line = bounded;
  name_case(bench_case, inputs, threads.threads(), line);
  line.params.insert(line.params.end(), bounded.params.begin(), bounded.params.end());
  return line;
}

std::vector<AttentionBenchCase> bench_cases() {
  std::vector<AttentionBenchCase> cases;
  for (const std::int64_t context : {8192, 32768}) {
    for (const std::int64_t group : {1, 4, 8}) {
      cases.push_back({.context_tokens = context, .group = group});
      cases.push_back({.context_tokens = context, .group = group, .page_size = 1});
    }
  }
  cases.push_back({.head_dim = 64});
  cases.push_back({.head_dim = 64, .page_size = 1});
  cases.push_back({.scattered = true});
  cases.push_back({.page_size = 1, .scattered = true});
  for (const std::int64_t head_dim : {128, 64}) {
    cases.push_back({.decode = false, .context_tokens = 4096, .head_dim = head_dim});
  }
  for (const std::int64_t group : {1, 4, 8}) {
    AttentionBenchCase shared = {.context_tokens = 4096 + 16, .group = group, .page_size = 16};
    shared.sharing_requests = 16;
    cases.push_back(shared);
    shared.shared_tokens = 4096;
    cases.push_back(shared);
  }
  return cases;
}

}  // namespace

Result<std::vector<BenchLine>> bench_attention() {
  std::vector<BenchLine> lines;
  const std::size_t working_set = std::clamp(2 * llc_bytes(), kWorkingSetMin, kWorkingSetMax);
  STEMMA_ASSIGN_OR_RETURN(Buffer memory, Buffer::allocate(working_set));
  std::memset(memory.bytes(), 0x3D, memory.size_bytes());  // bf16 values of about 0.05
  for (const int thread_count : {1, 2}) {
    ThreadPool threads(thread_count);
    STEMMA_ASSIGN_OR_RETURN(MachineProbe probe, MachineProbe::create(threads, working_set));
    for (const AttentionBenchCase& bench_case : bench_cases()) {
      STEMMA_ASSIGN_OR_RETURN(BenchLine line, measure(bench_case, memory, probe, threads));
      lines.push_back(std::move(line));
    }
  }
  STEMMA_RETURN_IF_ERROR(bench_latent_attention(lines));
  return Result<std::vector<BenchLine>>(std::move(lines));
}

}  // namespace stemma
