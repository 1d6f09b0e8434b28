// Sparse attention: rows far into their context attend to the tokens that their labels promise most
// of (double sparsity, arXiv 2408.07092), all others to everything.
//
// Which tokens a row attends to is a function of its own position and tokens: prefill, decode and
// resumption choose alike (I13). A dense row gets the bits that make_attention's of the same name
// gives it, and so does a sparse row that keeps everything: what is chosen is attended to exactly,
// in ascending order, in partitions of the chosen tokens as a dense row's of all.
//
// Thread:     as Attention.
// Memory:     as CpuAttention, and for each thread the scores of one row and KV head:
//             4 × (group + 2) bytes a token of the longest context.
// Cost:       of a sparse row: reading label_channels elements a token and KV head instead of
//             2 × head_dim, and K and V of the chosen tokens.
// Not here:   how tokens are chosen (sparse_kernel), how many (sparse_dial), labels (pool/).
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "attention/attention.h"
#include "attention/cpu_attention.h"
#include "attention/sparse_dial.h"
#include "attention/sparse_kernel.h"
#include "device/buffer.h"

namespace stemma {

// As make_attention; its layers must be those of a pool with labels. kInvalidArgument for the dial
// too.
Result<std::unique_ptr<Attention>> make_sparse_attention(std::string_view name,
                                                         const AttentionShape& shape,
                                                         const SparseDial& dial,
                                                         const AttentionLimits& limits,
                                                         ThreadPool& threads);

class SparseAttention final : public Attention {
 public:
  // kOutOfMemory. REQUIRES: shape, limits and dial are those that make_sparse_attention accepts.
  static Result<std::unique_ptr<SparseAttention>> create(const AttentionShape& shape,
                                                         const SparseDial& dial,
                                                         const AttentionLimits& limits,
                                                         ThreadPool& threads);

  std::string_view name() const override { return "cpu"; }
  void plan(const KvBatch& batch) override;
  void run(const KvLayerView& layer, const float* q, float* out) override;

 private:
  struct SparseRow {
    std::int32_t request = 0;
    std::int32_t row = 0;  // in the batch
    std::int64_t tokens = 0;
  };
  struct HeadRange {
    std::int64_t first = 0;
    std::int64_t end = 0;
  };
  // The choices of a head and of the one before it: that is attended to after the other is made.
  struct Scratch {
    SelectScratch select;
    std::int32_t* chosen_before = nullptr;
    AttentionScratch attend;
  };

  SparseAttention(const AttentionShape& shape, const SparseDial& dial,
                  const AttentionLimits& limits, ThreadPool& threads);

  Status allocate(const AttentionLimits& limits);
  // Parts that a row's KV heads are cut into, so that there is work for all threads.
  std::int64_t head_parts() const;
  // Some KV heads of one row.
  void run_row(const SparseRow& row, HeadRange heads, const KvLayerView& layer, const float* q,
               float* out, Scratch& scratch) const;

  AttentionShape shape_;
  SparseDial dial_;
  ThreadPool& threads_;
  std::unique_ptr<CpuAttention> dense_;
  Buffer memory_;
  std::vector<Scratch> scratch_;  // [threads]
  std::vector<SparseRow> rows_;   // the planned ones
  KvBatch batch_;                 // the planned one
};

}  // namespace stemma
