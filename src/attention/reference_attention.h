// ReferenceAttention: the definition in plain loops and double, against which kernels are tested.
//
// Thread:     as Attention; computes on the calling thread.
// Memory:     the weights of one row.
// Cost:       for tests and small models only.
// Not here:   speed.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "attention/attention.h"

namespace stemma {

class ReferenceAttention final : public Attention {
 public:
  // REQUIRES: shape and limits are those that make_attention accepts.
  ReferenceAttention(const AttentionShape& shape, const AttentionLimits& limits);

  std::string_view name() const override { return "reference"; }
  void plan(const KvBatch& batch) override;
  void run(const KvLayerView& layer, const float* q, float* out) override;

 private:
  // One row and query head: [head_dim] to [head_dim].
  void attend(const KvLayerView& layer, std::int64_t request, std::int64_t position,
              std::int64_t kv_head, const float* q, float* out);

  AttentionShape shape_;
  KvBatch batch_;
  std::vector<double> weights_;  // [context_tokens_max]
  std::vector<double> sums_;     // [head_dim]
};

}  // namespace stemma
