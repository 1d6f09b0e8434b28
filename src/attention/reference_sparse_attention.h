// ReferenceSparseAttention: the definition of sparse_kernel.h and exact attention to what it
// chooses, in plain loops and double, against which kernels are tested.
//
// Thread:     as Attention; computes on the calling thread.
// Memory:     the guesses of one row.
// Cost:       for tests and small models only.
// Not here:   speed.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "attention/attention.h"
#include "attention/sparse_dial.h"

namespace stemma {

class ReferenceSparseAttention final : public Attention {
 public:
  // REQUIRES: shape, limits and dial are those that make_sparse_attention accepts.
  ReferenceSparseAttention(const AttentionShape& shape, const SparseDial& dial,
                           const AttentionLimits& limits);

  std::string_view name() const override { return "reference"; }
  void plan(const KvBatch& batch) override { batch_ = batch; }
  void run(const KvLayerView& layer, const float* q, float* out) override;

  // The guess of each of the first `tokens` tokens of a request, for one row's KV head.
  // q: of the KV head's query heads, [group, head_dim].
  std::vector<double> guesses(const KvLayerView& layer, std::int64_t request, std::int64_t tokens,
                              std::int64_t kv_head, const float* q) const;

 private:
  struct Head {
    std::int64_t request = 0;
    std::int64_t tokens = 0;
    std::int64_t kv_head = 0;
  };

  std::vector<std::int64_t> choose(const KvLayerView& layer, const Head& head,
                                   const float* q) const;
  // One query head: [head_dim] to [head_dim].
  void attend(const KvLayerView& layer, const Head& head, const std::vector<std::int64_t>& chosen,
              const float* q, float* out) const;

  AttentionShape shape_;
  SparseDial dial_;
  KvBatch batch_;
};

}  // namespace stemma
