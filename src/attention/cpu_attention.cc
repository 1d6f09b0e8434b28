#include "attention/cpu_attention.h"

#include <cstddef>
#include <utility>

#include "attention/row_prefetch.h"
#include "base/check.h"

namespace stemma {

namespace {

// Takes one array after another from a piece of memory; without memory, only adds up their bytes.
class Carver {
 public:
  explicit Carver(std::byte* memory_or_null) : memory_or_null_(memory_or_null) {}

  template <typename T>
  T* take(std::int64_t count) {
    T* const begin =
        memory_or_null_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_or_null_ + used_bytes_);
    used_bytes_ += round_up(count * static_cast<std::int64_t>(sizeof(T)), kLineBytes);
    return begin;
  }

  std::int64_t used_bytes() const { return used_bytes_; }

 private:
  std::byte* memory_or_null_;
  std::int64_t used_bytes_ = 0;
};

AttentionScratch carve_scratch(Carver& carver, const AttentionShape& shape,
                               const AttentionPlan& plan) {
  const std::int64_t queries = plan.unit_queries_max();
  AttentionScratch scratch;
  scratch.queries = carver.take<float>((queries + kQueryPadding) * shape.head_dim);
  scratch.sums = carver.take<float>(queries * partial_floats(shape.head_dim));
  scratch.keys = carver.take<float>(kSlicePanels * shape.head_dim * kPanelColumnsMax);
  scratch.values = carver.take<float>(kSlicePanels * kPartitionKeys * kPanelColumnsMax);
  scratch.scores = carver.take<float>((queries + kQueryPadding) * kPartitionKeys);
  scratch.partition_sums = carver.take<float>(queries * partial_floats(shape.head_dim));
  scratch.offsets = carver.take<std::int64_t>(2 * kPartitionKeys);
  return scratch;
}

}  // namespace

Result<std::unique_ptr<CpuAttention>> CpuAttention::create(const AttentionShape& shape,
                                                           const AttentionLimits& limits,
                                                           ThreadPool& threads) {
  std::unique_ptr<CpuAttention> attention(
      new CpuAttention(shape, AttentionPlan(shape, limits, threads.threads()), threads));
  STEMMA_RETURN_IF_ERROR(attention->allocate());
  return attention;
}

CpuAttention::CpuAttention(const AttentionShape& shape, AttentionPlan plan, ThreadPool& threads)
    : shape_(shape), plan_(std::move(plan)), threads_(threads) {
  scratch_.resize(static_cast<std::size_t>(threads.threads()));
}

// Adds up the bytes first, then hands them out.
Status CpuAttention::allocate() {
  const std::int64_t group = shape_.query_heads / shape_.kv_heads;
  const std::int64_t partial_count = plan_.walks_max() * plan_.partitions_max() * group;
  const auto carve = [&](Carver& carver) {
    for (AttentionScratch& scratch : scratch_) scratch = carve_scratch(carver, shape_, plan_);
    partials_ = carver.take<float>(partial_count * partial_floats(shape_.head_dim));
  };
  Carver sizes(nullptr);
  carve(sizes);
  STEMMA_ASSIGN_OR_RETURN(memory_, Buffer::allocate(static_cast<std::size_t>(sizes.used_bytes())));
  memory_.prefault(threads_);
  Carver memory(memory_.bytes());
  carve(memory);
  return {};
}

void CpuAttention::plan(const KvBatch& batch) {
  plan_.cut(batch);
  batch_ = batch;
}

void CpuAttention::run(const KvLayerView& layer, const float* q, float* out) {
  STEMMA_CHECK_EQ(layer.heads, shape_.kv_heads);
  STEMMA_CHECK_EQ(layer.head_dim, shape_.head_dim);
  STEMMA_CHECK_EQ(layer.page_size, batch_.page_table.page_size);
  const AttentionKernels kernels = attention_kernels();
  const std::int64_t row_floats = shape_.query_heads * shape_.head_dim;
  const std::int64_t group = shape_.query_heads / shape_.kv_heads;
  const std::span<const AttentionUnit> units = plan_.units();
  threads_.run(static_cast<std::int64_t>(units.size()), [&](std::int64_t i, int worker) {
    const AttentionUnit& unit = units[static_cast<std::size_t>(i)];
    AttentionTask task = task_of(unit, layer);
    task.q = q + unit.first_row * row_floats;
    task.out = out + unit.first_row * row_floats;
    kernels.attend(task, scratch_[static_cast<std::size_t>(worker)]);
  });
  const std::span<const SplitWalk> walks = plan_.walks();
  threads_.run(static_cast<std::int64_t>(walks.size()), [&](std::int64_t i, int worker) {
    const SplitWalk& walk = walks[static_cast<std::size_t>(i)];
    MergeTask task;
    task.shape = &shape_;
    task.partials = walk_partials(i);
    task.partitions = walk.partitions;
    task.queries = group;
    task.out = out + walk.row * row_floats + walk.kv_head * group * shape_.head_dim;
    task.sums = scratch_[static_cast<std::size_t>(worker)].sums;
    kernels.merge(task);
  });
}

AttentionTask CpuAttention::task_of(const AttentionUnit& unit, const KvLayerView& layer) const {
  const std::int64_t group = shape_.query_heads / shape_.kv_heads;
  AttentionTask task;
  task.layer = &layer;
  task.shape = &shape_;
  task.pages = raw(batch_.page_table.pages_of(unit.request)).data();
  task.rows = unit.rows;
  task.first_position = batch_.positions[static_cast<std::size_t>(unit.first_row)];
  task.first_kv_head = unit.first_kv_head;
  task.kv_heads = unit.kv_heads;
  task.first_partition = unit.first_partition;
  task.partitions = unit.partitions;
  if (unit.walk >= 0) {
    task.partials_or_null =
        walk_partials(unit.walk) + unit.first_partition * group * partial_floats(shape_.head_dim);
  }
  return task;
}

float* CpuAttention::walk_partials(std::int64_t walk) const {
  const std::int64_t group = shape_.query_heads / shape_.kv_heads;
  return partials_ + walk * plan_.partitions_max() * group * partial_floats(shape_.head_dim);
}

}  // namespace stemma
