// A pool of each dtype fills as much memory, so that decode finds nothing of either in a cache: the
// scaled one then holds nearly twice the requests. What is compared is the time of a key.
#include "attention/scaled_attention_bench.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "attention/attention.h"
#include "attention/bench_batch.h"
#include "device/machine_probe.h"
#include "pool/kv_pool_factory.h"

namespace stemma {

namespace {

constexpr std::int64_t kContextTokens = 8192;
constexpr std::int64_t kPrefillContext = 4096;
constexpr std::int64_t kPrefillRows = 512;
constexpr std::int64_t kKvHeads = 8;
constexpr std::int64_t kPageTokens = 64;
constexpr std::size_t kWorkingSetMax = std::size_t{1} << 30;

struct ScaledBenchCase {
  DType dtype = DType::kInt8;
  std::int64_t head_dim = 128;
  bool decode = true;
  std::int64_t group = 1;
};

int samples_of(const ScaledBenchCase& bench_case) {
  return bench_case.decode ? 21 : 7;
}

// A pool of one dtype and the attention that reads it.
class Side {
 public:
  static Result<Side> open(const ScaledBenchCase& bench_case, DType dtype, ThreadPool& threads) {
    Side side;
    KvShape shape = {.layers = 1,
                     .pages = 1,
                     .page_size = kPageTokens,
                     .heads = kKvHeads,
                     .head_dim = bench_case.head_dim,
                     .dtype = dtype};
    shape.pages =
        static_cast<std::int64_t>(std::min(2 * llc_bytes(), kWorkingSetMax)) / shape.page_bytes();
    STEMMA_ASSIGN_OR_RETURN(side.pool_, make_kv_pool(shape, KvLayout::kLayerFirst, threads));
    STEMMA_RETURN_IF_ERROR(side.store_rows());
    side.inputs_.context_tokens = bench_case.decode ? kContextTokens : kPrefillContext;
    side.inputs_.rows_each = bench_case.decode ? 1 : kPrefillRows;
    side.inputs_.requests = bench_case.decode ? shape.slots() / kContextTokens : 1;
    side.inputs_.page_size = kPageTokens;
    side.inputs_.fill(shape.pages, false);
    STEMMA_RETURN_IF_ERROR(side.make(bench_case, threads));
    return Result<Side>(std::move(side));
  }

  // Seconds of one run, for each million keys that a query head sees.
  double sample() {
    const double start = bench_seconds_now();
    attention_->run(pool_->layer_view(0), q_.data(), out_.data());
    return (bench_seconds_now() - start) / mega_keys_;
  }

  const BenchBatch& inputs() const { return inputs_; }

 private:
  // Some rows again and again: values that nothing underflows with.
  Status store_rows() {
    constexpr std::int64_t kRows = 512;
    const KvShape& shape = pool_->shape();
    Prng prng(1);
    std::vector<float> values(static_cast<std::size_t>(kRows * shape.row_elements()));
    for (float& value : values) value = static_cast<float>(prng.unit() - 0.5);
    for (std::int64_t slot = 0; slot < shape.slots(); slot += kRows) {
      std::vector<std::int64_t> slots;
      for (std::int64_t i = slot; i < std::min(slot + kRows, shape.slots()); ++i) {
        slots.push_back(i);
      }
      const KvRows rows = {.elements = values.data(),
                           .rows = static_cast<std::int64_t>(slots.size()),
                           .heads = shape.heads,
                           .head_dim = shape.head_dim,
                           .row_stride = shape.row_elements()};
      STEMMA_RETURN_IF_ERROR(pool_->store(0, std::span<const std::int64_t>(slots), rows, rows));
    }
    return {};
  }

  Status make(const ScaledBenchCase& bench_case, ThreadPool& threads) {
    const AttentionShape shape = {.query_heads = kKvHeads * bench_case.group,
                                  .kv_heads = kKvHeads,
                                  .head_dim = bench_case.head_dim,
                                  .scale = 1 / std::sqrt(static_cast<float>(bench_case.head_dim))};
    const auto rows = static_cast<std::int64_t>(inputs_.positions.size());
    STEMMA_ASSIGN_OR_RETURN(
        attention_,
        make_attention("cpu", shape, {rows, inputs_.requests, inputs_.context_tokens}, threads));
    q_.assign(static_cast<std::size_t>(rows * shape.query_heads * shape.head_dim), 0.5f);
    out_.resize(q_.size());
    attention_->plan(inputs_.view());
    for (const std::int32_t position : inputs_.positions) mega_keys_ += 1e-6 * (position + 1);
    return {};
  }

  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<Attention> attention_;
  BenchBatch inputs_;
  std::vector<float> q_;
  std::vector<float> out_;
  double mega_keys_ = 0;
};

Result<BenchLine> measure(const ScaledBenchCase& bench_case, ThreadPool& threads) {
  STEMMA_ASSIGN_OR_RETURN(Side scaled, Side::open(bench_case, bench_case.dtype, threads));
  STEMMA_ASSIGN_OR_RETURN(Side plain, Side::open(bench_case, DType::kBF16, threads));
  std::vector<double> scaled_seconds;
  std::vector<double> plain_seconds;
  scaled.sample();
  plain.sample();
  for (int i = 0; i < samples_of(bench_case); ++i) {
    scaled_seconds.push_back(scaled.sample());
    plain_seconds.push_back(plain.sample());
  }
  BenchLine line;
  line.bench = "attention";
  line.params = {{"phase", bench_case.decode ? "decode" : "prefill"},
                 {"context_tokens", std::to_string(scaled.inputs().context_tokens)},
                 {"requests", std::to_string(scaled.inputs().requests)},
                 {"rows", std::to_string(scaled.inputs().positions.size())},
                 {"kv_heads", std::to_string(kKvHeads)},
                 {"group", std::to_string(bench_case.group)},
                 {"head_dim", std::to_string(bench_case.head_dim)},
                 {"kv_dtype", std::string(dtype_name(bench_case.dtype))},
                 {"page_size", std::to_string(kPageTokens)},
                 {"threads", std::to_string(threads.threads())}};
  line.value = 1 / median(scaled_seconds);
  line.unit = "mkeys/s";
  line.bound = 1 / median(plain_seconds);
  line.bound_name = "bf16";
  line.ratio = line.value / line.bound;
  line.repeats = samples_of(bench_case);
  line.spread = spread(scaled_seconds);
  return line;
}

}  // namespace

Result<std::vector<BenchLine>> bench_scaled_attention() {
  std::vector<BenchLine> lines;
  ThreadPool threads(1);
  for (const std::int64_t head_dim : {128, 64}) {
    for (const DType dtype : {DType::kInt8, DType::kFp8E4M3, DType::kFp8E5M2}) {
      for (const ScaledBenchCase& bench_case :
           {ScaledBenchCase{dtype, head_dim, true, 1}, ScaledBenchCase{dtype, head_dim, true, 4},
            ScaledBenchCase{dtype, head_dim, false, 4}}) {
        STEMMA_ASSIGN_OR_RETURN(BenchLine line, measure(bench_case, threads));
        lines.push_back(std::move(line));
      }
    }
  }
  return Result<std::vector<BenchLine>>(std::move(lines));
}

}  // namespace stemma
