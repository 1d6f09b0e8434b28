#include "attention/reference_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/stored_element.h"
#include "base/check.h"

namespace stemma {

ReferenceAttention::ReferenceAttention(const AttentionShape& shape, const AttentionLimits& limits)
    : shape_(shape),
      weights_(static_cast<std::size_t>(limits.context_tokens_max)),
      sums_(static_cast<std::size_t>(shape.value_dim())) {}

void ReferenceAttention::plan(const KvBatch& batch) {
  batch_ = batch;
}

void ReferenceAttention::run(const KvLayerView& layer, const float* q, float* out) {
  STEMMA_CHECK_EQ(layer.heads, shape_.kv_heads);
  STEMMA_CHECK_EQ(layer.head_dim, shape_.head_dim);
  STEMMA_CHECK_EQ(layer.value_dim, shape_.value_dim());
  STEMMA_CHECK_EQ(layer.page_size, shape_.table(batch_).page_size);
  const std::int64_t group = shape_.query_heads / shape_.kv_heads;
  for (std::int64_t request = 0; request < shape_.table(batch_).requests(); ++request) {
    const std::int64_t end = batch_.row_indptr[static_cast<std::size_t>(request + 1)];
    for (std::int64_t row = batch_.row_indptr[static_cast<std::size_t>(request)]; row < end;
         ++row) {
      const std::int64_t position = batch_.positions[static_cast<std::size_t>(row)];
      for (std::int64_t head = 0; head < shape_.query_heads; ++head) {
        const std::int64_t place = row * shape_.query_heads + head;
        attend(layer, request, position, head / group, q + place * shape_.head_dim,
               out + place * shape_.value_dim());
      }
    }
  }
}

void ReferenceAttention::attend(const KvLayerView& layer, std::int64_t request,
                                std::int64_t position, std::int64_t kv_head, const float* q,
                                float* out) {
  const PageTableView& table = shape_.table(batch_);
  const std::int64_t first = shape_.first_seen(position);
  double max = -std::numeric_limits<double>::infinity();
  for (std::int64_t key = first; key <= position; ++key) {
    const std::int64_t row = stored_row(layer, table.slot(request, key), kv_head);
    double score = 0;
    for (std::int64_t i = 0; i < shape_.head_dim; ++i) {
      score += double{q[i]} * stored_element(layer.k, layer.dtype, row + i);
    }
    score *= stored_scale(layer, layer.k_scales, table.slot(request, key), kv_head);
    score *= double{shape_.scale};
    const double cap = shape_.score_cap;
    weights_[static_cast<std::size_t>(key)] = cap > 0 ? cap * std::tanh(score / cap) : score;
    max = std::max(max, weights_[static_cast<std::size_t>(key)]);
  }
  std::fill(sums_.begin(), sums_.end(), 0.0);
  double total = 0;
  for (std::int64_t key = first; key <= position; ++key) {
    const std::int64_t row = stored_row(layer, table.slot(request, key), kv_head);
    const double weight = std::exp(weights_[static_cast<std::size_t>(key)] - max);
    const double scaled_weight =
        weight * stored_scale(layer, layer.v_scales, table.slot(request, key), kv_head);
    total += weight;
    for (std::int64_t i = 0; i < shape_.value_dim(); ++i) {
      sums_[static_cast<std::size_t>(i)] +=
          scaled_weight * stored_element(layer.v, layer.dtype, row + i);
    }
  }
  for (std::int64_t i = 0; i < shape_.value_dim(); ++i) {
    out[i] = static_cast<float>(sums_[static_cast<std::size_t>(i)] / total);
  }
}

}  // namespace stemma
