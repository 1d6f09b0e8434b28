#include "attention/cuda_attention_bench.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "attention/bench_batch.h"
#include "attention/cuda_attention.h"
#include "attention/hopper_chunk_attention_cuda.h"
#include "attention/hopper_latent_attention_cuda.h"
#include "attention/read_pass_cuda.h"
#include "base/float16.h"
#include "base/function_ref.h"
#include "base/math.h"
#include "base/prng.h"
#include "device/cuda_clock.h"
#include "device/cuda_gemm.h"
#include "pool/cuda_pool.h"

namespace stemma {

namespace {

using Call = FunctionRef<Status()>;

struct Case {
  std::string phase;
  std::int64_t query_heads = 32;
  std::int64_t kv_heads = 8;
  std::int64_t page_size = 64;
  std::int64_t head_dim = 128;
  std::int64_t latent_dim = 0;
  DType dtype = DType::kBF16;
  std::int64_t requests = 1;
  std::int64_t tokens = 1;  // of each
  std::int64_t rows = 1;    // of them computed, the last ones
  std::int64_t shared_tokens = 0;
  std::int64_t label_channels = 0;
  std::optional<SparseDial> dial = {};
  bool hopper_chunks = false;  // of the phases that say so
  bool hopper_latent = false;

  AttentionShape shape() const {
    return {.query_heads = query_heads,
            .kv_heads = kv_heads,
            .head_dim = head_dim,
            .scale = 1 / std::sqrt(static_cast<float>(head_dim)),
            .latent_dim = latent_dim};
  }
  KvShape pool() const {
    return {.layers = 1,
            .pages = requests * ceil_div(tokens, page_size),
            .page_size = page_size,
            .heads = kv_heads,
            .head_dim = head_dim,
            .dtype = dtype,
            .kind = label_channels > 0 ? KvKind::kDoubleSparse
                                       : (latent_dim > 0 ? KvKind::kMla : KvKind::kMha),
            .latent_dim = latent_dim,
            .label_channels = label_channels};
  }
  // The first ones.
  HeavyChannels channels() const {
    HeavyChannels channels = {1, kv_heads, label_channels, {}};
    for (std::int64_t i = 0; i < kv_heads * label_channels; ++i) {
      channels.channels.push_back(static_cast<std::int32_t>(i % label_channels));
    }
    return channels;
  }
};

// A stream and its clock.
struct Timer {
  CudaStream stream;
  CudaClock clock;

  // Seconds of one of `calls` calls queued one behind another.
  Result<double> seconds(int calls, Call call) {
    return clock.seconds(stream, calls, [&](int) { return call(); });
  }
};

Result<Timer> make_timer(CudaDevice& device) {
  Timer timer;
  STEMMA_ASSIGN_OR_RETURN(timer.stream, device.make_stream());
  STEMMA_ASSIGN_OR_RETURN(timer.clock, CudaClock::create(device));
  return timer;
}

// Random elements, or codes none of which is a NaN, that fill memory again and again.
class RandomBytes {
 public:
  static Result<RandomBytes> create(CudaDevice& device, DType dtype) {
    constexpr std::size_t kBytes = std::size_t{4} << 20;
    RandomBytes random;
    STEMMA_ASSIGN_OR_RETURN(random.pinned_, device.allocate_pinned(kBytes));
    Prng prng(1);
    if (is_scaled(dtype)) {
      for (std::size_t i = 0; i < kBytes; ++i) {
        random.pinned_.bytes()[i] = static_cast<std::byte>(prng.below(256) & 0xF7);
      }
    } else {
      for (std::size_t i = 0; i < kBytes / 2; ++i) {
        random.pinned_.as<BFloat16>()[i] = to_bfloat16(static_cast<float>(prng.unit() * 2 - 1));
      }
    }
    return random;
  }
  Status fill(CudaStream& stream, void* device, std::size_t size_bytes) const {
    for (std::size_t at = 0; at < size_bytes; at += pinned_.size_bytes()) {
      STEMMA_RETURN_IF_ERROR(stream.copy_in(static_cast<std::byte*>(device) + at, pinned_.bytes(),
                                            std::min(pinned_.size_bytes(), size_bytes - at)));
    }
    return {};
  }

 private:
  PinnedMemory pinned_;
};

// The requests of a case as a runner would see them.
BenchBatch batch_of(const Case& c) {
  BenchBatch batch;
  batch.requests = c.requests;
  batch.rows_each = c.rows;
  batch.context_tokens = c.tokens;
  batch.page_size = c.page_size;
  batch.shared_tokens = c.shared_tokens;
  batch.fill(c.pool().pages, true);
  return batch;
}

// A planned batch, ready to run.
struct Stage {
  std::unique_ptr<CudaPool> pool;
  std::unique_ptr<CudaAttention> attention;
  CudaMemory q, out;

  Status run(CudaStream& stream) {
    return attention->run(stream, pool->layer_view(0), q.bytes(), out.bytes());
  }
};

Status fill_pool(CudaPool& pool, CudaStream& stream, const RandomBytes& random) {
  const int rows = pool.shape().kind == KvKind::kMla ? 1 : (is_scaled(pool.shape().dtype) ? 2 : 3);
  int number = 0;
  for (const PagePiece<std::byte>& piece : pool.layer_pieces(0)) {
    const auto bytes = static_cast<std::size_t>(pool.shape().pages * piece.bytes);
    // What follows K and V are scales, floats of about 0.05, or labels.
    STEMMA_RETURN_IF_ERROR(number++ < rows ? random.fill(stream, piece.page0, bytes)
                                           : stream.fill(piece.page0, 0x3D, bytes));
  }
  return {};
}

// Planned for the case's batch.
Result<std::unique_ptr<CudaAttention>> make_planned(CudaDevice& device, Timer& timer,
                                                    const Case& c) {
  const AttentionLimits limits = {
      .rows_max = c.requests * c.rows, .requests_max = c.requests, .context_tokens_max = c.tokens};
  STEMMA_ASSIGN_OR_RETURN(auto attention,
                          CudaAttention::create(device, timer.stream, c.shape(), limits,
                                                {.kv_dtype = c.dtype,
                                                 .page_size = c.page_size,
                                                 .dial = c.dial,
                                                 .hopper_chunks = c.hopper_chunks,
                                                 .hopper_latent = c.hopper_latent}));
  STEMMA_RETURN_IF_ERROR(attention->plan(timer.stream, batch_of(c).view()));
  return attention;
}

Result<Stage> make_stage(CudaDevice& device, Timer& timer, const Case& c) {
  const AttentionShape shape = c.shape();
  Stage stage;
  STEMMA_ASSIGN_OR_RETURN(stage.pool,
                          CudaPool::create(device, c.pool(), KvLayout::kLayerFirst, c.channels()));
  STEMMA_ASSIGN_OR_RETURN(stage.attention, make_planned(device, timer, c));
  const std::int64_t heads = c.requests * c.rows * shape.query_heads;
  const auto q_bytes = static_cast<std::size_t>(heads * shape.head_dim * 2);
  const auto out_bytes = static_cast<std::size_t>(heads * shape.value_dim() * 2);
  STEMMA_ASSIGN_OR_RETURN(stage.q, device.allocate(q_bytes, timer.stream));
  STEMMA_ASSIGN_OR_RETURN(stage.out, device.allocate(out_bytes, timer.stream));
  STEMMA_ASSIGN_OR_RETURN(const RandomBytes elements, RandomBytes::create(device, DType::kBF16));
  STEMMA_ASSIGN_OR_RETURN(const RandomBytes codes, RandomBytes::create(device, c.dtype));
  STEMMA_RETURN_IF_ERROR(fill_pool(*stage.pool, timer.stream, codes));
  STEMMA_RETURN_IF_ERROR(elements.fill(timer.stream, stage.q.bytes(), q_bytes));
  STEMMA_RETURN_IF_ERROR(timer.stream.synchronize());
  return stage;
}

// What a run gives, on the host. Every byte of `out` is 0xFF before.
Result<PinnedMemory> outputs_of(CudaDevice& device, CudaStream& stream, CudaAttention& attention,
                                const Stage& stage) {
  const std::size_t bytes = stage.out.size_bytes();
  STEMMA_ASSIGN_OR_RETURN(PinnedMemory outputs, device.allocate_pinned(bytes));
  STEMMA_RETURN_IF_ERROR(stream.fill(stage.out.bytes(), 0xFF, bytes));
  STEMMA_RETURN_IF_ERROR(
      attention.run(stream, stage.pool->layer_view(0), stage.q.bytes(), stage.out.bytes()));
  STEMMA_RETURN_IF_ERROR(stream.copy_out(outputs.bytes(), stage.out.bytes(), bytes));
  STEMMA_RETURN_IF_ERROR(stream.synchronize());
  return outputs;
}

// Whether a case by warpgroups has the bits that the kernels of single warps give: no test is as
// large.
Result<bool> has_plain_bits(CudaDevice& device, Timer& timer, const Case& c, const Stage& stage) {
  Case plain = c;
  plain.hopper_chunks = plain.hopper_latent = false;
  STEMMA_ASSIGN_OR_RETURN(const auto other, make_planned(device, timer, plain));
  STEMMA_ASSIGN_OR_RETURN(const PinnedMemory outputs,
                          outputs_of(device, timer.stream, *stage.attention, stage));
  STEMMA_ASSIGN_OR_RETURN(const PinnedMemory wanted,
                          outputs_of(device, timer.stream, *other, stage));
  return std::memcmp(outputs.bytes(), wanted.bytes(), wanted.size_bytes()) == 0;
}

// A case's line; of one by warpgroups with whether it has the bits of the others, which it is an
// error not to have.
Status give_line(CudaDevice& device, Timer& timer, const Case& c, const Stage& stage,
                 BenchLine line, BenchSink sink) {
  if (!c.hopper_chunks && !c.hopper_latent) {
    sink(line);
    return {};
  }
  STEMMA_ASSIGN_OR_RETURN(const bool same, has_plain_bits(device, timer, c, stage));
  line.params.emplace_back("same_bits", same ? "yes" : "no");
  sink(line);
  if (same) return {};
  return Error{ErrorCode::kCorrupt, c.phase + ": other bits than by single warps", 0};
}

double rate(double amount, double seconds) {
  return seconds > 0 ? amount / seconds * 1e-9 : 0;
}

// `amount` of a run, and of a call of what bounds it, each a second, in billions.
struct Measured {
  double amount = 0;
  double bound_amount = 0;
};

Result<BenchLine> measure(Timer& timer, const CudaAttentionBenchOptions& options, const Case& c,
                          const Measured& measured, Call run, Call bound) {
  std::vector<double> values, bounds;
  STEMMA_RETURN_IF_ERROR(run());  // the first call of a kernel loads it
  STEMMA_RETURN_IF_ERROR(bound());
  for (int sample = 0; sample < options.samples; ++sample) {
    STEMMA_ASSIGN_OR_RETURN(const double seconds, timer.seconds(options.runs, run));
    STEMMA_ASSIGN_OR_RETURN(const double bound_seconds, timer.seconds(options.runs, bound));
    values.push_back(rate(measured.amount, seconds));
    bounds.push_back(rate(measured.bound_amount, bound_seconds));
  }
  BenchLine line;
  line.bench = "cuda_attention";
  line.params = {{"phase", c.phase},
                 {"batch", std::to_string(c.requests)},
                 {"context", std::to_string(c.tokens)},
                 {"heads", std::to_string(c.query_heads) + "/" + std::to_string(c.kv_heads)},
                 {"page_size", std::to_string(c.page_size)},
                 {"dtype", std::string(dtype_name(c.dtype))}};
  line.value = median(values);
  line.bound = median(bounds);
  line.ratio = line.bound > 0 ? line.value / line.bound : 0;
  line.repeats = options.samples;
  line.spread = line.value > 0 ? spread(values) : 0;
  return line;
}

// `bytes` of a run against the rate at which all of K is read.
Result<BenchLine> measure_bytes(CudaDevice& device, Timer& timer,
                                const CudaAttentionBenchOptions& options, const Case& c,
                                Stage& stage, double bytes) {
  const std::int64_t teams = 2 * device.traits().multiprocessors;
  STEMMA_ASSIGN_OR_RETURN(
      const CudaMemory words,
      device.allocate(static_cast<std::size_t>(read_pass_words(teams)) * 4, timer.stream));
  const PagePiece<std::byte> keys = *stage.pool->layer_pieces(0).begin();
  const std::int64_t key_bytes = stage.pool->shape().pages * keys.bytes;
  const auto run = [&] { return stage.run(timer.stream); };
  const auto read = [&] {
    return read_pass(timer.stream, keys.page0, key_bytes, words.as<std::uint32_t>(), teams);
  };
  const Measured measured = {.amount = bytes, .bound_amount = static_cast<double>(key_bytes)};
  STEMMA_ASSIGN_OR_RETURN(BenchLine line, measure(timer, options, c, measured, run, read));
  line.unit = "gb/s";
  line.bound_name = "read_bandwidth";
  return line;
}

Status bench_decode_case(CudaDevice& device, const CudaAttentionBenchOptions& options,
                         const Case& c, BenchSink sink) {
  STEMMA_ASSIGN_OR_RETURN(Timer timer, make_timer(device));
  STEMMA_ASSIGN_OR_RETURN(Stage stage, make_stage(device, timer, c));
  const auto bytes = static_cast<double>(c.requests * c.tokens * stage.pool->shape().token_bytes());
  STEMMA_ASSIGN_OR_RETURN(BenchLine line, measure_bytes(device, timer, options, c, stage, bytes));
  return give_line(device, timer, c, stage, std::move(line), sink);
}

Status bench_decode_cases(CudaDevice& device, const CudaAttentionBenchOptions& options,
                          std::span<const Case> cases, BenchSink sink) {
  for (const Case& c : cases) {
    STEMMA_RETURN_IF_ERROR(bench_decode_case(device, options, c, sink));
  }
  return {};
}

Case decode_case(const CudaAttentionBenchOptions& options) {
  return {.phase = "decode", .requests = options.requests, .tokens = options.context_tokens};
}
Case latent_case(const CudaAttentionBenchOptions& options) {
  Case c = decode_case(options);
  c.phase = "decode_latent";
  c.query_heads = 128;
  c.kv_heads = 1;
  c.head_dim = 576;
  c.latent_dim = 512;
  return c;
}

// Bytes of K and V of so many tokens, of all requests.
double bytes_of_tokens(const Case& c, std::int64_t tokens) {
  return static_cast<double>(c.requests * tokens * 2 * c.kv_heads * c.head_dim *
                             dtype_bytes(c.dtype));
}

// What sparse rows must read at least against read bandwidth; and how much faster they are than
// dense ones over the same pages, against how much less they read.
Status bench_sparse_case(CudaDevice& device, const CudaAttentionBenchOptions& options,
                         const Case& c, BenchSink sink) {
  STEMMA_ASSIGN_OR_RETURN(Timer timer, make_timer(device));
  STEMMA_ASSIGN_OR_RETURN(Stage stage, make_stage(device, timer, c));
  const double dense_bytes = bytes_of_tokens(c, c.tokens);
  const double label_bytes = static_cast<double>(c.requests * c.tokens * c.kv_heads *
                                                 c.label_channels * dtype_bytes(c.dtype));
  const double sparse_bytes = label_bytes + bytes_of_tokens(c, c.dial->tokens_kept(c.tokens));
  STEMMA_ASSIGN_OR_RETURN(const BenchLine line,
                          measure_bytes(device, timer, options, c, stage, sparse_bytes));
  sink(line);
  Case plain = c;
  plain.phase = "sparse_gain";
  plain.dial = std::nullopt;
  STEMMA_ASSIGN_OR_RETURN(const auto dense, make_planned(device, timer, plain));
  const auto run = [&] { return stage.run(timer.stream); };
  const auto run_dense = [&] {
    return dense->run(timer.stream, stage.pool->layer_view(0), stage.q.bytes(), stage.out.bytes());
  };
  STEMMA_ASSIGN_OR_RETURN(
      BenchLine gain,
      measure(timer, options, plain, {.amount = 1, .bound_amount = 1}, run, run_dense));
  gain.value = gain.ratio;  // runs a second against dense runs a second
  gain.unit = "x dense";
  gain.bound = dense_bytes / sparse_bytes;
  gain.bound_name = "bytes_ratio";
  gain.ratio = gain.value / gain.bound;
  sink(gain);
  return {};
}

// Operations of keys that rows see against those of a dense product.
Status bench_prefill_case(CudaDevice& device, Timer& timer,
                          const CudaAttentionBenchOptions& options, const Case& c, Call multiply,
                          BenchSink sink) {
  STEMMA_ASSIGN_OR_RETURN(Stage stage, make_stage(device, timer, c));
  const auto run = [&] { return stage.run(timer.stream); };
  const double seen = 0.5 * static_cast<double>(c.tokens * (c.tokens + 1));
  const auto extent = static_cast<double>(options.gemm_extent);
  const Measured measured = {
      .amount = 4.0 * static_cast<double>(c.head_dim * c.query_heads) * seen * 1e-3,
      .bound_amount = 2.0 * extent * extent * extent * 1e-3};
  STEMMA_ASSIGN_OR_RETURN(BenchLine line, measure(timer, options, c, measured, run, multiply));
  line.unit = "tflop/s";
  line.bound_name = "dense_product";
  return give_line(device, timer, c, stage, std::move(line), sink);
}

Status bench_prefill(CudaDevice& device, const CudaAttentionBenchOptions& options,
                     std::span<const Case> cases, BenchSink sink) {
  STEMMA_ASSIGN_OR_RETURN(Timer timer, make_timer(device));
  STEMMA_ASSIGN_OR_RETURN(const auto gemm, make_library_gemm(device, timer.stream));
  const std::int64_t n = options.gemm_extent;
  const auto matrix_bytes = static_cast<std::size_t>(n * n * 2);
  STEMMA_ASSIGN_OR_RETURN(const CudaMemory x, device.allocate(matrix_bytes, timer.stream));
  STEMMA_ASSIGN_OR_RETURN(const CudaMemory y, device.allocate(matrix_bytes, timer.stream));
  STEMMA_ASSIGN_OR_RETURN(const RandomBytes elements, RandomBytes::create(device, DType::kBF16));
  STEMMA_RETURN_IF_ERROR(elements.fill(timer.stream, x.bytes(), matrix_bytes));
  const auto multiply = [&] {
    return gemm->multiply({.x = x.bytes(), .w = x.bytes(), .y = y.bytes(), .m = n, .n = n, .k = n});
  };
  for (Case c : cases) {
    c.tokens = c.rows = options.prefill_tokens;
    STEMMA_RETURN_IF_ERROR(bench_prefill_case(device, timer, options, c, multiply, sink));
  }
  return {};
}

}  // namespace

Status bench_cuda_decode(CudaDevice& device, const CudaAttentionBenchOptions& options,
                         BenchSink sink) {
  std::vector<Case> cases;
  for (const std::int64_t kv_heads : {8, 4}) {
    for (const std::int64_t page_size : {1, 16, 64}) {
      cases.push_back(decode_case(options));
      cases.back().kv_heads = kv_heads;
      cases.back().page_size = page_size;
    }
  }
  cases.push_back(decode_case(options));
  cases.back().phase = "decode_shared";
  cases.back().shared_tokens = std::max<std::int64_t>(options.context_tokens - 512, 0);
  cases.push_back(latent_case(options));
  return bench_decode_cases(device, options, cases, sink);
}

Status bench_cuda_decode_codes(CudaDevice& device, const CudaAttentionBenchOptions& options,
                               BenchSink sink) {
  std::vector<Case> cases;
  for (const auto& [dtype, kv_heads] :
       {std::pair(DType::kFp8E4M3, 8), std::pair(DType::kFp8E4M3, 4), std::pair(DType::kInt8, 8)}) {
    cases.push_back(decode_case(options));
    cases.back().dtype = dtype;
    cases.back().kv_heads = kv_heads;
  }
  return bench_decode_cases(device, options, cases, sink);
}

Status bench_cuda_hopper_latent(CudaDevice& device, const CudaAttentionBenchOptions& options,
                                BenchSink sink) {
  Case c = latent_case(options);
  if (!has_hopper_latent_kernel(device.traits().capability, c.dtype, c.head_dim)) return {};
  c.phase = "decode_latent_hopper";
  c.hopper_latent = true;
  return bench_decode_case(device, options, c, sink);
}

Status bench_cuda_sparse(CudaDevice& device, const CudaAttentionBenchOptions& options,
                         BenchSink sink) {
  for (const std::int64_t requests : {options.sparse_requests, std::int64_t{1}}) {
    const Case c = {.phase = "decode_sparse",
                    .requests = requests,
                    .tokens = options.sparse_context_tokens,
                    .label_channels = 8,
                    .dial = SparseDial{.dense_tokens = 0, .kept_tokens = 1, .kept_of = 8}};
    STEMMA_RETURN_IF_ERROR(bench_sparse_case(device, options, c, sink));
  }
  return {};
}

Status bench_cuda_prefill(CudaDevice& device, const CudaAttentionBenchOptions& options,
                          BenchSink sink) {
  const std::array cases = {Case{.phase = "prefill"}, Case{.phase = "prefill", .kv_heads = 4}};
  return bench_prefill(device, options, cases, sink);
}

Status bench_cuda_prefill_codes(CudaDevice& device, const CudaAttentionBenchOptions& options,
                                BenchSink sink) {
  const Case c = {.phase = "prefill", .dtype = DType::kFp8E4M3};
  return bench_prefill(device, options, {&c, 1}, sink);
}

Status bench_cuda_hopper_prefill(CudaDevice& device, const CudaAttentionBenchOptions& options,
                                 BenchSink sink) {
  const Case c = {.phase = "prefill_hopper", .hopper_chunks = true};
  if (!has_hopper_chunk_kernel(device.traits().capability, c.dtype, c.head_dim)) return {};
  Case fewer = c;
  fewer.kv_heads = 4;
  return bench_prefill(device, options, std::array{c, fewer}, sink);
}

}  // namespace stemma
