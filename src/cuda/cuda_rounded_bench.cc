#include "cuda/cuda_rounded_bench.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "attention/read_pass_cuda.h"
#include "base/float16.h"
#include "base/function_ref.h"
#include "base/prng.h"
#include "cuda/product_samples.h"
#include "device/cuda_clock.h"
#include "device/cuda_gemm.h"
#include "device/rounded_strips.h"

namespace stemma {
namespace {

constexpr std::size_t kLayers = 2;

// One product of a layer, and its weights of both layers.
struct Matrix {
  std::int64_t outputs = 0;
  std::int64_t inputs = 0;
  std::array<CudaMemory, kLayers> weights;
};
using Layers = std::array<Matrix, 4>;

class Stage {
 public:
  Stage(CudaDevice& device, const CudaRoundedBenchOptions& options)
      : device_(device),
        options_(options),
        rows_max_(*std::max_element(options.rows.begin(), options.rows.end())) {}

  Status prepare() {
    const std::int64_t columns_max = std::max(2 * options_.intermediate, options_.qkv_columns);
    STEMMA_ASSIGN_OR_RETURN(stream_, device_.make_stream());
    STEMMA_ASSIGN_OR_RETURN(clock_, CudaClock::create(device_));
    STEMMA_RETURN_IF_ERROR(take(in_, rows_max_ * columns_max, random_row(options_.hidden)));
    STEMMA_RETURN_IF_ERROR(allocate(out_, 2 * rows_max_ * columns_max));
    STEMMA_RETURN_IF_ERROR(take(area_, options_.read_bytes / 2, random_row(options_.hidden)));
    STEMMA_RETURN_IF_ERROR(allocate(sums_, 4 * read_pass_words(teams())));
    STEMMA_RETURN_IF_ERROR(make_layers(CodeForm::kNone, plain_));
    ordered_ = make_ordered_gemm(stream_);
    STEMMA_ASSIGN_OR_RETURN(library_, make_library_gemm(device_, stream_));
    return stream_.synchronize();
  }

  // Of codes, or of bf16.
  Status make_layers(CodeForm form, Layers& layers) {
    const std::int64_t hidden = options_.hidden;
    const std::array<std::pair<std::int64_t, std::int64_t>, 4> shapes = {
        {{options_.qkv_columns, hidden},
         {hidden, hidden},
         {2 * options_.intermediate, hidden},
         {hidden, options_.intermediate}}};
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const auto& [outputs, inputs] = shapes[i];
      layers[i].outputs = outputs;
      layers[i].inputs = inputs;
      for (CudaMemory& weights : layers[i].weights) {
        const std::vector<std::byte> first =
            form == CodeForm::kNone ? random_row(inputs) : strip(form, inputs);
        const std::int64_t bytes = form == CodeForm::kNone
                                       ? 2 * outputs * inputs
                                       : RoundedStrips::matrix_bytes(form, outputs, inputs);
        STEMMA_RETURN_IF_ERROR(take(weights, bytes / 2, first));
      }
    }
    return stream_.synchronize();
  }

  Result<ProductSamples> measure(const Layers& layers, CodeForm form, std::int64_t rows) {
    double bytes = 0;
    for (const Matrix& matrix : layers) {
      bytes += static_cast<double>(matrix.weights[0].size_bytes());
    }
    ProductSamples samples;
    for (int i = 0; i < options_.samples; ++i) {
      STEMMA_ASSIGN_OR_RETURN(samples.us.emplace_back(), call_us(options_.calls, [&](int call) {
                                return multiply(*ordered_, layers, form, rows, call);
                              }));
      STEMMA_ASSIGN_OR_RETURN(const double read_us, call_us(2, [&](int) {
                                return read_pass(stream_, area_.bytes(), options_.read_bytes,
                                                 sums_.as<std::uint32_t>(), teams());
                              }));
      samples.read_us.push_back(read_us * bytes / static_cast<double>(options_.read_bytes));
      STEMMA_ASSIGN_OR_RETURN(const double library_us, call_us(2, [&](int call) {
                                return multiply(*library_, plain_, CodeForm::kNone, rows_max_,
                                                call);
                              }));
      samples.library_us.push_back(library_us * static_cast<double>(rows) /
                                   static_cast<double>(rows_max_));
    }
    return samples;
  }

  const Layers& plain() const { return plain_; }

 private:
  std::int64_t teams() const { return 4 * device_.traits().multiprocessors; }

  std::vector<std::byte> random_row(std::int64_t values) {
    std::vector<BFloat16> row(static_cast<std::size_t>(values));
    for (BFloat16& value : row) value = to_bfloat16(static_cast<float>(random_.unit() - 0.5));
    const auto bytes = std::as_bytes(std::span(row));
    return {bytes.begin(), bytes.end()};
  }

  // Random codes, and scales and zeros that are small numbers.
  std::vector<std::byte> strip(CodeForm form, std::int64_t inputs) {
    std::vector<std::byte> bytes(
        static_cast<std::size_t>(RoundedStrips::strip_bytes(form, inputs)));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random_.below(256));
    constexpr std::byte kSmall{0x3C};
    std::fill_n(bytes.begin(), RoundedStrips::begin_bytes(form), kSmall);
    if (form == CodeForm::kInt8) return bytes;
    for (auto group = bytes.begin(); group != bytes.end();
         group += RoundedStrips::group_bytes(form)) {
      std::fill_n(group + RoundedStrips::code_bytes(form), 2 * RoundedStrips::kOutputs, kSmall);
      if (form != CodeForm::kInt4Shifted) continue;
      std::fill_n(group + RoundedStrips::zeros_at(), RoundedStrips::kOutputs, std::byte{7});
    }
    return bytes;
  }

  Status allocate(CudaMemory& memory, std::int64_t bytes) {
    STEMMA_ASSIGN_OR_RETURN(memory, device_.allocate(static_cast<std::size_t>(bytes), stream_));
    return {};
  }

  // Room for `count` values of 16 bits, of which `first` are the first, and again and again.
  Status take(CudaMemory& memory, std::int64_t count, const std::vector<std::byte>& first) {
    const auto bytes = static_cast<std::size_t>(count) * 2;
    STEMMA_RETURN_IF_ERROR(allocate(memory, 2 * count));
    STEMMA_ASSIGN_OR_RETURN(const PinnedMemory pinned, device_.allocate_pinned(first.size()));
    std::memcpy(pinned.bytes(), first.data(), first.size());
    std::size_t done = std::min(bytes, first.size());
    STEMMA_RETURN_IF_ERROR(stream_.copy_in(memory.bytes(), pinned.bytes(), done));
    for (; done < bytes; done += std::min(done, bytes - done)) {
      STEMMA_RETURN_IF_ERROR(
          stream_.copy(memory.bytes() + done, memory.bytes(), std::min(done, bytes - done)));
    }
    return stream_.synchronize();
  }

  Status multiply(CudaGemm& gemm, const Layers& layers, CodeForm form, std::int64_t rows,
                  int call) {
    for (const Matrix& matrix : layers) {
      STEMMA_RETURN_IF_ERROR(
          gemm.multiply({.x = in_.bytes(),
                         .w = matrix.weights[static_cast<std::size_t>(call) % kLayers].bytes(),
                         .y = out_.bytes(),
                         .m = rows,
                         .n = matrix.outputs,
                         .k = matrix.inputs,
                         .codes = form}));
    }
    return {};
  }

  // Microseconds of one of several calls.
  Result<double> call_us(int calls, FunctionRef<Status(int)> call) {
    STEMMA_ASSIGN_OR_RETURN(const double seconds, clock_.seconds(stream_, calls, call));
    return seconds * 1e6;
  }

  CudaDevice& device_;
  const CudaRoundedBenchOptions& options_;
  std::int64_t rows_max_;
  Prng random_{1};
  CudaStream stream_;
  CudaClock clock_;
  Layers plain_;
  CudaMemory in_;
  CudaMemory out_;
  CudaMemory area_;
  CudaMemory sums_;
  std::unique_ptr<CudaGemm> ordered_;
  std::unique_ptr<CudaGemm> library_;
};

}  // namespace

Status bench_cuda_rounded(CudaDevice& device, const CudaRoundedBenchOptions& options,
                          BenchSink sink) {
  Stage stage(device, options);
  STEMMA_RETURN_IF_ERROR(stage.prepare());
  constexpr std::array kForms = {
      std::pair{"bf16", CodeForm::kNone}, std::pair{"int8", CodeForm::kInt8},
      std::pair{"int4", CodeForm::kInt4}, std::pair{"int4_shifted", CodeForm::kInt4Shifted}};
  for (const auto& [weights, form] : kForms) {
    Layers rounded;
    if (form != CodeForm::kNone) STEMMA_RETURN_IF_ERROR(stage.make_layers(form, rounded));
    for (const std::int64_t rows : options.rows) {
      STEMMA_ASSIGN_OR_RETURN(
          const ProductSamples samples,
          stage.measure(form == CodeForm::kNone ? stage.plain() : rounded, form, rows));
      sink(
          line_of("cuda_rounded", {{"weights", weights}, {"rows", std::to_string(rows)}}, samples));
    }
  }
  return {};
}

}  // namespace stemma
