#include "pool/cuda_pool_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/function_ref.h"
#include "base/prng.h"
#include "device/cuda_clock.h"
#include "pool/cuda_page_copy.h"
#include "pool/cuda_page_mover.h"
#include "pool/cuda_pool.h"
#include "pool/sum_tables.h"

namespace stemma {

namespace {

using Call = FunctionRef<Status(std::int64_t number)>;

constexpr std::int64_t kPageSize = 16;
constexpr std::int64_t kHeadDim = 128;

double rate(std::int64_t bytes, double seconds) {
  return seconds > 0 ? static_cast<double>(bytes) / seconds * 1e-9 : 0;
}

BenchLine line_of(std::string bench, std::span<const double> values, std::span<const double> bounds,
                  std::string bound_name) {
  BenchLine line;
  line.bench = std::move(bench);
  line.value = median(values);
  line.unit = "gb/s";
  line.bound = median(bounds);
  line.bound_name = std::move(bound_name);
  line.ratio = line.bound > 0 ? line.value / line.bound : 0;
  line.repeats = static_cast<int>(values.size());
  line.spread = line.value > 0 ? spread(values) : 0;
  return line;
}

// A stream and its clock.
struct Timer {
  CudaStream stream;
  CudaClock clock;
};

Result<Timer> make_timer(CudaDevice& device) {
  Timer timer;
  STEMMA_ASSIGN_OR_RETURN(timer.stream, device.make_stream());
  STEMMA_ASSIGN_OR_RETURN(timer.clock, CudaClock::create(device));
  return timer;
}

// Bytes a second of `calls` calls of so many bytes each, the first being `first`.
Result<double> call_rate(Timer& timer, std::int64_t bytes, std::int64_t first, std::int64_t calls,
                         Call call) {
  STEMMA_ASSIGN_OR_RETURN(const double seconds,
                          timer.clock.seconds(timer.stream, static_cast<int>(calls),
                                              [&](int i) { return call(first + i); }));
  return rate(bytes, seconds);
}

// Samples of what is measured and of what bounds it, in turns.
struct Samples {
  std::vector<double> values;
  std::vector<double> bounds;
};

Result<Samples> take_samples(Timer& timer, const CudaPoolBenchOptions& options, std::int64_t bytes,
                             Call call, Call bound) {
  const std::int64_t calls = std::clamp<std::int64_t>(options.sample_bytes / bytes, 1, 200);
  Samples samples;
  STEMMA_RETURN_IF_ERROR(call(0));  // the first call of a kernel loads it
  for (int i = 0; i < options.samples; ++i) {
    STEMMA_ASSIGN_OR_RETURN(const double value, call_rate(timer, bytes, i * calls, calls, call));
    STEMMA_ASSIGN_OR_RETURN(const double limit, call_rate(timer, bytes, i * calls, calls, bound));
    samples.values.push_back(value);
    samples.bounds.push_back(limit);
  }
  return samples;
}

// --- Stores.

KvShape store_shape(std::int64_t pool_bytes) {
  KvShape shape = {.layers = 1,
                   .pages = 1,
                   .page_size = kPageSize,
                   .heads = 8,
                   .head_dim = kHeadDim,
                   .dtype = DType::kBF16};
  shape.pages = std::max<std::int64_t>(pool_bytes / shape.page_bytes(), 1);
  return shape;
}

// A pool, as many rows of source, and slots of random pages in every order of pages.
struct StoreStage {
  std::unique_ptr<CudaPool> pool;
  CudaMemory rows;
  CudaMemory slots;
};

Result<StoreStage> make_store_stage(CudaDevice& device, std::int64_t pool_bytes, Timer& timer) {
  const KvShape shape = store_shape(pool_bytes);
  StoreStage stage;
  STEMMA_ASSIGN_OR_RETURN(stage.pool, CudaPool::create(device, shape, KvLayout::kLayerFirst));
  const auto row_bytes = static_cast<std::size_t>(shape.total_bytes());
  STEMMA_ASSIGN_OR_RETURN(stage.rows, device.allocate(row_bytes, timer.stream));
  STEMMA_RETURN_IF_ERROR(timer.stream.fill(stage.rows.bytes(), 0x3D, row_bytes));
  std::vector<std::int32_t> pages(static_cast<std::size_t>(shape.pages));
  for (std::size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<std::int32_t>(i);
  Prng prng(1);
  std::shuffle(pages.begin(), pages.end(), prng);
  const std::size_t slot_bytes = static_cast<std::size_t>(shape.slots()) * sizeof(std::int32_t);
  STEMMA_ASSIGN_OR_RETURN(stage.slots, device.allocate(slot_bytes, timer.stream));
  STEMMA_ASSIGN_OR_RETURN(const PinnedMemory pinned, device.allocate_pinned(slot_bytes));
  for (std::int64_t slot = 0; slot < shape.slots(); ++slot) {
    const std::int32_t page = pages[static_cast<std::size_t>(slot / kPageSize)];
    pinned.as<std::int32_t>()[slot] =
        static_cast<std::int32_t>(page * kPageSize + slot % kPageSize);
  }
  STEMMA_RETURN_IF_ERROR(timer.stream.copy_in(stage.slots.bytes(), pinned.bytes(), slot_bytes));
  STEMMA_RETURN_IF_ERROR(timer.stream.synchronize());
  return stage;
}

// What is stored at once, and how.
struct StoreCase {
  std::int64_t tokens = 0;
  int loads = kStoreLoads;
};

// Rows [number × tokens, … + tokens) of the source, K and V, to their slots; around at the end.
Status store_some(StoreStage& stage, Timer& timer, const StoreCase& stored, std::int64_t number) {
  const KvShape& shape = stage.pool->shape();
  const std::int64_t first = number % (shape.slots() / stored.tokens) * stored.tokens;
  const StoreSource k = {stage.rows.bytes() + first * shape.row_elements() * 2,
                         shape.row_elements()};
  const StoreSource v = {k.elements + shape.total_bytes() / 2, k.row_stride};
  return store_rows_on(timer.stream, {.target = stage.pool->store_target(0),
                                      .slots = {.narrow = stage.slots.as<std::int32_t>() + first,
                                                .count = stored.tokens},
                                      .source_dtype = DType::kBF16,
                                      .k = k,
                                      .v = v,
                                      .loads = stored.loads});
}

Result<BenchLine> bench_stored(StoreStage& stage, Timer& timer, const StoreCase& stored,
                               const CudaPoolBenchOptions& options) {
  const KvShape& shape = stage.pool->shape();
  const std::int64_t bytes = stored.tokens * shape.row_elements() * 2 * 2;
  std::byte* const pool = stage.pool->layer_pieces(0).begin()->page0;
  const auto store = [&](std::int64_t number) { return store_some(stage, timer, stored, number); };
  const auto copy = [&](std::int64_t number) {
    const std::int64_t at = number % (shape.total_bytes() / bytes) * bytes;
    return timer.stream.copy(pool + at, stage.rows.bytes() + at, static_cast<std::size_t>(bytes));
  };
  const auto all = static_cast<std::size_t>(shape.total_bytes());
  const auto copy_all = [&](std::int64_t) {
    return timer.stream.copy(pool, stage.rows.bytes(), all);
  };
  STEMMA_ASSIGN_OR_RETURN(const Samples samples, take_samples(timer, options, bytes, store, copy));
  std::vector<double> large;
  for (int i = 0; i < options.samples; ++i) {
    STEMMA_ASSIGN_OR_RETURN(const double limit,
                            call_rate(timer, shape.total_bytes(), 0, 1, copy_all));
    large.push_back(limit);
  }
  BenchLine line = line_of("cuda_store", samples.values, large, "device_copy");
  line.params = {{"tokens", std::to_string(stored.tokens)},
                 {"loads", std::to_string(stored.loads)},
                 {"chosen", stored.loads == kStoreLoads ? "yes" : "no"},
                 {"bytes", std::to_string(bytes)},
                 {"copy_of_as_many_gb_per_s", fmt::format("{:.1f}", median(samples.bounds))}};
  return line;
}

// --- Pages.

// Pages of `layers` layers, of two pieces each.
struct PageCase {
  std::int64_t piece_bytes = 0;
  std::int64_t layers = 0;
};

KvShape page_shape(const PageCase& pages, std::int64_t pool_bytes) {
  KvShape shape = {.layers = pages.layers,
                   .pages = 1,
                   .page_size = kPageSize,
                   .heads = pages.piece_bytes / (kPageSize * kHeadDim * 2),
                   .head_dim = kHeadDim,
                   .dtype = DType::kBF16};
  shape.pages = std::max<std::int64_t>(pool_bytes / shape.page_bytes(), 1);
  return shape;
}

// Both pools, every page of one in a random page of the other, and room for plain copies.
struct PageStage {
  std::unique_ptr<CudaPool> pool;
  std::unique_ptr<HostPool> host;
  std::unique_ptr<CudaPageMover> mover;  // pins the host pool
  std::vector<PageMove> down;
  PinnedMemory pairs;
  CudaMemory device_pairs;
  CudaMemory tables;
  PinnedMemory sums;
  CudaMemory plain;
  PinnedMemory host_plain;
  PageCopy copy;
};

std::vector<PageId> shuffled_pages(std::int64_t pages, std::uint64_t seed) {
  std::vector<PageId> ids;
  for (const PageId page : id_range(PageId(0), pages)) ids.push_back(page);
  Prng prng(seed);
  std::shuffle(ids.begin(), ids.end(), prng);
  return ids;
}

Status make_pools(PageStage& stage, CudaDevice& device, const KvShape& shape) {
  ThreadPool threads(1);
  STEMMA_ASSIGN_OR_RETURN(stage.pool, CudaPool::create(device, shape, KvLayout::kLayerFirst));
  HostPoolOptions options;
  options.pages = shape.pages;
  options.pages_min = shape.pages;
  options.layers = shape.layers;
  options.layer_bytes = stage.pool->layer_bytes();
  STEMMA_ASSIGN_OR_RETURN(stage.host, HostPool::create(options, threads));
  STEMMA_ASSIGN_OR_RETURN(stage.mover, CudaPageMover::open(*stage.pool, *stage.host));
  return {};
}

Status make_lists(PageStage& stage, CudaDevice& device, Timer& timer) {
  const KvShape& shape = stage.pool->shape();
  const std::vector<PageId> from = shuffled_pages(shape.pages, 1);
  const std::vector<PageId> to = shuffled_pages(shape.pages, 2);
  const std::size_t pair_bytes = from.size() * sizeof(PagePair);
  STEMMA_ASSIGN_OR_RETURN(stage.pairs, device.allocate_pinned(pair_bytes));
  for (std::size_t i = 0; i < from.size(); ++i) {
    PageKey key;
    std::memcpy(key.bytes.data(), &i, sizeof(i));
    stage.down.push_back({from[i], to[i], key});
    stage.pairs.as<PagePair>()[i] = {from[i].value(), to[i].value()};
  }
  STEMMA_ASSIGN_OR_RETURN(stage.device_pairs, device.allocate(pair_bytes, timer.stream));
  STEMMA_RETURN_IF_ERROR(
      timer.stream.copy_in(stage.device_pairs.bytes(), stage.pairs.bytes(), pair_bytes));
  const std::vector<std::uint32_t> tables = make_sum_tables();
  const std::size_t table_bytes = tables.size() * sizeof(std::uint32_t);
  STEMMA_ASSIGN_OR_RETURN(stage.tables, device.allocate(table_bytes, timer.stream));
  STEMMA_ASSIGN_OR_RETURN(const PinnedMemory pinned, device.allocate_pinned(table_bytes));
  std::memcpy(pinned.bytes(), tables.data(), table_bytes);
  STEMMA_RETURN_IF_ERROR(timer.stream.copy_in(stage.tables.bytes(), pinned.bytes(), table_bytes));
  return timer.stream.synchronize();
}

Result<PageStage> make_page_stage(CudaDevice& device, const KvShape& shape, Timer& timer) {
  PageStage stage;
  STEMMA_RETURN_IF_ERROR(make_pools(stage, device, shape));
  STEMMA_RETURN_IF_ERROR(make_lists(stage, device, timer));
  const auto sums = static_cast<std::size_t>(sum_words(shape.pages * shape.layers));
  STEMMA_ASSIGN_OR_RETURN(stage.sums, device.allocate_pinned(sums * sizeof(std::uint32_t)));
  const auto bytes = static_cast<std::size_t>(shape.total_bytes());
  STEMMA_ASSIGN_OR_RETURN(stage.plain, device.allocate(bytes, timer.stream));
  STEMMA_ASSIGN_OR_RETURN(stage.host_plain, device.allocate_pinned(bytes));
  stage.copy = pages_of(*stage.pool);
  stage.copy.images = images_of(*stage.host);
  stage.copy.layers = shape.layers;
  stage.copy.tables = stage.tables.as<std::uint32_t>();
  stage.copy.sums = stage.sums.as<std::uint32_t>();
  return stage;
}

struct PageWay {
  bool out = false;
  CopyWay way = CopyWay::kKernels;
};

Status move_some(PageStage& stage, Timer& timer, std::int64_t pages, std::int64_t number,
                 const PageWay& way) {
  const std::int64_t first = number % (stage.pool->shape().pages / pages) * pages;
  PageCopy copy = stage.copy;
  copy.pages = stage.device_pairs.as<PagePair>() + first;
  copy.count = pages;
  const std::span<const PagePair> pairs(stage.pairs.as<PagePair>() + first,
                                        static_cast<std::size_t>(pages));
  return way.out ? queue_pages_out(timer.stream, copy, pairs, way.way)
                 : queue_pages_in(timer.stream, copy, pairs, way.way);
}

Status copy_plainly(PageStage& stage, Timer& timer, std::int64_t bytes, std::int64_t number,
                    bool out) {
  const std::int64_t at = number % (stage.pool->shape().total_bytes() / bytes) * bytes;
  const auto size = static_cast<std::size_t>(bytes);
  return out ? timer.stream.copy_out(stage.host_plain.bytes() + at, stage.plain.bytes() + at, size)
             : timer.stream.copy_in(stage.plain.bytes() + at, stage.host_plain.bytes() + at, size);
}

// What the link gives to one large copy after another.
Result<double> link_rate(PageStage& stage, Timer& timer, const CudaPoolBenchOptions& options,
                         bool out) {
  const std::int64_t bytes = options.moved_bytes.back();
  const auto plain = [&](std::int64_t number) {
    return copy_plainly(stage, timer, bytes, number, out);
  };
  STEMMA_ASSIGN_OR_RETURN(const Samples samples, take_samples(timer, options, bytes, plain, plain));
  return median(samples.bounds);
}

Status bench_ways(PageStage& stage, Timer& timer, std::int64_t bytes,
                  const CudaPoolBenchOptions& options, BenchSink sink) {
  const std::int64_t pages = bytes / stage.host->page_bytes();
  PageCopy call = stage.copy;
  call.count = pages;
  for (const bool out : {true, false}) {
    STEMMA_ASSIGN_OR_RETURN(const double link, link_rate(stage, timer, options, out));
    for (const CopyWay way : {CopyWay::kKernels, CopyWay::kEngines}) {
      const auto move = [&](std::int64_t number) {
        return move_some(stage, timer, pages, number, {out, way});
      };
      const auto plain = [&](std::int64_t number) {
        return copy_plainly(stage, timer, bytes, number, out);
      };
      STEMMA_ASSIGN_OR_RETURN(const Samples samples,
                              take_samples(timer, options, bytes, move, plain));
      BenchLine line = line_of("cuda_pages", samples.values, {&link, 1}, "link");
      line.params = {{"what", out ? "out" : "in"},
                     {"way", way == CopyWay::kKernels ? "kernels" : "engines"},
                     {"chosen", best_way(call) == way ? "yes" : "no"},
                     {"bytes", std::to_string(bytes)},
                     {"pages", std::to_string(pages)},
                     {"piece_bytes", std::to_string(stage.copy.pieces[0].bytes)},
                     {"copy_of_as_many_gb_per_s", fmt::format("{:.1f}", median(samples.bounds))}};
      sink(line);
    }
  }
  return {};
}

// Nobody waits for layers here.
class NoArrivals final : public LayerArrivals {
 public:
  void queued(std::int64_t) override {}
  void arrived(std::int64_t, bool) override {}
};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// One call of the mover, from the host and back.
Result<double> mover_rate(PageStage& stage, std::span<const PageMove> down, bool out) {
  constexpr auto kAlways = [] { return true; };
  std::vector<PageMove> moves;
  for (const PageMove& move : down) {
    moves.push_back(out ? move : PageMove{move.to, move.from, move.key});
  }
  NoArrivals arrivals;
  const double start = seconds_now();
  if (out) {
    stage.mover->back_up(moves, kAlways);
  } else {
    stage.mover->promote(moves, kAlways, arrivals);
  }
  const double seconds = seconds_now() - start;
  const bool whole = std::all_of(moves.begin(), moves.end(), [](const PageMove& move) {
    return move.verdict == MoveVerdict::kDone;
  });
  if (!whole) return Error{ErrorCode::kCorrupt, "pages did not come whole", 0};
  return rate(stage.host->page_bytes() * std::ssize(moves), seconds);
}

// Of a mover whose copies take turns on so many streams.
Status bench_mover(PageStage& stage, Timer& timer, const CudaPoolBenchOptions& options, int streams,
                   BenchSink sink) {
  stage.mover.reset();  // memory is pinned once
  STEMMA_ASSIGN_OR_RETURN(stage.mover,
                          CudaPageMover::open(*stage.pool, *stage.host, {.streams = streams}));
  const auto pages = static_cast<std::size_t>(
      std::min(options.moved_bytes.back() / stage.host->page_bytes(), stage.pool->shape().pages));
  for (const bool out : {true, false}) {
    STEMMA_ASSIGN_OR_RETURN(const double link, link_rate(stage, timer, options, out));
    std::vector<double> values;
    const std::size_t turns = stage.down.size() / pages;
    for (int i = 0; i < options.samples; ++i) {
      const std::size_t first = static_cast<std::size_t>(i) % turns * pages;
      const auto moves = std::span(stage.down).subspan(first, pages);
      STEMMA_ASSIGN_OR_RETURN(const double value, mover_rate(stage, moves, out));
      values.push_back(value);
    }
    BenchLine line = line_of("cuda_pages", values, {&link, 1}, "link");
    line.params = {
        {"what", out ? "backup" : "promote"},
        {"streams", std::to_string(streams)},
        {"bytes", std::to_string(static_cast<std::int64_t>(pages) * stage.host->page_bytes())},
        {"piece_bytes", std::to_string(stage.copy.pieces[0].bytes)}};
    sink(line);
  }
  return {};
}

}  // namespace

Status bench_cuda_store(CudaDevice& device, const CudaPoolBenchOptions& options, BenchSink sink) {
  STEMMA_ASSIGN_OR_RETURN(Timer timer, make_timer(device));
  STEMMA_ASSIGN_OR_RETURN(StoreStage stage, make_store_stage(device, options.pool_bytes, timer));
  for (const std::int64_t tokens : options.stored_tokens) {
    for (const int loads : {4, 2, 1}) {
      STEMMA_ASSIGN_OR_RETURN(const BenchLine line,
                              bench_stored(stage, timer, {tokens, loads}, options));
      sink(line);
    }
  }
  return {};
}

// A page has as many layers as a call's bytes allow, at most those of a model of 8 billion weights.
Status bench_cuda_pages(CudaDevice& device, const CudaPoolBenchOptions& options, BenchSink sink) {
  constexpr std::int64_t kLayersMax = 32;
  STEMMA_ASSIGN_OR_RETURN(Timer timer, make_timer(device));
  for (const std::int64_t piece_bytes : {8 << 10, 32 << 10, 512 << 10}) {
    for (const std::int64_t bytes : options.moved_bytes) {
      const std::int64_t layers = std::min(bytes / (2 * piece_bytes), kLayersMax);
      if (layers == 0) continue;
      const KvShape shape = page_shape({piece_bytes, layers}, options.pool_bytes);
      STEMMA_ASSIGN_OR_RETURN(PageStage stage, make_page_stage(device, shape, timer));
      STEMMA_RETURN_IF_ERROR(bench_ways(stage, timer, bytes, options, sink));
      if (bytes != options.moved_bytes.back()) continue;
      for (const int streams : {1, 2}) {
        STEMMA_RETURN_IF_ERROR(bench_mover(stage, timer, options, streams, sink));
      }
    }
  }
  return {};
}

}  // namespace stemma
