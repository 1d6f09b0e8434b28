#include "attention/cpu_attention.h"

#include <cstddef>
#include <utility>

#include "attention/scratch_carver.h"
#include "base/check.h"

namespace stemma {

namespace {

AttentionScratch carve_latent_scratch(ScratchCarver& carver, const AttentionShape& shape,
                                      const AttentionPlan& plan) {
  const std::int64_t queries = padded_queries(plan.unit_queries_max());
  AttentionScratch scratch;
  scratch.queries = carver.take<float>(queries * shape.head_dim);
  scratch.sums = carver.take<float>(queries * partial_floats(shape.latent_dim));
  scratch.scores = carver.take<float>(kPartitionKeys * latent_scores_stride(queries));
  scratch.rows = carver.take<float>(kPartitionKeys * kLatentRowFloats);
  scratch.partition_sums = carver.take<float>(queries * partial_floats(shape.latent_dim));
  scratch.states = carver.take<float>(kQueryStates * queries);
  scratch.offsets = carver.take<std::int64_t>(2 * kPartitionKeys);
  return scratch;
}

AttentionScratch carve_scratch(ScratchCarver& carver, const AttentionShape& shape,
                               const AttentionPlan& plan) {
  if (shape.latent_dim > 0) return carve_latent_scratch(carver, shape, plan);
  return carve_attention_scratch(carver, shape.head_dim, {shape.kv_heads, plan.unit_queries_max()});
}

// Memory for what `carve` takes of it: adds up the bytes first, then hands them out.
template <typename Carve>
Result<Buffer> carve_memory(const Carve& carve) {
  ScratchCarver sizes(nullptr);
  carve(sizes);
  STEMMA_ASSIGN_OR_RETURN(Buffer memory,
                          Buffer::allocate(static_cast<std::size_t>(sizes.used_bytes())));
  ScratchCarver carver(memory.bytes());
  carve(carver);
  return memory;
}

// The shape by which a batch is cut. Latent rows have one KV head for all query heads; it is cut as
// several, so that threads can share a row's heads, each of which fill whole vectors.
AttentionShape cut_shape(const AttentionShape& shape) {
  AttentionShape cut = shape;
  if (shape.latent_dim == 0) return cut;
  for (const std::int64_t heads : {kLatentGroup, kLatentGroup / 2}) {
    if (shape.query_heads % heads == 0) {
      cut.kv_heads = shape.query_heads / heads;
      break;
    }
  }
  return cut;
}

}  // namespace

Result<std::unique_ptr<CpuAttention>> CpuAttention::create(const AttentionShape& shape,
                                                           const AttentionLimits& limits,
                                                           ThreadPool& threads) {
  const AttentionShape cut = cut_shape(shape);
  std::unique_ptr<CpuAttention> attention(
      new CpuAttention(cut, AttentionPlan(cut, limits, threads.threads()), threads));
  STEMMA_RETURN_IF_ERROR(attention->allocate());
  return attention;
}

CpuAttention::CpuAttention(const AttentionShape& shape, AttentionPlan plan, ThreadPool& threads)
    : shape_(shape),
      group_(shape.query_heads / shape.kv_heads),
      plan_(std::move(plan)),
      threads_(threads) {
  scratch_.resize(static_cast<std::size_t>(threads.threads()));
}

// Sums of walks and runs have room for the most that any batch has. Most have next to nothing of
// it, so it is left to whoever writes there to touch it.
Status CpuAttention::allocate() {
  const std::int64_t partial_count = plan_.walks_max() * plan_.sections_max() * group_;
  const std::int64_t kept_count = plan_.shared_rows_max() * shape_.query_heads;
  const std::int64_t partial = partial_floats(shape_.value_dim());
  const auto carve_threads = [&](ScratchCarver& carver) {
    for (AttentionScratch& scratch : scratch_) scratch = carve_scratch(carver, shape_, plan_);
  };
  const auto carve_sums = [&](ScratchCarver& carver) {
    partials_ = carver.take<float>(partial_count * partial);
    kept_ = carver.take<float>(kept_count * partial);
  };
  STEMMA_ASSIGN_OR_RETURN(memory_, carve_memory(carve_threads));
  memory_.prefault(threads_);
  STEMMA_ASSIGN_OR_RETURN(sums_memory_, carve_memory(carve_sums));
  return {};
}

void CpuAttention::plan_up_to(const KvBatch& batch, std::int64_t keys_max) {
  plan_.cut(batch, keys_max);
  batch_ = batch;
}

void CpuAttention::run(const KvLayerView& layer, const float* q, float* out) {
  const bool latent = shape_.latent_dim > 0;
  STEMMA_CHECK_EQ(layer.heads, latent ? 1 : shape_.kv_heads);
  STEMMA_CHECK_EQ(layer.head_dim, shape_.head_dim);
  STEMMA_CHECK_EQ(layer.value_dim, shape_.value_dim());
  STEMMA_CHECK_EQ(layer.page_size, shape_.table(batch_).page_size);
  const AttentionKernels kernels = latent ? latent_attention_kernels() : attention_kernels();
  for (std::int64_t level = 0; level < plan_.levels(); ++level) {
    const std::span<const AttentionUnit> units = plan_.units(level);
    threads_.run(static_cast<std::int64_t>(units.size()), [&](std::int64_t i, int worker) {
      kernels.attend(task_of(units[static_cast<std::size_t>(i)], layer, q, out),
                     scratch_[static_cast<std::size_t>(worker)]);
    });
  }
  merge_walks(kernels, out);
}

void CpuAttention::merge_walks(const AttentionKernels& kernels, float* out) {
  const std::int64_t out_floats = shape_.query_heads * shape_.value_dim();
  const std::int64_t partial = partial_floats(shape_.value_dim());
  const std::span<const SplitWalk> walks = plan_.walks();
  threads_.run(static_cast<std::int64_t>(walks.size()) * group_, [&](std::int64_t i, int worker) {
    const SplitWalk& walk = walks[static_cast<std::size_t>(i / group_)];
    const std::int64_t query_head = walk.kv_head * group_ + i % group_;
    MergeTask task;
    task.shape = &shape_;
    task.partials = walk_partials(i / group_) + i % group_ * partial;
    task.partials_stride = group_ * partial;
    task.sections = walk.sections;
    if (walk.place >= 0) task.before_or_null = kept_sums(walk.place) + query_head * partial;
    task.out = out + walk.row * out_floats + query_head * shape_.value_dim();
    task.sums = scratch_[static_cast<std::size_t>(worker)].sums;
    kernels.merge(task);
  });
}

AttentionTask CpuAttention::task_of(const AttentionUnit& unit, const KvLayerView& layer,
                                    const float* q, float* out) const {
  AttentionTask task;
  task.layer = &layer;
  task.shape = &shape_;
  task.pages = raw(shape_.table(batch_).pages_of(unit.request)).data();
  task.q = q;
  task.out = out;
  task.rows = unit.rows;
  task.first_kv_head = unit.first_kv_head;
  task.kv_heads = unit.kv_heads;
  task.first_partition = unit.first_partition;
  task.partitions = unit.partitions;
  if (unit.run) {
    task.rows_or_null = plan_.shared_rows().data() + unit.first_row;
    task.first_position = (unit.first_partition + unit.partitions) * kPartitionKeys;
    task.after_or_null = kept_sums(unit.first_row);
    if (unit.first_partition > 0) task.before_or_null = task.after_or_null;
    return task;
  }
  task.q += unit.first_row * shape_.query_heads * shape_.head_dim;
  task.out += unit.first_row * shape_.query_heads * shape_.value_dim();
  task.first_position = batch_.positions[static_cast<std::size_t>(unit.first_row)];
  if (unit.walk >= 0) {
    const SplitWalk& walk = plan_.walks()[static_cast<std::size_t>(unit.walk)];
    const std::int64_t section = unit.first_partition / section_partitions(shape_);
    task.partials_or_null = walk_partials(unit.walk) + (section - walk.first_section) * group_ *
                                                           partial_floats(shape_.value_dim());
  } else if (unit.place >= 0) {
    task.before_or_null = kept_sums(unit.place);
  }
  return task;
}

float* CpuAttention::kept_sums(std::int64_t place) const {
  return kept_ + place * shape_.query_heads * partial_floats(shape_.value_dim());
}

float* CpuAttention::walk_partials(std::int64_t walk) const {
  return partials_ + walk * plan_.sections_max() * group_ * partial_floats(shape_.value_dim());
}

}  // namespace stemma
