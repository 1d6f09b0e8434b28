// Ours and redis-benchmark take turns, a fifth of a second each, so that whatever else the machine
// does meets both alike. redis-benchmark asks for one key again and again; so do we, in as many
// frames as the pipeline is deep.
#include "store/redis_bench.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/digest.h"
#include "base/temp_directory.h"
#include "store/redis_page_store.h"
#include "store/redis_process.h"

namespace stemma {

namespace {

constexpr std::int64_t kPipeline = 16;
constexpr int kSamples = 11;
constexpr std::int64_t kSampleBytes = 256LL << 20;
constexpr std::int64_t kLimitUs = 60'000'000;

struct Stage {
  std::unique_ptr<RedisPageStore> store;
  std::string socket_path;
  std::vector<std::byte> frames;
  std::vector<PageRead> reads;
  std::int64_t frame_bytes;
};

Status put_page(Stage& stage, const Clock& clock, const PageKey& key) {
  PageWrite write = {key, {stage.frames.data(), static_cast<std::size_t>(stage.frame_bytes)}};
  stage.store->write({&write, 1}, clock.now_us() + kLimitUs);
  if (write.verdict == PageVerdict::kDone) return {};
  return Error{ErrorCode::kIo, "bench: redis-server does not take a page"};
}

// GB/s of one sample.
Result<double> read_ours(Stage& stage, const Clock& clock) {
  const std::int64_t batches = kSampleBytes / (kPipeline * stage.frame_bytes);
  const std::int64_t start_us = clock.now_us();
  for (std::int64_t batch = 0; batch < batches; ++batch) {
    stage.store->read(stage.reads, clock.now_us() + kLimitUs);
    for (const PageRead& read : stage.reads) {
      if (read.verdict == PageVerdict::kDone) continue;
      return Error{ErrorCode::kIo, "bench: redis-server does not give a page back"};
    }
  }
  const auto time_us = static_cast<double>(clock.now_us() - start_us);
  return static_cast<double>(batches * kPipeline * stage.frame_bytes) / time_us * 1e-3;
}

// The requests a second that `redis-benchmark --csv` prints behind the name of a test.
Result<double> requests_a_second(const std::string& printed, std::string_view test) {
  const std::string name = "\"" + std::string(test) + "\",\"";
  const std::size_t at = printed.rfind(name);
  double value = 0;
  if (at != std::string::npos) {
    const char* const digits = printed.data() + at + name.size();
    std::from_chars(digits, printed.data() + printed.size(), value);
  }
  if (value > 0) return value;
  return Error{ErrorCode::kInternal, "bench: redis-benchmark printed: " + printed};
}

Result<double> read_theirs(const Stage& stage) {
  const std::string size = std::to_string(stage.frame_bytes);
  const std::string requests = std::to_string(kSampleBytes / stage.frame_bytes);
  const std::vector<std::string> words = {"redis-benchmark",
                                          "-s",
                                          stage.socket_path,
                                          "-t",
                                          "get",
                                          "-d",
                                          size,
                                          "-P",
                                          std::to_string(kPipeline),
                                          "-c",
                                          "1",
                                          "-n",
                                          requests,
                                          "--csv"};
  STEMMA_ASSIGN_OR_RETURN(const std::string printed, run_program(words, kLimitUs));
  STEMMA_ASSIGN_OR_RETURN(const double requests_per_s, requests_a_second(printed, "GET"));
  return requests_per_s * static_cast<double>(stage.frame_bytes) * 1e-9;
}

// What `redis-benchmark -t get` asks for.
Status put_their_value(const Stage& stage) {
  const std::string size = std::to_string(stage.frame_bytes);
  const std::vector<std::string> words = {"redis-benchmark",
                                          "-s",
                                          stage.socket_path,
                                          "-t",
                                          "set",
                                          "-d",
                                          size,
                                          "-c",
                                          "1",
                                          "-n",
                                          "1",
                                          "--csv"};
  const auto printed = run_program(words, kLimitUs);
  if (!printed.ok()) return printed.error();
  return {};
}

Result<BenchLine> measure(Stage& stage, const Clock& clock) {
  std::vector<double> ours;
  std::vector<double> theirs;
  for (int sample = 0; sample < kSamples; ++sample) {
    STEMMA_ASSIGN_OR_RETURN(const double ours_gbps, read_ours(stage, clock));
    STEMMA_ASSIGN_OR_RETURN(const double theirs_gbps, read_theirs(stage));
    ours.push_back(ours_gbps);
    theirs.push_back(theirs_gbps);
  }
  BenchLine line;
  line.bench = "tier";
  line.params = {{"store", "redis"},
                 {"operation", "read"},
                 {"page_bytes", std::to_string(stage.frame_bytes)},
                 {"pipeline", std::to_string(kPipeline)},
                 {"connections", "1"},
                 {"socket", "unix"}};
  line.value = median(ours);
  line.unit = "gb/s";
  line.bound = median(theirs);
  line.bound_name = "redis-benchmark";
  line.ratio = line.value / line.bound;
  line.repeats = kSamples;
  line.spread = spread(ours);
  return line;
}

}  // namespace

Result<std::vector<BenchLine>> bench_redis() {
  const TempDirectory directory;
  const MonotonicClock clock;
  STEMMA_ASSIGN_OR_RETURN(const RedisProcess server,
                          RedisProcess::start({.directory = directory.path()}));
  RedisPageStoreOptions options;
  options.url = server.unix_url();
  options.operation_us_max = kLimitUs;
  Stage stage;
  stage.socket_path = server.socket_path();
  STEMMA_ASSIGN_OR_RETURN(stage.store, RedisPageStore::open(options, clock));
  std::vector<BenchLine> lines;
  for (const std::int64_t frame_bytes : {64 << 10, 256 << 10, 1 << 20}) {
    stage.frame_bytes = frame_bytes;
    stage.frames.assign(static_cast<std::size_t>(kPipeline * frame_bytes), std::byte{0x5A});
    const std::string name = std::to_string(frame_bytes);
    const PageKey key = {sha256(std::as_bytes(std::span(name)))};
    stage.reads.clear();
    for (std::int64_t i = 0; i < kPipeline; ++i) {
      stage.reads.push_back(
          {key, {stage.frames.data() + i * frame_bytes, static_cast<std::size_t>(frame_bytes)}});
    }
    STEMMA_RETURN_IF_ERROR(put_page(stage, clock, key));
    STEMMA_RETURN_IF_ERROR(put_their_value(stage));
    STEMMA_ASSIGN_OR_RETURN(BenchLine line, measure(stage, clock));
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace stemma
