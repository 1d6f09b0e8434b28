// Stores and copies take turns and a sample is short (one batch of rows, below a millisecond), so
// that whatever else the machine does meets both alike and medians leave it out. The copies go to
// consecutive parts of the same pool, the stores to random pages of it.
#include "pool/store_bench.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>

#include "base/prng.h"
#include "device/machine_probe.h"
#include "pool/mha_pool.h"

namespace stemma {

namespace {

constexpr std::int64_t kRowBytes = 2048;
constexpr std::int64_t kHeadDim = 128;
constexpr std::int64_t kBatchRows = 512;
constexpr int kSamples = 201;
constexpr std::size_t kPoolBytesMax = std::size_t{1} << 30;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct StoreCase {
  std::int64_t page_size = 1;
  DType source = DType::kBF16;
  DType pool = DType::kBF16;
};

// A pool, rows to store and the slots of every step.
struct Stage {
  std::unique_ptr<MhaPool> pool;
  std::vector<std::byte> rows;  // of K, then of V
  std::vector<std::int64_t> slots;
  KvRows k;
  KvRows v;
};

// Slots of random pages, in order inside a page, as a prompt's chunks get them.
std::vector<std::int64_t> random_slots(const KvShape& shape) {
  std::vector<std::int64_t> pages(static_cast<std::size_t>(shape.pages));
  std::iota(pages.begin(), pages.end(), 0);
  Prng prng(1);
  std::shuffle(pages.begin(), pages.end(), prng);
  std::vector<std::int64_t> slots;
  for (const std::int64_t page : pages) {
    for (std::int64_t i = 0; i < shape.page_size; ++i) slots.push_back(page * shape.page_size + i);
  }
  return slots;
}

Result<Stage> make_stage(const StoreCase& store_case, ThreadPool& threads) {
  const auto pool_bytes = static_cast<std::int64_t>(std::min(2 * llc_bytes(), kPoolBytesMax));
  KvShape shape;
  shape.layers = 1;
  shape.page_size = store_case.page_size;
  shape.heads = kRowBytes / dtype_bytes(store_case.pool) / kHeadDim;
  shape.head_dim = kHeadDim;
  shape.dtype = store_case.pool;
  shape.pages = 1;
  shape.pages = pool_bytes / shape.page_bytes();
  Stage stage;
  STEMMA_ASSIGN_OR_RETURN(stage.pool, MhaPool::create(shape, KvLayout::kLayerFirst, threads));
  const std::int64_t side_bytes =
      kBatchRows * shape.row_elements() * dtype_bytes(store_case.source);
  stage.rows.assign(static_cast<std::size_t>(2 * side_bytes), std::byte{0x3D});
  stage.k = {.elements = stage.rows.data(),
             .dtype = store_case.source,
             .rows = kBatchRows,
             .heads = shape.heads,
             .head_dim = shape.head_dim,
             .row_stride = shape.row_elements()};
  stage.v = stage.k;
  stage.v.elements = stage.rows.data() + side_bytes;
  stage.slots = random_slots(shape);
  return stage;
}

// Step numbers go round the pool, so that a step never finds its places in a cache.
std::size_t step_begin(std::int64_t step, std::size_t slot_count) {
  const auto steps = static_cast<std::int64_t>(slot_count) / kBatchRows;
  return static_cast<std::size_t>(step % steps * kBatchRows);
}

double store_seconds(Stage& stage, std::int64_t step) {
  const std::span<const std::int64_t> slots = stage.slots;
  const auto chosen = slots.subspan(step_begin(step, slots.size()), kBatchRows);
  const double start = seconds_now();
  ignore_error(stage.pool->store(0, chosen, stage.k, stage.v), "slots and rows fit by making");
  return seconds_now() - start;
}

double copy_seconds(Stage& stage, std::int64_t step) {
  constexpr std::size_t kSideBytes = kBatchRows * kRowBytes;
  const TensorView view = stage.pool->logical_view();
  auto* const k = static_cast<std::byte*>(view.bytes);
  std::byte* const v = k + view.stride[0] * dtype_bytes(view.dtype);
  const std::size_t offset = step_begin(step, stage.slots.size()) * kRowBytes;
  const double start = seconds_now();
  std::memcpy(k + offset, stage.rows.data(), kSideBytes);
  std::memcpy(v + offset, stage.rows.data() + kSideBytes, kSideBytes);
  return seconds_now() - start;
}

BenchLine measure(const StoreCase& store_case, Stage& stage) {
  constexpr double kSampleBytes = 2.0 * kBatchRows * kRowBytes;
  std::vector<double> stores;
  std::vector<double> copies;
  for (int sample = 0; sample < kSamples; ++sample) {
    stores.push_back(kSampleBytes / store_seconds(stage, 2 * sample) * 1e-9);
    copies.push_back(kSampleBytes / copy_seconds(stage, 2 * sample + 1) * 1e-9);
  }
  BenchLine line;
  line.bench = "store";
  line.params = {{"page_size", std::to_string(store_case.page_size)},
                 {"row_bytes", std::to_string(kRowBytes)},
                 {"rows", std::to_string(kBatchRows)},
                 {"source", std::string(dtype_name(store_case.source))},
                 {"pool", std::string(dtype_name(store_case.pool))},
                 {"slots", "random pages"},
                 {"working_set_bytes", std::to_string(stage.pool->shape().total_bytes())}};
  line.value = median(stores);
  line.unit = "gb/s";
  line.bound = median(copies);
  line.bound_name = "memcpy";
  line.ratio = line.value / line.bound;
  line.repeats = kSamples;
  line.spread = spread(stores);
  return line;
}

}  // namespace

Result<std::vector<BenchLine>> bench_store() {
  std::vector<BenchLine> lines;
  ThreadPool threads(1);
  for (const StoreCase store_case :
       {StoreCase{1, DType::kBF16, DType::kBF16}, StoreCase{16, DType::kBF16, DType::kBF16},
        StoreCase{16, DType::kF32, DType::kBF16}, StoreCase{16, DType::kF32, DType::kInt8},
        StoreCase{16, DType::kF32, DType::kFp8E4M3}, StoreCase{16, DType::kF32, DType::kFp8E5M2},
        StoreCase{16, DType::kBF16, DType::kInt8}}) {
    STEMMA_ASSIGN_OR_RETURN(Stage stage, make_stage(store_case, threads));
    lines.push_back(measure(store_case, stage));
  }
  return lines;
}

}  // namespace stemma
