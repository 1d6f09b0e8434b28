#include "cuda/cuda_runner_bench.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "attention/read_pass_cuda.h"
#include "base/float16.h"
#include "base/math.h"
#include "base/prng.h"
#include "base/thread_pool.h"
#include "cuda/cuda_runner.h"
#include "device/cuda_gemm.h"
#include "device/rounded_strips.h"
#include "model/generated_files.h"
#include "model/weight_rounding.h"
#include "model/weights.h"
#include "pool/cuda_pool.h"

namespace stemma {
namespace {

constexpr std::int64_t kPageSize = 16;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A way of computing.
struct Way {
  const char* products;
  const char* graphs;
  CudaRunnerOptions options;
  const char* weights = "bf16";
  WeightRounding rounding = WeightRounding::kNone;
};
constexpr CudaRunnerOptions kRecorded = {.deterministic = true, .graphs = true};
// By CudaRunnerWay.
constexpr Way kWays[] = {{"library", "yes", {.deterministic = false, .graphs = true}},
                         {"library", "no", {.deterministic = false, .graphs = false}},
                         {"ordered", "yes", kRecorded},
                         {"ordered", "yes", kRecorded, "int8", WeightRounding::kInt8},
                         {"ordered", "yes", kRecorded, "int4", WeightRounding::kInt4}};

// Requests whose tokens nobody reads, their pages scattered over the pool.
class Requests {
 public:
  Requests(std::int64_t requests, std::int64_t tokens_max)
      : pages_each_(ceil_div(tokens_max, kPageSize)),
        pages_(static_cast<std::size_t>(requests * pages_each_)),
        computed_(static_cast<std::size_t>(requests), 0) {
    Prng random(1);
    for (std::size_t i = 0; i < pages_.size(); ++i) {
      pages_[i] = PageId(static_cast<std::int32_t>(i));
      std::swap(pages_[i],
                pages_[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(i) + 1))]);
    }
  }

  std::int64_t pages() const { return std::ssize(pages_); }
  std::int64_t computed_tokens(std::int64_t request) const {
    return computed_[static_cast<std::size_t>(request)];
  }

  // The next of `tokens` for each of `requests` from `first` on, as many for each; the logits of
  // the last of each are wanted. Valid until the next one.
  KvBatch next(std::int64_t first, std::int64_t requests, std::span<const TokenId> tokens) {
    const std::int64_t each = std::ssize(tokens) / requests;
    row_indptr_.assign(1, 0);
    indptr_.assign(1, 0);
    for (std::vector<std::int32_t>* array : {&positions_, &last_page_tokens_, &logit_rows_}) {
      array->clear();
    }
    slots_.clear();
    table_.clear();
    for (std::int64_t request = first; request < first + requests; ++request) add(request, each);
    ids_.assign(static_cast<std::size_t>(requests), RequestId());
    KvBatch batch;
    batch.tokens = tokens;
    batch.positions = positions_;
    batch.write_slots = slots_;
    batch.row_indptr = row_indptr_;
    batch.requests = ids_;
    batch.page_table = {indptr_, table_, last_page_tokens_, kPageSize};
    batch.logit_rows = logit_rows_;
    return batch;
  }

 private:
  void add(std::int64_t request, std::int64_t tokens) {
    std::int64_t& computed = computed_[static_cast<std::size_t>(request)];
    const PageId* const own = &pages_[static_cast<std::size_t>(request * pages_each_)];
    for (const std::int64_t end = computed + tokens; computed < end; ++computed) {
      positions_.push_back(static_cast<std::int32_t>(computed));
      slots_.emplace_back(own[computed / kPageSize].value() * kPageSize + computed % kPageSize);
    }
    const std::int64_t pages = ceil_div(computed, kPageSize);
    table_.insert(table_.end(), own, own + pages);
    indptr_.push_back(static_cast<std::int32_t>(table_.size()));
    last_page_tokens_.push_back(static_cast<std::int32_t>(computed - (pages - 1) * kPageSize));
    row_indptr_.push_back(static_cast<std::int32_t>(positions_.size()));
    logit_rows_.push_back(static_cast<std::int32_t>(positions_.size()) - 1);
  }

  std::int64_t pages_each_;
  std::vector<PageId> pages_;  // of all requests
  std::vector<std::int64_t> computed_;
  std::vector<std::int32_t> positions_;
  std::vector<SlotId> slots_;
  std::vector<std::int32_t> row_indptr_;
  std::vector<RequestId> ids_;
  std::vector<std::int32_t> indptr_;
  std::vector<PageId> table_;
  std::vector<std::int32_t> last_page_tokens_;
  std::vector<std::int32_t> logit_rows_;
};

// What is measured against, and what it counts.
class Bounds {
 public:
  static Result<Bounds> create(CudaDevice& device, const CudaRunnerBenchOptions& options) {
    Bounds bounds(device, options);
    STEMMA_ASSIGN_OR_RETURN(bounds.stream_, device.make_stream());
    STEMMA_RETURN_IF_ERROR(bounds.take(bounds.area_, options.read_bytes));
    STEMMA_RETURN_IF_ERROR(bounds.take(bounds.sums_, 4 * read_pass_words(bounds.teams())));
    const std::int64_t inputs = options.model.hidden;
    const std::int64_t outputs = 2 * options.model.intermediate;
    STEMMA_RETURN_IF_ERROR(bounds.take(bounds.x_, 2 * options.step_tokens * inputs));
    STEMMA_RETURN_IF_ERROR(bounds.take(bounds.w_, 2 * outputs * inputs));
    STEMMA_RETURN_IF_ERROR(bounds.take(bounds.y_, 2 * options.step_tokens * outputs));
    STEMMA_RETURN_IF_ERROR(bounds.draw_numbers());
    return bounds;
  }

  Result<double> read_bytes_per_s() {
    constexpr int kPasses = 4;
    STEMMA_ASSIGN_OR_RETURN(const double seconds, seconds_of(kPasses, [&] {
                              return read_pass(stream_, area_.bytes(), options_.read_bytes,
                                               sums_.as<std::uint32_t>(), teams());
                            }));
    return static_cast<double>(options_.read_bytes) / seconds;
  }

  // Operations of the largest product of a prefill step.
  Result<double> operations_per_s() {
    constexpr int kProducts = 10;
    STEMMA_ASSIGN_OR_RETURN(const auto gemm, make_library_gemm(device_, stream_));
    const CudaGemmParams product = {.x = x_.bytes(),
                                    .w = w_.bytes(),
                                    .y = y_.bytes(),
                                    .m = options_.step_tokens,
                                    .n = 2 * options_.model.intermediate,
                                    .k = options_.model.hidden};
    STEMMA_ASSIGN_OR_RETURN(const double seconds,
                            seconds_of(kProducts, [&] { return gemm->multiply(product); }));
    return 2.0 * static_cast<double>(product.m * product.n * product.k) / seconds;
  }

 private:
  Bounds(CudaDevice& device, const CudaRunnerBenchOptions& options)
      : device_(device), options_(options) {}

  std::int64_t teams() const { return 4 * device_.traits().multiprocessors; }

  // Memory of small numbers of bf16.
  Status take(CudaMemory& memory, std::int64_t size_bytes) {
    constexpr std::uint8_t kSmall = 0x3C;
    const auto bytes = static_cast<std::size_t>(size_bytes);
    STEMMA_ASSIGN_OR_RETURN(memory, device_.allocate(bytes, stream_));
    return stream_.fill(memory.bytes(), kSmall, bytes);
  }

  // Products of numbers that are all alike take less power, and less time.
  Status draw_numbers() {
    constexpr std::size_t kDrawn = std::size_t{1} << 19;
    STEMMA_ASSIGN_OR_RETURN(const PinnedMemory numbers,
                            device_.allocate_pinned(kDrawn * sizeof(BFloat16)));
    Prng random(3);
    for (std::size_t i = 0; i < kDrawn; ++i) {
      numbers.as<BFloat16>()[i] = to_bfloat16(static_cast<float>(random.unit() - 0.5));
    }
    for (const CudaMemory* memory : {&x_, &w_}) {
      for (std::size_t at = 0; at < memory->size_bytes(); at += numbers.size_bytes()) {
        STEMMA_RETURN_IF_ERROR(
            stream_.copy_in(memory->bytes() + at, numbers.bytes(),
                            std::min(numbers.size_bytes(), memory->size_bytes() - at)));
      }
    }
    return stream_.synchronize();
  }

  // Of one of `times` calls, the first of which does not count.
  Result<double> seconds_of(int times, FunctionRef<Status()> call) {
    STEMMA_RETURN_IF_ERROR(call());
    STEMMA_RETURN_IF_ERROR(stream_.synchronize());
    const double begin = seconds_now();
    for (int i = 0; i < times; ++i) STEMMA_RETURN_IF_ERROR(call());
    STEMMA_RETURN_IF_ERROR(stream_.synchronize());
    return (seconds_now() - begin) / times;
  }

  CudaDevice& device_;
  const CudaRunnerBenchOptions& options_;
  CudaStream stream_;
  CudaMemory area_;
  CudaMemory sums_;
  CudaMemory x_;
  CudaMemory w_;
  CudaMemory y_;
};

// Weights that every step reads, and those among them that every token is multiplied with.
struct WeightCount {
  double read_bytes = 0;
  double per_token = 0;
};

WeightCount count_weights(const ModelConfig& config, WeightRounding rounding) {
  constexpr double kBf16Bytes = 2;
  WeightCount count;
  for (const TensorSpec& tensor : needed_tensors(config)) {
    if (tensor.shape.size() != 2) continue;
    const auto weights = static_cast<double>(tensor.shape[0] * tensor.shape[1]);
    const bool looked_up = tensor.name == "model.embed_tokens.weight" && !config.tied_embeddings;
    const bool is_head = tensor.shape[0] == config.vocab_tokens;
    const auto format = rounded_format(
        rounding, is_head ? MatrixUse::kEmbedding : MatrixUse::kProjection, std::nullopt);
    const double bytes = !format.has_value()
                             ? weights * kBf16Bytes
                             : static_cast<double>(RoundedStrips::matrix_bytes(
                                   code_form(*format), tensor.shape[0], tensor.shape[1]));
    if (!looked_up) count.read_bytes += bytes;
    if (!is_head) count.per_token += weights;
  }
  return count;
}

struct Samples {
  std::vector<double> values;
  std::vector<double> bounds;
};

// A runner of one way, and its requests.
class Session {
 public:
  static Result<std::unique_ptr<Session>> open(CudaDevice& device, const Way& way,
                                               const CudaRunnerBenchOptions& options) {
    GeneratedFiles files(options.model);
    auto session = std::make_unique<Session>(options, way.rounding);
    ThreadPool threads(usable_cpus());
    ModelRunnerOptions limits;
    limits.rows_max = options.step_tokens;
    limits.requests_max = limits.outputs_max = session->requests_;
    limits.context_tokens_max = session->tokens_max_;
    limits.files = &files;
    limits.weights = way.rounding;
    STEMMA_ASSIGN_OR_RETURN(session->runner_,
                            CudaRunner::load(device, "made-up", limits, way.options, threads));
    KvShape shape = session->runner_->pool_shape();
    shape.page_size = kPageSize;
    shape.pages = session->rows_.pages();
    shape.dtype = DType::kBF16;
    STEMMA_ASSIGN_OR_RETURN(session->pool_, CudaPool::create(device, shape, KvLayout::kLayerFirst));
    STEMMA_RETURN_IF_ERROR(session->runner_->prepare_for({*session->pool_}));
    return session;
  }

  Session(const CudaRunnerBenchOptions& options, WeightRounding rounding)
      : options_(options),
        weights_(count_weights(options.model, rounding)),
        requests_(
            *std::max_element(options.decode_requests.begin(), options.decode_requests.end())),
        tokens_max_(options.context_tokens + std::ssize(options.decode_requests) *
                                                 (options.samples + 1) * options.decode_steps),
        rows_(requests_, tokens_max_),
        likeliest_(static_cast<std::size_t>(requests_)) {}

  // The contexts of all requests, as many as fit at a time; samples are steps but the first.
  Result<Samples> prefill(Bounds& bounds) {
    const double operations = 2 * weights_.per_token;
    const std::int64_t at_once = options_.step_tokens / options_.context_tokens;
    Samples samples;
    for (std::int64_t first = 0; first < requests_; first += at_once) {
      const std::int64_t requests = std::min(at_once, requests_ - first);
      const std::vector<TokenId> tokens = random_tokens(requests * options_.context_tokens);
      const KvBatch batch = rows_.next(first, requests, tokens);
      const double begin = seconds_now();
      STEMMA_RETURN_IF_ERROR(runner_->queue(batch, {*pool_}, {.logits = false}));
      STEMMA_RETURN_IF_ERROR(take_tokens(first, requests));
      const double seconds = seconds_now() - begin;
      if (first == 0) continue;
      samples.values.push_back(static_cast<double>(std::ssize(tokens)) / seconds);
      STEMMA_ASSIGN_OR_RETURN(const double peak, bounds.operations_per_s());
      samples.bounds.push_back(peak / operations);
    }
    return samples;
  }

  // The first one is not counted: graphs are recorded in it.
  Result<Samples> decode(std::int64_t requests, Bounds& bounds) {
    Samples samples;
    for (int i = 0; i <= options_.samples; ++i) {
      const double begin = seconds_now();
      STEMMA_RETURN_IF_ERROR(decode_steps(requests));
      const double seconds = seconds_now() - begin;
      if (i == 0) continue;
      samples.values.push_back(static_cast<double>(requests * options_.decode_steps) / seconds);
      STEMMA_ASSIGN_OR_RETURN(const double bandwidth, bounds.read_bytes_per_s());
      samples.bounds.push_back(static_cast<double>(requests) * bandwidth / step_bytes(requests));
    }
    return samples;
  }

 private:
  std::vector<TokenId> random_tokens(std::int64_t count) {
    std::vector<TokenId> tokens(static_cast<std::size_t>(count));
    for (TokenId& token : tokens) {
      token = static_cast<TokenId>(random_.below(options_.model.vocab_tokens));
    }
    return tokens;
  }

  // Waits for a step, and keeps what it chose.
  Status take_tokens(std::int64_t first, std::int64_t requests) {
    STEMMA_ASSIGN_OR_RETURN(const StepOutputs outputs, runner_->wait());
    for (std::int64_t i = 0; i < requests; ++i) {
      const TokenId token = outputs.tokens[static_cast<std::size_t>(i)];
      if (token < 0) return Error{ErrorCode::kInternal, "logits that are no numbers"};
      likeliest_[static_cast<std::size_t>(first + i)] = token;
    }
    return {};
  }

  Status decode_steps(std::int64_t requests) {
    const auto count = static_cast<std::size_t>(requests);
    std::vector<TokenId> chosen(count);  // by the step before, on the device
    for (std::size_t i = 0; i < count; ++i) chosen[i] = -static_cast<TokenId>(i) - 1;
    const std::vector<TokenId> known(likeliest_.begin(), likeliest_.begin() + requests);
    for (int step = 0; step < options_.decode_steps; ++step) {
      const KvBatch batch = rows_.next(0, requests, step == 0 ? known : chosen);
      STEMMA_RETURN_IF_ERROR(runner_->queue(batch, {*pool_}, {.logits = false}));
      if (step > 0) STEMMA_RETURN_IF_ERROR(take_tokens(0, requests));
    }
    return take_tokens(0, requests);
  }

  // That a decode step reads, in the middle of the steps that were just done.
  double step_bytes(std::int64_t requests) const {
    double tokens = 0;
    for (std::int64_t request = 0; request < requests; ++request) {
      tokens += static_cast<double>(rows_.computed_tokens(request)) - options_.decode_steps / 2.0;
    }
    const KvShape& shape = pool_->shape();
    return weights_.read_bytes + tokens * static_cast<double>(shape.layers * shape.token_bytes());
  }

  const CudaRunnerBenchOptions& options_;
  WeightCount weights_;
  std::int64_t requests_;
  std::int64_t tokens_max_;  // of one
  std::unique_ptr<CudaPool> pool_;
  std::unique_ptr<CudaRunner> runner_;
  Requests rows_;
  std::vector<TokenId> likeliest_;  // of each request's last step
  Prng random_{2};
};

BenchLine line_of(const Way& way, std::string phase, std::int64_t requests,
                  const Samples& samples) {
  BenchLine line;
  line.bench = "cuda_step";
  line.params = {{"phase", std::move(phase)},
                 {"requests", std::to_string(requests)},
                 {"products", way.products},
                 {"graphs", way.graphs},
                 {"weights", way.weights}};
  line.value = median(samples.values);
  line.unit = "tokens/s";
  line.bound = median(samples.bounds);
  line.ratio = line.value / line.bound;
  line.repeats = static_cast<int>(samples.values.size());
  line.spread = spread(samples.values);
  return line;
}

Status bench_way(CudaDevice& device, const Way& way, const CudaRunnerBenchOptions& options,
                 BenchSink sink) {
  STEMMA_ASSIGN_OR_RETURN(Bounds bounds, Bounds::create(device, options));
  STEMMA_ASSIGN_OR_RETURN(const auto session, Session::open(device, way, options));
  STEMMA_ASSIGN_OR_RETURN(const Samples prefill, session->prefill(bounds));
  BenchLine line = line_of(way, "prefill", options.step_tokens / options.context_tokens, prefill);
  line.bound_name = "library_products";
  sink(line);
  for (const std::int64_t requests : options.decode_requests) {
    STEMMA_ASSIGN_OR_RETURN(const Samples decode, session->decode(requests, bounds));
    line = line_of(way, "decode", requests, decode);
    line.bound_name = "read_bandwidth";
    sink(line);
  }
  return {};
}

}  // namespace

CudaRunnerBenchOptions default_cuda_runner_bench() {
  CudaRunnerBenchOptions options;
  ModelConfig& model = options.model;
  model.vocab_tokens = 128256;
  model.hidden = 4096;
  model.intermediate = 14336;
  model.layers = 32;
  model.query_heads = 32;
  model.kv_heads = 8;
  model.head_dim = 128;
  model.context_tokens_max = 131072;
  model.norm_epsilon = 1e-5;
  model.rope.theta = 500000.0;
  model.rope.scaling = RopeConfig::Scaling::kLlama3;
  model.rope.factor = 8.0;
  return options;
}

Status bench_cuda_runner(CudaDevice& device, const CudaRunnerBenchOptions& options,
                         CudaRunnerWay way, BenchSink sink) {
  return bench_way(device, kWays[static_cast<std::size_t>(way)], options, sink);
}

}  // namespace stemma
