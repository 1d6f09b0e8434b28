// CpuAttention: attention on the processor's vector units, over all threads of a pool.
//
// Thread:     as Attention: one batch at a time.
// Memory:     for each thread the packed partition, its scores and sums (about 0.5 MiB at head_dim
//             128; 1.5 MiB for 128 heads of latent rows). The sections' sums of split walks have
//             room for 2 × threads × sections of the longest context × queries of a KV head, unless
//             there are as many KV heads as that; of these, and of sums of rows that share pages,
//             only what batches have needed is resident.
// Cost:       as Attention.
// Not here:   the arithmetic (attention_cpu.cc, latent_attention_cpu.cc), the cutting
//             (attention_plan).
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string_view>
#include <vector>

#include "attention/attention.h"
#include "attention/attention_kernel.h"
#include "attention/attention_plan.h"
#include "device/buffer.h"

namespace stemma {

class CpuAttention final : public Attention {
 public:
  // kOutOfMemory. REQUIRES: shape and limits are those that make_attention accepts.
  static Result<std::unique_ptr<CpuAttention>> create(const AttentionShape& shape,
                                                      const AttentionLimits& limits,
                                                      ThreadPool& threads);

  std::string_view name() const override { return "cpu"; }
  void plan(const KvBatch& batch) override {
    plan_up_to(batch, std::numeric_limits<std::int64_t>::max());
  }
  // As plan, for the rows that see at most `keys_max` keys; run leaves the outputs of others alone.
  void plan_up_to(const KvBatch& batch, std::int64_t keys_max);
  void run(const KvLayerView& layer, const float* q, float* out) override;

 private:
  CpuAttention(const AttentionShape& shape, AttentionPlan plan, ThreadPool& threads);

  Status allocate();
  AttentionTask task_of(const AttentionUnit& unit, const KvLayerView& layer, const float* q,
                        float* out) const;
  void merge_walks(const AttentionKernels& kernels, float* out);
  float* walk_partials(std::int64_t walk) const;
  float* kept_sums(std::int64_t place) const;

  AttentionShape shape_;  // as batches are cut: of latent rows with several KV heads
  std::int64_t group_;    // query heads of one of its KV heads
  AttentionPlan plan_;
  ThreadPool& threads_;
  Buffer memory_;
  std::vector<AttentionScratch> scratch_;  // [threads]
  Buffer sums_memory_;                     // of both that follow
  float* partials_ = nullptr;              // [walks_max, sections_max, group, partial_floats]
  // Of rows that share pages.   [shared_rows_max, query_heads, partial_floats]
  float* kept_ = nullptr;
  KvBatch batch_;  // the planned one
};

}  // namespace stemma
