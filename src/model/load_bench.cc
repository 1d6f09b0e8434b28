#include "model/load_bench.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/temp_directory.h"
#include "base/thread_pool.h"
#include "device/buffer.h"
#include "model/random_model.h"
#include "model/tiny_config.h"
#include "model/weight_files.h"
#include "model/weights.h"

namespace stemma {
namespace {

constexpr char kWeightsFile[] = "model.safetensors";
constexpr std::size_t kReadBytes = std::size_t{8} << 20;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class LoadBench {
 public:
  explicit LoadBench(const LoadBenchOptions& options) : options_(options), pool_(options.threads) {}

  Result<std::vector<BenchLine>> run() {
    STEMMA_RETURN_IF_ERROR(write_random_model(
        directory_.path(), {.config = options_.config, .type = WeightType::kBf16}));
    file_bytes_ = static_cast<std::int64_t>(std::filesystem::file_size(path()));
    STEMMA_RETURN_IF_ERROR(forget());  // so that the first case finds all of it on the disk
    std::vector<BenchLine> lines;
    for (const bool cached : {true, false}) {
      for (const WeightRounding rounding :
           {WeightRounding::kNone, WeightRounding::kInt8, WeightRounding::kInt4}) {
        STEMMA_ASSIGN_OR_RETURN(BenchLine line, measure(cached, rounding));
        lines.push_back(std::move(line));
      }
    }
    return lines;
  }

 private:
  std::string path() const { return directory_.file(kWeightsFile); }

  // Drops the file from the system's cache.
  Status forget() const {
    const int descriptor = ::open(path().c_str(), O_RDONLY);
    if (descriptor < 0) return Error{ErrorCode::kIo, path() + ": cannot open"};
    const bool dropped =
        ::fsync(descriptor) == 0 && ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED) == 0;
    ::close(descriptor);
    if (dropped) return {};
    return Error{ErrorCode::kIo, path() + ": cannot be dropped from the cache"};
  }

  double gb_per_s(double seconds) const {
    return static_cast<double>(file_bytes_) / seconds * 1e-9;
  }

  // From end to end, each piece into `memory`: over the same bytes of it, or each into its own.
  Result<double> read_rate(Buffer& memory) {
    STEMMA_ASSIGN_OR_RETURN(const auto file, files_.open(path()));
    const double start = seconds_now();
    for (std::int64_t at = 0; at < file_bytes_;) {
      const auto count = std::min(kReadBytes, static_cast<std::size_t>(file_bytes_ - at));
      const std::size_t to = memory.size_bytes() == kReadBytes ? 0 : static_cast<std::size_t>(at);
      STEMMA_RETURN_IF_ERROR(file->read_exact(at, std::span(memory.bytes() + to, count)));
      at += static_cast<std::int64_t>(count);
    }
    return gb_per_s(seconds_now() - start);
  }

  Result<double> plain_rate(bool cached) {
    if (!cached) STEMMA_RETURN_IF_ERROR(forget());
    STEMMA_ASSIGN_OR_RETURN(Buffer memory, Buffer::allocate(kReadBytes));
    memory.prefault(pool_);
    return read_rate(memory);
  }

  Result<double> fresh_rate(bool cached) {
    if (!cached) STEMMA_RETURN_IF_ERROR(forget());
    STEMMA_ASSIGN_OR_RETURN(Buffer memory,
                            Buffer::allocate(static_cast<std::size_t>(file_bytes_) + kReadBytes));
    return read_rate(memory);
  }

  Result<double> load_rate(bool cached, WeightRounding rounding) {
    if (!cached) STEMMA_RETURN_IF_ERROR(forget());
    const double start = seconds_now();
    STEMMA_ASSIGN_OR_RETURN(WeightFiles weight_files, WeightFiles::open(files_, directory_.path()));
    STEMMA_ASSIGN_OR_RETURN(
        const ModelWeights weights,
        load_weights(options_.config, weight_files, pool_, {.rounding = rounding}));
    const double seconds = seconds_now() - start;
    format_ = weights.compute_format();
    return gb_per_s(seconds);
  }

  Result<BenchLine> measure(bool cached, WeightRounding rounding) {
    std::vector<double> values;
    std::vector<double> bounds;
    std::vector<double> ratios;
    std::vector<double> fresh;
    if (cached) STEMMA_RETURN_IF_ERROR(plain_rate(true));
    for (int repeat = 0; repeat < options_.repeats; ++repeat) {
      STEMMA_ASSIGN_OR_RETURN(const double before, plain_rate(cached));
      STEMMA_ASSIGN_OR_RETURN(const double loaded, load_rate(cached, rounding));
      STEMMA_ASSIGN_OR_RETURN(const double after, plain_rate(cached));
      STEMMA_ASSIGN_OR_RETURN(const double first_touched, fresh_rate(cached));
      values.push_back(loaded);
      bounds.push_back((before + after) / 2);
      ratios.push_back(values.back() / bounds.back());
      fresh.push_back(first_touched);
    }
    BenchLine line;
    line.bench = "load";
    line.params = {{"weights", format_},
                   {"files", cached ? "cached" : "on_disk"},
                   {"bytes", std::to_string(file_bytes_)},
                   {"threads", std::to_string(pool_.threads())},
                   {"fresh_gb_per_s", std::to_string(median(fresh))}};
    line.value = median(values);
    line.unit = "gb/s";
    line.bound = median(bounds);
    line.bound_name = "plain_read";
    line.ratio = median(ratios);
    line.repeats = options_.repeats;
    line.spread = spread(ratios);
    return line;
  }

  LoadBenchOptions options_;
  TempDirectory directory_;
  PosixFiles files_;
  ThreadPool pool_;
  std::int64_t file_bytes_ = 0;
  std::string format_;  // of the last load
};

}  // namespace

LoadBenchOptions default_load_bench() {
  LoadBenchOptions options;
  ModelConfig& config = options.config;
  config = tiny_model_config("llama2");
  config.hidden = 2048;
  config.intermediate = 5632;
  config.layers = 11;
  config.vocab_tokens = 8192;
  config.query_heads = 32;
  config.kv_heads = 8;
  config.head_dim = 64;
  return options;
}

Result<std::vector<BenchLine>> bench_load(const LoadBenchOptions& options) {
  STEMMA_CHECK(options.threads >= 1 && options.repeats >= 1, "a benchmark runs");
  return LoadBench(options).run();
}

}  // namespace stemma
