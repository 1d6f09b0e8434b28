// Copies of pages and plain copies take turns, and a sample is short (a call of about a MiB a
// thread), so that whatever else the machine does meets both alike and medians leave it out. Every
// sample works on other pages and other parts of the working set, which together are many times the
// last-level cache.
#include "pool/host_copy_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/prng.h"
#include "device/machine_probe.h"
#include "pool/host_pool.h"
#include "pool/mha_pool.h"

namespace stemma {

namespace {

constexpr std::int64_t kCallBytes = std::int64_t{1} << 20;
constexpr int kSumSamples = 51;
constexpr std::size_t kCachedBytes = 32768;
constexpr auto kAlways = [] { return true; };

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct ModelCase {
  std::string_view name;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
};

struct CopyCase {
  bool promotes = false;
  std::int64_t moved_bytes = 0;
};

// The pools of one model, every page of the device pool in a random page of the host pool.
struct Stage {
  std::unique_ptr<MhaPool> device;
  std::unique_ptr<HostPool> host;
  std::vector<PageMove> down;
  std::vector<PageMove> up;
};

// Two areas for memcpy, as large as the pools.
struct PlainCopies {
  Buffer from;
  Buffer to;
};

KvShape shape_of(const ModelCase& model, std::int64_t pool_bytes) {
  KvShape shape = {.layers = model.layers,
                   .pages = 1,
                   .page_size = 16,
                   .heads = model.heads,
                   .head_dim = model.head_dim,
                   .dtype = DType::kBF16};
  shape.pages = pool_bytes / shape.page_bytes();
  return shape;
}

std::vector<PageId> shuffled_pages(std::int64_t pages, Prng& prng) {
  std::vector<PageId> ids;
  for (const PageId page : id_range(PageId(0), pages)) ids.push_back(page);
  std::shuffle(ids.begin(), ids.end(), prng);
  return ids;
}

Result<Stage> make_stage(const KvShape& shape, KvLayout layout, ThreadPool& threads) {
  Stage stage;
  STEMMA_ASSIGN_OR_RETURN(stage.device, MhaPool::create(shape, layout, threads));
  HostPoolOptions options;
  options.pages = shape.pages;
  options.pages_min = shape.pages;
  options.layers = shape.layers;
  options.layer_bytes = stage.device->layer_bytes();
  STEMMA_ASSIGN_OR_RETURN(stage.host, HostPool::create(options, threads));
  Prng prng(1);
  auto* const words = static_cast<std::uint64_t*>(stage.device->logical_view().bytes);
  std::generate_n(words, shape.total_bytes() / 8, [&] { return prng(); });
  const std::vector<PageId> from = shuffled_pages(shape.pages, prng);
  const std::vector<PageId> to = shuffled_pages(shape.pages, prng);
  for (std::size_t i = 0; i < from.size(); ++i) {
    PageKey key;
    std::memcpy(key.bytes.data(), &i, sizeof(i));
    stage.down.push_back({from[i], to[i], key});
    stage.up.push_back({to[i], from[i], key});
  }
  std::shuffle(stage.up.begin(), stage.up.end(), prng);
  stage.host->backup(*stage.device, stage.down, kAlways);
  return stage;
}

// One call a thread.
double move_seconds(Stage& stage, bool promotes, std::size_t first, std::size_t pages,
                    ThreadPool& threads) {
  std::vector<PageMove>& all = promotes ? stage.up : stage.down;
  const auto workers = static_cast<std::size_t>(threads.threads());
  const std::span<PageMove> moves = std::span(all).subspan(first, pages * workers);
  for (PageMove& move : moves) move.verdict = MoveVerdict::kUntried;
  const double start = seconds_now();
  threads.run(threads.threads(), [&](std::int64_t part, int) {
    const auto mine = moves.subspan(static_cast<std::size_t>(part) * pages, pages);
    if (promotes) {
      stage.host->promote(*stage.device, mine, {0, stage.host->layers()}, kAlways);
    } else {
      stage.host->backup(*stage.device, mine, kAlways);
    }
  });
  const double seconds = seconds_now() - start;
  for (const PageMove& move : moves) STEMMA_CHECK(move.verdict == MoveVerdict::kDone, "moved");
  return seconds;
}

double copy_seconds(PlainCopies& copies, std::size_t offset, std::size_t bytes,
                    ThreadPool& threads) {
  const double start = seconds_now();
  threads.run(threads.threads(), [&](std::int64_t part, int) {
    const std::size_t at = offset + static_cast<std::size_t>(part) * bytes;
    std::memcpy(copies.to.bytes() + at, copies.from.bytes() + at, bytes);
  });
  return seconds_now() - start;
}

// The bytes that a move moves, by memcpy of each piece: the pools hold the same in both places, so
// nothing changes.
void copy_pieces(Stage& stage, const PageMove& down) {
  for (std::int64_t layer = 0; layer < stage.host->layers(); ++layer) {
    std::byte* to = stage.host->layer_image(down.to, layer).data();
    for (const auto& piece : stage.device->layer_pieces(layer)) {
      std::memcpy(to, piece.of(down.from), static_cast<std::size_t>(piece.bytes));
      to += piece.bytes;
    }
  }
}

void copy_pieces_back(Stage& stage, const PageMove& up) {
  for (std::int64_t layer = 0; layer < stage.host->layers(); ++layer) {
    const std::byte* from = stage.host->layer_image(up.from, layer).data();
    for (const auto& piece : stage.device->layer_pieces(layer)) {
      std::memcpy(piece.of(up.to), from, static_cast<std::size_t>(piece.bytes));
      from += piece.bytes;
    }
  }
}

double piece_seconds(Stage& stage, bool promotes, std::size_t first, std::size_t pages,
                     ThreadPool& threads) {
  const std::vector<PageMove>& all = promotes ? stage.up : stage.down;
  const double start = seconds_now();
  threads.run(threads.threads(), [&](std::int64_t part, int) {
    const std::size_t begin = first + static_cast<std::size_t>(part) * pages;
    for (std::size_t i = begin; i < begin + pages; ++i) {
      promotes ? copy_pieces_back(stage, all[i]) : copy_pieces(stage, all[i]);
    }
  });
  return seconds_now() - start;
}

BenchLine line_of(std::span<const double> values, std::span<const double> bounds) {
  BenchLine line;
  line.bench = "tier";
  line.value = median(values);
  line.unit = "gb/s";
  line.bound = median(bounds);
  line.bound_name = "memcpy";
  line.ratio = line.value / line.bound;
  line.repeats = static_cast<int>(values.size());
  line.spread = spread(values);
  return line;
}

BenchLine measure(const CopyCase& copy_case, Stage& stage, PlainCopies& copies,
                  ThreadPool& threads) {
  const std::int64_t page_bytes = stage.host->page_bytes();
  const auto call_pages =
      static_cast<std::size_t>(std::max<std::int64_t>(1, kCallBytes / page_bytes));
  const std::size_t call_bytes = call_pages * static_cast<std::size_t>(page_bytes);
  const auto workers = static_cast<std::size_t>(threads.threads());
  const std::size_t turns = stage.down.size() / (call_pages * workers);
  const std::size_t samples =
      static_cast<std::size_t>(copy_case.moved_bytes) / (call_bytes * workers) + 1;
  std::vector<double> moved;
  std::vector<double> copied;
  std::vector<double> by_pieces;
  for (std::size_t sample = 0; sample < samples; ++sample) {
    const std::size_t first = sample % turns * call_pages * workers;
    const double sample_gb = static_cast<double>(call_bytes * workers) * 1e-9;
    moved.push_back(sample_gb /
                    move_seconds(stage, copy_case.promotes, first, call_pages, threads));
    const std::size_t offset = first * static_cast<std::size_t>(page_bytes);
    copied.push_back(sample_gb / copy_seconds(copies, offset, call_bytes, threads));
    const std::size_t other = (sample + turns / 2) % turns * call_pages * workers;
    by_pieces.push_back(sample_gb /
                        piece_seconds(stage, copy_case.promotes, other, call_pages, threads));
  }
  BenchLine line = line_of(moved, copied);
  line.params = {{"memcpy_of_pieces_gb_per_s", fmt::format("{:.2f}", median(by_pieces))}};
  return line;
}

// The threads of one line, and of two.
struct Threads {
  ThreadPool one{1};
  ThreadPool two{2};
};

Result<std::vector<BenchLine>> bench_model(const ModelCase& model,
                                           const HostCopyBenchOptions& options, PlainCopies& copies,
                                           Threads& pools) {
  auto& [one, two] = pools;
  std::vector<BenchLine> lines;
  const KvShape shape = shape_of(model, options.pool_bytes);
  for (const KvLayout layout : {KvLayout::kLayerFirst, KvLayout::kPageFirst}) {
    STEMMA_ASSIGN_OR_RETURN(Stage stage, make_stage(shape, layout, one));
    for (ThreadPool* const threads : {&one, &two}) {
      if (threads->threads() > options.threads_max) continue;
      for (const bool promotes : {false, true}) {
        const CopyCase copy_case = {promotes, options.moved_bytes};
        const double before = threads == &two ? two_core_ratio(two) : 0;
        BenchLine line = measure(copy_case, stage, copies, *threads);
        line.params.insert(line.params.begin(),
                           {{"what", promotes ? "promote" : "backup"},
                            {"model", std::string(model.name)},
                            {"device_layout", std::string(kv_layout_name(layout))},
                            {"piece_bytes", std::to_string(stage.host->layer_bytes() / 2)},
                            {"page_bytes", std::to_string(stage.host->page_bytes())},
                            {"threads", std::to_string(threads->threads())}});
        if (threads == &two) {
          const double cores = std::min(before, two_core_ratio(two));
          line.params.emplace_back("two_core_ratio", fmt::format("{:.2f}", cores));
        }
        lines.push_back(std::move(line));
      }
    }
  }
  return lines;
}

// The sum alone over bytes in a cache, against copies of them.
BenchLine bench_cached_sum(PlainCopies& copies) {
  constexpr int kRounds = 200;
  const std::span<const std::byte> bytes(copies.from.bytes(), kCachedBytes);
  std::vector<double> sums;
  std::vector<double> plain;
  std::uint32_t sum = 0;
  for (int sample = 0; sample < kSumSamples; ++sample) {
    double start = seconds_now();
    for (int round = 0; round < kRounds; ++round) sum = crc32c(bytes, sum);
    sums.push_back(kRounds * kCachedBytes / (seconds_now() - start) * 1e-9);
    start = seconds_now();
    for (int round = 0; round < kRounds; ++round) {
      std::memcpy(copies.to.bytes(), bytes.data(), kCachedBytes);
      sum += std::to_integer<std::uint32_t>(copies.to.bytes()[sum % kCachedBytes]);
    }
    plain.push_back(kRounds * kCachedBytes / (seconds_now() - start) * 1e-9);
  }
  BenchLine line = line_of(sums, plain);
  line.params = {{"what", "crc32c"}, {"bytes", std::to_string(kCachedBytes)}};
  return line;
}

// Copies with their sums, from memory to memory in order, a MiB at a time.
BenchLine bench_summed_copy(PlainCopies& copies, ThreadPool& one) {
  std::vector<double> summed;
  std::vector<double> plain;
  const auto bytes = static_cast<std::size_t>(kCallBytes);
  for (std::size_t at = 0; at + 2 * bytes <= copies.from.size_bytes(); at += 2 * bytes) {
    CrcCopy copy;
    copy.from = {copies.from.bytes() + at, bytes};
    copy.to = copies.to.bytes() + at;
    copy.next = copy.from.data() + bytes;
    copy.past_caches = true;
    const double start = seconds_now();
    static_cast<void>(copy_crc32c(copy));
    end_past_caches();
    summed.push_back(static_cast<double>(bytes) / (seconds_now() - start) * 1e-9);
    plain.push_back(static_cast<double>(bytes) / copy_seconds(copies, at + bytes, bytes, one) *
                    1e-9);
  }
  BenchLine line = line_of(summed, plain);
  line.params = {{"what", "copy_crc32c"}, {"bytes", std::to_string(bytes)}};
  return line;
}

}  // namespace

Result<std::vector<BenchLine>> bench_host_copies(const HostCopyBenchOptions& options) {
  Threads threads;
  PlainCopies copies;
  const auto bytes = static_cast<std::size_t>(options.pool_bytes);
  STEMMA_ASSIGN_OR_RETURN(copies.from, Buffer::allocate(bytes));
  STEMMA_ASSIGN_OR_RETURN(copies.to, Buffer::allocate(bytes));
  copies.from.prefault(threads.one);
  copies.to.prefault(threads.one);
  std::vector<BenchLine> lines = {bench_cached_sum(copies), bench_summed_copy(copies, threads.one)};
  for (const ModelCase& model :
       {ModelCase{"qwen2.5-0.5b", 24, 2, 64}, ModelCase{"8-heads-of-128", 32, 8, 128}}) {
    STEMMA_ASSIGN_OR_RETURN(std::vector<BenchLine> some,
                            bench_model(model, options, copies, threads));
    std::move(some.begin(), some.end(), std::back_inserter(lines));
  }
  return lines;
}

}  // namespace stemma
