#include "cuda/cuda_experts_bench.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "attention/read_pass_cuda.h"
#include "base/float16.h"
#include "base/function_ref.h"
#include "base/prng.h"
#include "cuda/cuda_mixture.h"
#include "cuda/experts_cuda.h"
#include "cuda/product_samples.h"
#include "device/cuda_clock.h"
#include "device/cuda_gemm.h"

namespace stemma {
namespace {

// One call's visits, as sort_visits would write them.
struct Visits {
  CudaMemory sorted;
  CudaMemory rows;
  CudaMemory tiles;
  std::int64_t tiles_count = 0;
  std::int64_t tile_visits = 0;
  std::int64_t touched = 0;  // experts
};

class Stage {
 public:
  Stage(CudaDevice& device, const CudaExpertsBenchOptions& options)
      : device_(device),
        options_(options),
        rows_max_(*std::max_element(options.rows.begin(), options.rows.end())) {}

  Status prepare() {
    const std::int64_t visits = rows_max_ * options_.row_experts;
    const std::int64_t matrix = options_.experts * options_.width * options_.hidden;
    STEMMA_ASSIGN_OR_RETURN(stream_, device_.make_stream());
    STEMMA_ASSIGN_OR_RETURN(clock_, CudaClock::create(device_));
    STEMMA_ASSIGN_OR_RETURN(random_, device_.allocate_pinned(kRandomBytes));
    for (std::size_t i = 0; i < kRandomBytes / sizeof(BFloat16); ++i) {
      random_.as<BFloat16>()[i] = to_bfloat16(static_cast<float>(prng_.unit() - 0.5));
    }
    STEMMA_RETURN_IF_ERROR(take(gate_up_, 2 * matrix));
    STEMMA_RETURN_IF_ERROR(take(down_, matrix));
    STEMMA_RETURN_IF_ERROR(take(router_, options_.experts * options_.hidden));
    STEMMA_RETURN_IF_ERROR(take(in_, 2 * rows_max_ * options_.hidden));
    STEMMA_RETURN_IF_ERROR(take(inner_, visits * 2 * options_.width));
    STEMMA_RETURN_IF_ERROR(take(said_, 2 * visits * options_.hidden));  // f32
    STEMMA_RETURN_IF_ERROR(take(area_, options_.read_bytes / 2));
    STEMMA_RETURN_IF_ERROR(take(sums_, 2 * read_pass_words(teams())));
    STEMMA_ASSIGN_OR_RETURN(library_, make_library_gemm(device_, stream_));
    config_.experts = options_.experts;
    config_.experts_per_token = options_.row_experts;
    config_.width = options_.width;
    config_.normalised = true;
    STEMMA_ASSIGN_OR_RETURN(mixture_, CudaMixture::create({.config = config_,
                                                           .hidden = options_.hidden,
                                                           .rows_max = rows_max_,
                                                           .device = device_,
                                                           .stream = stream_}));
    return stream_.synchronize();
  }

  Result<ProductSamples> products(std::int64_t rows) {
    std::vector<Visits> calls(static_cast<std::size_t>(options_.calls));
    double touched = 0;
    for (Visits& visits : calls) {
      STEMMA_ASSIGN_OR_RETURN(visits, spread(rows));
      touched += static_cast<double>(visits.touched) / options_.calls;
    }
    return measure(rows, touched,
                   [&](int call) { return multiply(calls[static_cast<std::size_t>(call)]); });
  }

  Result<ProductSamples> mixture(std::int64_t rows) {
    const auto experts = static_cast<double>(options_.experts);
    const double missed = 1 - static_cast<double>(options_.row_experts) / experts;
    const double touched = experts * (1 - std::pow(missed, static_cast<double>(rows)));
    const CudaMixtureWeights weights = {
        .router = {router_.bytes()}, .gate_up = {gate_up_.bytes()}, .down = {down_.bytes()}};
    return measure(rows, touched, [&](int call) {
      const std::int64_t first = call * rows % rows_max_;
      return mixture_->add(weights, {.in = in_.bytes() + 2 * first * options_.hidden,
                                     .out = said_.as<float>(),
                                     .rows = rows,
                                     .from_zero = true});
    });
  }

 private:
  static constexpr std::size_t kRandomBytes = std::size_t{1} << 20;

  std::int64_t teams() const { return 4 * device_.traits().multiprocessors; }

  // Random numbers of 16 bits.
  Status take(CudaMemory& memory, std::int64_t count) {
    const auto bytes = static_cast<std::size_t>(count) * sizeof(BFloat16);
    STEMMA_ASSIGN_OR_RETURN(memory, device_.allocate(bytes, stream_));
    for (std::size_t done = 0; done < bytes; done += kRandomBytes) {
      STEMMA_RETURN_IF_ERROR(stream_.copy_in(memory.bytes() + done, random_.bytes(),
                                             std::min(kRandomBytes, bytes - done)));
    }
    return {};
  }

  template <typename T>
  Result<CudaMemory> upload(const std::vector<T>& values) {
    const std::size_t bytes = values.size() * sizeof(T);
    STEMMA_ASSIGN_OR_RETURN(CudaMemory memory, device_.allocate(bytes, stream_));
    STEMMA_ASSIGN_OR_RETURN(const PinnedMemory pinned, device_.allocate_pinned(bytes));
    std::copy(values.begin(), values.end(), pinned.as<T>());
    STEMMA_RETURN_IF_ERROR(stream_.copy_in(memory.bytes(), pinned.bytes(), bytes));
    STEMMA_RETURN_IF_ERROR(stream_.synchronize());
    return memory;
  }

  // Visits of experts that are drawn for each row, none of them twice.
  Result<Visits> spread(std::int64_t rows) {
    std::vector<std::vector<std::int32_t>> visits_of(static_cast<std::size_t>(options_.experts));
    for (std::int64_t visit = 0; visit < rows * options_.row_experts; ++visit) {
      const auto row = static_cast<std::int32_t>(visit / options_.row_experts);
      auto* own = &visits_of[static_cast<std::size_t>(prng_.below(options_.experts))];
      while (!own->empty() && own->back() / options_.row_experts == row) {
        own = &visits_of[static_cast<std::size_t>(prng_.below(options_.experts))];
      }
      own->push_back(static_cast<std::int32_t>(visit));
    }
    return cut(visits_of, rows * options_.row_experts);
  }

  Result<Visits> cut(const std::vector<std::vector<std::int32_t>>& visits_of, std::int64_t count) {
    Visits visits;
    visits.tile_visits = expert_tile_visits(count, options_.experts, WeightType::kBf16,
                                            device_.traits().team_shared_bytes_max);
    std::vector<std::int32_t> sorted;
    std::vector<std::int32_t> rows;
    std::vector<ExpertTile> tiles;
    for (std::size_t expert = 0; expert < visits_of.size(); ++expert) {
      const auto& own = visits_of[expert];
      visits.touched += own.empty() ? 0 : 1;
      for (std::int64_t i = 0; i < std::ssize(own); i += visits.tile_visits) {
        tiles.push_back(
            {static_cast<std::int32_t>(expert), static_cast<std::int32_t>(std::ssize(sorted) + i),
             static_cast<std::int32_t>(std::min(visits.tile_visits, std::ssize(own) - i))});
      }
      sorted.insert(sorted.end(), own.begin(), own.end());
    }
    rows.reserve(sorted.size());
    for (const std::int32_t visit : sorted) {
      rows.push_back(visit / static_cast<std::int32_t>(options_.row_experts));
    }
    tiles.resize(static_cast<std::size_t>(
        expert_tiles_max(count, options_.experts, visits.tile_visits)));  // as many as are launched
    visits.tiles_count = std::ssize(tiles);
    STEMMA_ASSIGN_OR_RETURN(visits.sorted, upload(sorted));
    STEMMA_ASSIGN_OR_RETURN(visits.rows, upload(rows));
    STEMMA_ASSIGN_OR_RETURN(visits.tiles, upload(tiles));
    return visits;
  }

  Status multiply(const Visits& visits) {
    ExpertProduct product = {.x = in_.bytes(),
                             .w = gate_up_.bytes(),
                             .y = inner_.bytes(),
                             .x_rows = visits.rows.as<std::int32_t>(),
                             .tiles = visits.tiles.as<ExpertTile>(),
                             .tiles_count = visits.tiles_count,
                             .tile_visits = visits.tile_visits,
                             .n = 2 * options_.width,
                             .k = options_.hidden};
    STEMMA_RETURN_IF_ERROR(multiply_experts(stream_, product));
    product.x = inner_.bytes();
    product.w = down_.bytes();
    product.y = said_.bytes();
    product.x_rows = nullptr;
    product.y_rows = visits.sorted.as<std::int32_t>();
    product.n = options_.hidden;
    product.k = options_.width;
    product.f32_out = true;
    return multiply_experts(stream_, product);
  }

  // The same operations over one expert.
  Status library_products(std::int64_t rows) {
    const std::int64_t visits = rows * options_.row_experts;
    const std::int64_t at_once = 2 * rows_max_;  // that `in_` has
    for (std::int64_t first = 0; first < visits; first += at_once) {
      STEMMA_RETURN_IF_ERROR(library_->multiply({.x = in_.bytes(),
                                                 .w = gate_up_.bytes(),
                                                 .y = inner_.bytes(),
                                                 .m = std::min(at_once, visits - first),
                                                 .n = 2 * options_.width,
                                                 .k = options_.hidden}));
    }
    return library_->multiply({.x = inner_.bytes(),
                               .w = down_.bytes(),
                               .y = said_.bytes(),
                               .m = visits,
                               .n = options_.hidden,
                               .k = options_.width,
                               .f32_out = true});
  }

  // Microseconds of one of several calls.
  Result<double> call_us(int calls, FunctionRef<Status(int)> call) {
    STEMMA_ASSIGN_OR_RETURN(const double seconds, clock_.seconds(stream_, calls, call));
    return seconds * 1e6;
  }

  Result<ProductSamples> measure(std::int64_t rows, double touched, FunctionRef<Status(int)> call) {
    const double expert_bytes =
        3.0 * sizeof(BFloat16) * static_cast<double>(options_.width * options_.hidden);
    const double share = touched * expert_bytes / static_cast<double>(options_.read_bytes);
    ProductSamples samples;
    for (int i = 0; i < options_.samples; ++i) {
      STEMMA_ASSIGN_OR_RETURN(samples.us.emplace_back(), call_us(options_.calls, call));
      STEMMA_ASSIGN_OR_RETURN(const double read_us, call_us(2, [&](int) {
                                return read_pass(stream_, area_.bytes(), options_.read_bytes,
                                                 sums_.as<std::uint32_t>(), teams());
                              }));
      samples.read_us.push_back(read_us * share);
      STEMMA_ASSIGN_OR_RETURN(samples.library_us.emplace_back(),
                              call_us(2, [&](int) { return library_products(rows); }));
    }
    return samples;
  }

  CudaDevice& device_;
  const CudaExpertsBenchOptions& options_;
  std::int64_t rows_max_;
  Prng prng_{1};
  MixtureConfig config_;
  CudaStream stream_;
  CudaClock clock_;
  PinnedMemory random_;
  CudaMemory gate_up_;
  CudaMemory down_;
  CudaMemory router_;
  CudaMemory in_;
  CudaMemory inner_;
  CudaMemory said_;
  CudaMemory area_;
  CudaMemory sums_;
  std::unique_ptr<CudaGemm> library_;
  std::unique_ptr<CudaMixture> mixture_;
};

}  // namespace

Status bench_cuda_experts(CudaDevice& device, const CudaExpertsBenchOptions& options,
                          BenchSink sink) {
  Stage stage(device, options);
  STEMMA_RETURN_IF_ERROR(stage.prepare());
  const auto add_line = [&](const char* part, std::int64_t rows, const ProductSamples& samples) {
    const std::string experts =
        std::to_string(options.row_experts) + "/" + std::to_string(options.experts);
    sink(line_of("cuda_experts",
                 {{"part", part}, {"rows", std::to_string(rows)}, {"experts", experts}}, samples));
  };
  for (const std::int64_t rows : options.rows) {
    STEMMA_ASSIGN_OR_RETURN(const ProductSamples products, stage.products(rows));
    add_line("products", rows, products);
    STEMMA_ASSIGN_OR_RETURN(const ProductSamples mixture, stage.mixture(rows));
    add_line("mixture", rows, mixture);
  }
  return {};
}

}  // namespace stemma
