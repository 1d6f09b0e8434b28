#include "attention/sparse_attention.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "attention/scratch_carver.h"
#include "base/check.h"

namespace stemma {

namespace {

// Of a batch of few rows.
constexpr std::int64_t kUnitsPerThread = 2;

SelectScratch carve_select_scratch(ScratchCarver& carver, std::int64_t group, std::int64_t head_dim,
                                   std::int64_t context_tokens_max) {
  const std::int64_t tokens = padded_tokens(context_tokens_max);
  SelectScratch scratch;
  scratch.queries = carver.take<float>(group * head_dim);
  scratch.scores = carver.take<float>(group * tokens);
  scratch.candidates = carver.take<std::uint32_t>(tokens);
  scratch.bins = carver.take<std::uint32_t>(2 * kSelectBins);
  scratch.chosen = carver.take<std::int32_t>(tokens);
  return scratch;
}

}  // namespace

Result<std::unique_ptr<SparseAttention>> SparseAttention::create(const AttentionShape& shape,
                                                                 const SparseDial& dial,
                                                                 const AttentionLimits& limits,
                                                                 ThreadPool& threads) {
  std::unique_ptr<SparseAttention> attention(new SparseAttention(shape, dial, limits, threads));
  STEMMA_ASSIGN_OR_RETURN(attention->dense_, CpuAttention::create(shape, limits, threads));
  STEMMA_RETURN_IF_ERROR(attention->allocate(limits));
  return attention;
}

SparseAttention::SparseAttention(const AttentionShape& shape, const SparseDial& dial,
                                 const AttentionLimits& limits, ThreadPool& threads)
    : shape_(shape), dial_(dial), threads_(threads) {
  scratch_.resize(static_cast<std::size_t>(threads.threads()));
  rows_.reserve(static_cast<std::size_t>(limits.rows_max));
}

// Adds up the bytes first, then hands them out.
Status SparseAttention::allocate(const AttentionLimits& limits) {
  const std::int64_t group = shape_.query_heads / shape_.kv_heads;
  const auto carve = [&](ScratchCarver& carver) {
    for (Scratch& scratch : scratch_) {
      scratch.select =
          carve_select_scratch(carver, group, shape_.head_dim, limits.context_tokens_max);
      scratch.chosen_before = carver.take<std::int32_t>(padded_tokens(limits.context_tokens_max));
      scratch.attend = carve_attention_scratch(carver, shape_.head_dim, {1, group});
    }
  };
  ScratchCarver sizes(nullptr);
  carve(sizes);
  STEMMA_ASSIGN_OR_RETURN(memory_, Buffer::allocate(static_cast<std::size_t>(sizes.used_bytes())));
  memory_.prefault(threads_);
  ScratchCarver memory(memory_.bytes());
  carve(memory);
  return {};
}

void SparseAttention::plan(const KvBatch& batch) {
  const std::int64_t dense_up_to = dial_.dense_up_to();
  dense_->plan_up_to(batch, dense_up_to);
  batch_ = batch;
  rows_.clear();
  for (std::int64_t request = 0; request < batch.page_table.requests(); ++request) {
    const std::int32_t end = batch.row_indptr[static_cast<std::size_t>(request + 1)];
    for (std::int32_t row = batch.row_indptr[static_cast<std::size_t>(request)]; row < end; ++row) {
      const std::int64_t tokens = batch.positions[static_cast<std::size_t>(row)] + std::int64_t{1};
      if (tokens > dense_up_to) rows_.push_back({static_cast<std::int32_t>(request), row, tokens});
    }
  }
}

void SparseAttention::run(const KvLayerView& layer, const float* q, float* out) {
  STEMMA_CHECK(layer.labels != nullptr, "a layer of a pool with labels");
  dense_->run(layer, q, out);
  const std::int64_t parts = head_parts();
  threads_.run(static_cast<std::int64_t>(rows_.size()) * parts, [&](std::int64_t unit, int worker) {
    const std::int64_t part = unit % parts;
    const HeadRange heads = {shape_.kv_heads * part / parts, shape_.kv_heads * (part + 1) / parts};
    run_row(rows_[static_cast<std::size_t>(unit / parts)], heads, layer, q, out,
            scratch_[static_cast<std::size_t>(worker)]);
  });
}

std::int64_t SparseAttention::head_parts() const {
  if (threads_.threads() == 1 || rows_.empty()) return 1;
  const std::int64_t units = kUnitsPerThread * threads_.threads();
  return std::clamp<std::int64_t>(ceil_div(units, static_cast<std::int64_t>(rows_.size())), 1,
                                  shape_.kv_heads);
}

// The choice for a head is made while the rows of the one before it arrive.
void SparseAttention::run_row(const SparseRow& row, HeadRange heads, const KvLayerView& layer,
                              const float* q, float* out, Scratch& scratch) const {
  const std::int64_t group_floats = shape_.query_heads / shape_.kv_heads * shape_.head_dim;
  const std::int64_t row_begin = row.row * shape_.query_heads * shape_.head_dim;
  SelectTask select;
  select.layer = &layer;
  select.shape = &shape_;
  select.pages = raw(batch_.page_table.pages_of(row.request)).data();
  select.tokens = row.tokens;
  select.kept_tokens = dial_.tokens_kept(row.tokens);
  AttentionTask task;
  task.layer = &layer;
  task.shape = &shape_;
  task.pages = select.pages;
  task.q = q + row_begin;
  task.out = out + row_begin;
  task.rows = 1;
  task.first_position = select.kept_tokens - 1;
  task.kv_heads = 1;
  task.partitions = ceil_div(select.kept_tokens, kPartitionKeys);
  const auto attend_to = [&](const std::int32_t* chosen, std::int64_t kv_head) {
    task.first_kv_head = kv_head;
    task.keys_or_null = chosen;
    attention_kernels().attend(task, scratch.attend);
  };
  for (std::int64_t head = heads.first; head < heads.end; ++head) {
    const bool first = head == heads.first;
    select.kv_head = head;
    select.q = q + row_begin + head * group_floats;
    select.keys_ahead = scratch.chosen_before;
    select.keys_ahead_count = first ? 0 : select.kept_tokens;
    select_kernel()(select, scratch.select);
    if (!first) attend_to(scratch.chosen_before, head - 1);
    std::swap(scratch.select.chosen, scratch.chosen_before);
  }
  attend_to(scratch.chosen_before, heads.end - 1);
}

}  // namespace stemma
