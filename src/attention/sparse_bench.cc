// The working set is so large that what the sparse steps read does not fit the caches either: a
// step computes one row of as many requests as fill it. K is random, so that the chosen tokens are
// scattered and not the same for any two heads.
#include "attention/sparse_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "attention/attention.h"
#include "attention/bench_batch.h"
#include "attention/sparse_attention.h"
#include "base/prng.h"
#include "device/machine_probe.h"
#include "pool/kv_pool_factory.h"

namespace stemma {

namespace {

constexpr std::int64_t kKvHeads = 8;
constexpr std::int64_t kGroup = 4;
constexpr std::int64_t kHeadDim = 128;
constexpr std::int64_t kLabelChannels = 8;
constexpr std::int64_t kPageSize = 64;
constexpr std::int64_t kContextMax = 32768;
constexpr std::size_t kWorkingSetMax = std::size_t{1} << 30;
constexpr std::int64_t kRandomRows = 4099;  // a prime: pages are not alike
constexpr int kSamples = 7;
constexpr SparseDial kDial = {.dense_tokens = 0, .kept_tokens = 1, .kept_of = 8};
constexpr std::uint64_t kSeed = 1;

KvShape shape_of(std::size_t working_set_bytes) {
  KvShape shape = {.layers = 1,
                   .pages = 1,
                   .page_size = kPageSize,
                   .heads = kKvHeads,
                   .head_dim = kHeadDim,
                   .dtype = DType::kBF16,
                   .kind = KvKind::kDoubleSparse,
                   .label_channels = kLabelChannels};
  const std::int64_t pages = static_cast<std::int64_t>(working_set_bytes) / shape.page_bytes();
  shape.pages = std::max(pages, kContextMax / kPageSize);
  return shape;
}

std::vector<float> random_floats(std::int64_t count) {
  Prng prng(kSeed);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>(prng.unit() * 2 - 1);
  return values;
}

// Random rows, the same again every kRandomRows tokens.
Status fill(KvPool& pool) {
  const std::vector<float> values = random_floats(kRandomRows * pool.shape().row_elements());
  KvRows rows = {.elements = values.data(),
                 .heads = kKvHeads,
                 .head_dim = kHeadDim,
                 .row_stride = pool.shape().row_elements()};
  for (std::int64_t first = 0; first < pool.shape().slots(); first += kRandomRows) {
    std::vector<std::int64_t> slots;
    const std::int64_t end = std::min(first + kRandomRows, pool.shape().slots());
    for (std::int64_t slot = first; slot < end; ++slot) slots.push_back(slot);
    rows.rows = end - first;
    STEMMA_RETURN_IF_ERROR(pool.store(0, std::span<const std::int64_t>(slots), rows, rows));
  }
  return {};
}

Result<std::unique_ptr<KvPool>> make_filled_pool(ThreadPool& threads) {
  const KvShape shape = shape_of(std::min(16 * llc_bytes(), kWorkingSetMax));
  HeavyChannels channels = {1, kKvHeads, kLabelChannels, {}};
  for (std::int64_t i = 0; i < kKvHeads * kLabelChannels; ++i) {
    channels.channels.push_back(static_cast<std::int32_t>(i % kLabelChannels * 16 + 3));
  }
  STEMMA_ASSIGN_OR_RETURN(std::unique_ptr<KvPool> pool,
                          make_kv_pool(shape, KvLayout::kLayerFirst, threads, channels));
  STEMMA_RETURN_IF_ERROR(fill(*pool));
  return pool;
}

// One decode row of as many requests as fill the pool.
BenchBatch batch_of(const KvShape& shape, std::int64_t context_tokens) {
  BenchBatch batch;
  batch.requests = shape.slots() / context_tokens;
  batch.rows_each = 1;
  batch.context_tokens = context_tokens;
  batch.page_size = kPageSize;
  batch.fill(batch.requests * context_tokens / kPageSize, /*scattered=*/false);
  return batch;
}

struct Times {
  std::vector<double> dense;
  std::vector<double> sparse;
};

Result<Times> time_both(const KvPool& pool, const BenchBatch& inputs, ThreadPool& threads) {
  const AttentionShape shape = {.query_heads = kKvHeads * kGroup,
                                .kv_heads = kKvHeads,
                                .head_dim = kHeadDim,
                                .scale = 1 / std::sqrt(static_cast<float>(kHeadDim))};
  const AttentionLimits limits = {inputs.requests, inputs.requests, inputs.context_tokens};
  STEMMA_ASSIGN_OR_RETURN(const auto dense, make_attention("cpu", shape, limits, threads));
  STEMMA_ASSIGN_OR_RETURN(const auto sparse,
                          make_sparse_attention("cpu", shape, kDial, limits, threads));
  const std::vector<float> q = random_floats(inputs.requests * shape.query_heads * kHeadDim);
  std::vector<float> out(q.size());
  const KvBatch batch = inputs.view();
  dense->plan(batch);
  sparse->plan(batch);
  const KvLayerView layer = pool.layer_view(0);
  const auto seconds_of = [&](Attention& attention) {
    const double begin = bench_seconds_now();
    attention.run(layer, q.data(), out.data());
    return bench_seconds_now() - begin;
  };
  Times times;
  for (int sample = -1; sample < kSamples; ++sample) {
    const double dense_seconds = seconds_of(*dense);
    const double sparse_seconds = seconds_of(*sparse);
    if (sample < 0) continue;
    times.dense.push_back(dense_seconds);
    times.sparse.push_back(sparse_seconds);
  }
  return times;
}

// Of one request's step.
double dense_bytes(std::int64_t tokens) {
  return static_cast<double>(tokens * 2 * kKvHeads * kHeadDim * dtype_bytes(DType::kBF16));
}

double sparse_bytes(std::int64_t tokens) {
  const std::int64_t label_bytes = kKvHeads * kLabelChannels * dtype_bytes(DType::kBF16);
  return static_cast<double>(tokens * label_bytes) + dense_bytes(kDial.tokens_kept(tokens));
}

BenchLine line_of(const BenchBatch& inputs, const Times& times, int threads) {
  const std::int64_t context = inputs.context_tokens;
  const double requests = static_cast<double>(inputs.requests);
  const auto step_ms = [&](const std::vector<double>& seconds) {
    return fmt::format("{:.3f}", median(seconds) / requests * 1e3);
  };
  BenchLine line;
  line.bench = "attention";
  line.params = {{"phase", "decode"},
                 {"case", "double_sparse"},
                 {"context_tokens", std::to_string(context)},
                 {"requests", std::to_string(inputs.requests)},
                 {"kept", kept_text(kDial)},
                 {"label_channels", std::to_string(kLabelChannels)},
                 {"kv_heads", std::to_string(kKvHeads)},
                 {"group", std::to_string(kGroup)},
                 {"head_dim", std::to_string(kHeadDim)},
                 {"kv_dtype", "bf16"},
                 {"page_size", std::to_string(kPageSize)},
                 {"threads", std::to_string(threads)},
                 {"dense_ms", step_ms(times.dense)},
                 {"sparse_ms", step_ms(times.sparse)},
                 {"dense_mb", fmt::format("{:.2f}", dense_bytes(context) * 1e-6)},
                 {"sparse_mb", fmt::format("{:.2f}", sparse_bytes(context) * 1e-6)}};
  line.value = median(times.dense) / median(times.sparse);
  line.unit = "x dense";
  line.bound = dense_bytes(context) / sparse_bytes(context);
  line.bound_name = "bytes_ratio";
  line.ratio = line.value / line.bound;
  line.repeats = kSamples;
  line.spread = spread(times.sparse);
  return line;
}

}  // namespace

Result<std::vector<BenchLine>> bench_sparse_attention() {
  ThreadPool filling(1);
  STEMMA_ASSIGN_OR_RETURN(const std::unique_ptr<KvPool> pool, make_filled_pool(filling));
  std::vector<BenchLine> lines;
  for (const int thread_count : {1, 2}) {
    ThreadPool threads(thread_count);
    for (std::int64_t context = 2048; context <= kContextMax; context *= 2) {
      const BenchBatch inputs = batch_of(pool->shape(), context);
      STEMMA_ASSIGN_OR_RETURN(const Times times, time_both(*pool, inputs, threads));
      lines.push_back(line_of(inputs, times, thread_count));
    }
  }
  return lines;
}

}  // namespace stemma
