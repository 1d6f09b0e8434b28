// All cases lie in one piece of memory, read as pools of different shapes. Pages lie as an
// allocator that prefers contiguous runs hands them out; for "scattered" they are shuffled. A
// decode step reads the whole working set once, so that nothing of it is found in a cache.
#include "attention/attention_bench.h"

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
#include "pool/kv_layout.h"

namespace stemma {

namespace {

constexpr std::int64_t kContextTokens = 8192;
constexpr std::int64_t kPrefillContext = 4096;
constexpr std::int64_t kPrefillRows = 512;
constexpr std::int64_t kKvHeads = 8;
constexpr std::int64_t kGroup = 4;
constexpr int kSamples = 5;
constexpr std::size_t kWorkingSetMax = std::size_t{1} << 30;

struct AttentionBenchCase {
  bool decode = true;
  std::int64_t head_dim = 128;
  std::int64_t page_size = 64;
  bool scattered = false;
  int threads = 1;
};

struct Bounds {
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
  inputs.context_tokens = bench_case.decode ? kContextTokens : kPrefillContext;
  inputs.rows_each = bench_case.decode ? 1 : kPrefillRows;
  inputs.requests = bench_case.decode ? shape.slots() / kContextTokens : 1;
  inputs.page_size = shape.page_size;
  inputs.fill(shape.pages, bench_case.scattered);
  return inputs;
}

// Query, key and head triples of the batch, times the operations of one.
double operations(const AttentionBenchCase& bench_case, const BenchBatch& inputs) {
  double keys = 0;
  for (const std::int32_t position : inputs.positions) keys += position + 1;
  return 4.0 * static_cast<double>(bench_case.head_dim * kKvHeads * kGroup) * keys;
}

double bytes_read(const AttentionBenchCase& bench_case, const BenchBatch& inputs) {
  const std::int64_t row_bytes = 2 * kKvHeads * bench_case.head_dim * dtype_bytes(DType::kBF16);
  return static_cast<double>(inputs.requests * inputs.context_tokens * row_bytes);
}

void name_case(const AttentionBenchCase& bench_case, const BenchBatch& inputs, BenchLine& line) {
  line.bench = "attention";
  line.params = {{"phase", bench_case.decode ? "decode" : "prefill"},
                 {"context_tokens", std::to_string(inputs.context_tokens)},
                 {"requests", std::to_string(inputs.requests)},
                 {"rows", std::to_string(inputs.positions.size())},
                 {"kv_heads", std::to_string(kKvHeads)},
                 {"group", std::to_string(kGroup)},
                 {"head_dim", std::to_string(bench_case.head_dim)},
                 {"kv_dtype", "bf16"},
                 {"page_size", std::to_string(bench_case.page_size)},
                 {"placement", bench_case.scattered ? "scattered" : "contiguous"},
                 {"threads", std::to_string(bench_case.threads)}};
  line.repeats = kSamples;
}

// Seconds of each sample.
Result<std::vector<double>> time_case(const AttentionBenchCase& bench_case, const KvLayerView& view,
                                      const BenchBatch& inputs, ThreadPool& threads) {
  const AttentionShape shape = {.query_heads = kKvHeads * kGroup,
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
  std::vector<double> samples;
  for (int sample = -1; sample < kSamples; ++sample) {
    const double start = bench_seconds_now();
    attention->run(view, q.data(), out.data());
    if (sample >= 0) samples.push_back(bench_seconds_now() - start);
  }
  return samples;
}

Result<BenchLine> measure(const AttentionBenchCase& bench_case, const Buffer& memory,
                          const Bounds& bounds, ThreadPool& threads) {
  const KvShape shape = shape_of(bench_case, memory.size_bytes());
  const BenchBatch inputs = make_inputs(bench_case, shape);
  STEMMA_ASSIGN_OR_RETURN(const std::vector<double> seconds,
                          time_case(bench_case, view_of(shape, memory), inputs, threads));
  const double giga_operations = operations(bench_case, inputs) * 1e-9;
  const double giga_bytes = bytes_read(bench_case, inputs) * 1e-9;
  const double read_seconds = giga_bytes / bounds.read_gb_per_s;
  const double multiply_seconds = giga_operations / bounds.gflop_per_s;
  const bool bound_by_reading = bench_case.decode && read_seconds > multiply_seconds;
  BenchLine line;
  name_case(bench_case, inputs, line);
  line.value = (bound_by_reading ? giga_bytes : giga_operations) / median(seconds);
  line.unit = bound_by_reading ? "gb/s" : "gflop/s";
  line.bound = bound_by_reading ? bounds.read_gb_per_s : bounds.gflop_per_s;
  line.bound_name = bound_by_reading ? "read_bandwidth" : "fma_peak";
  line.ratio = line.value / line.bound;
  line.spread = spread(seconds);
  return line;
}

}  // namespace

Result<std::vector<BenchLine>> bench_attention() {
  std::vector<BenchLine> lines;
  const std::size_t working_set = std::min(2 * llc_bytes(), kWorkingSetMax);
  STEMMA_ASSIGN_OR_RETURN(Buffer memory, Buffer::allocate(working_set));
  std::memset(memory.bytes(), 0x3D, memory.size_bytes());  // bf16 values of about 0.05
  for (const int thread_count : {1, 2}) {
    ThreadPool threads(thread_count);
    STEMMA_ASSIGN_OR_RETURN(MachineProbe probe, MachineProbe::create(threads, working_set));
    for (const std::int64_t head_dim : {128, 64}) {
      const Bounds bounds = {probe.read_gb_per_s(threads), fma_peak_gflop_per_s(threads)};
      for (const AttentionBenchCase& bench_case :
           {AttentionBenchCase{true, head_dim, 64, false, thread_count},
            AttentionBenchCase{true, head_dim, 1, false, thread_count},
            AttentionBenchCase{true, head_dim, 64, true, thread_count},
            AttentionBenchCase{true, head_dim, 1, true, thread_count},
            AttentionBenchCase{false, head_dim, 64, false, thread_count}}) {
        STEMMA_ASSIGN_OR_RETURN(BenchLine line, measure(bench_case, memory, bounds, threads));
        lines.push_back(std::move(line));
      }
    }
  }
  STEMMA_RETURN_IF_ERROR(bench_latent_attention(lines));
  return Result<std::vector<BenchLine>>(std::move(lines));
}

}  // namespace stemma
