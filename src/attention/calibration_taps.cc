#include "attention/calibration_taps.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "attention/stored_element.h"
#include "base/check.h"

namespace stemma {

namespace {

std::int64_t group_of(const AttentionShape& shape) {
  return shape.query_heads / shape.kv_heads;
}

}  // namespace

ChannelSums::ChannelSums(std::int64_t layer_count, std::int64_t head_count, std::int64_t dim)
    : layers(layer_count),
      heads(head_count),
      head_dim(dim),
      sums(static_cast<std::size_t>(layer_count * head_count * dim)) {}

HeavyChannels ChannelSums::heaviest(std::int64_t channels_each) const {
  STEMMA_CHECK(channels_each >= 1 && channels_each <= head_dim, "channels of a head");
  HeavyChannels heavy = {layers, heads, channels_each, {}};
  std::vector<std::int32_t> order(static_cast<std::size_t>(head_dim));
  for (std::int64_t head = 0; head < layers * heads; ++head) {
    const double* const of_head = sums.data() + head * head_dim;
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [of_head](std::int32_t a, std::int32_t b) { return of_head[a] > of_head[b]; });
    std::sort(order.begin(), order.begin() + channels_each);
    heavy.channels.insert(heavy.channels.end(), order.begin(), order.begin() + channels_each);
  }
  return heavy;
}

ChannelTap::ChannelTap(std::unique_ptr<Attention> inner, const AttentionShape& shape,
                       ChannelSums& sums)
    : inner_(std::move(inner)), shape_(shape), sums_(sums), key_sums_(sums.sums.size()) {}

void ChannelTap::plan(const KvBatch& batch) {
  STEMMA_CHECK_EQ(batch.page_table.requests(), 1);
  inner_->plan(batch);
  batch_ = batch;
  layer_ = 0;
}

void ChannelTap::run(const KvLayerView& layer, const float* q, float* out) {
  STEMMA_CHECK_LT(layer_, sums_.layers);
  for (std::int64_t row = 0; row < batch_.rows(); ++row) {
    add_row(layer, row, q + row * shape_.query_heads * shape_.head_dim);
  }
  ++layer_;
  inner_->run(layer, q, out);
}

void ChannelTap::add_row(const KvLayerView& layer, std::int64_t row, const float* q) {
  const std::int64_t position = batch_.positions[static_cast<std::size_t>(row)];
  for (std::int64_t head = 0; head < shape_.kv_heads; ++head) {
    const std::int64_t key = stored_row(layer, batch_.page_table.slot(0, position), head);
    const std::int64_t place = (layer_ * shape_.kv_heads + head) * shape_.head_dim;
    double* const keys = key_sums_.data() + place;
    if (position == 0) std::fill_n(keys, shape_.head_dim, 0.0);
    for (std::int64_t c = 0; c < shape_.head_dim; ++c) {
      keys[c] += std::fabs(stored_element(layer.k, layer.dtype, key + c));
      double queries = 0;
      for (std::int64_t h = 0; h < group_of(shape_); ++h) {
        queries += std::fabs(double{q[(head * group_of(shape_) + h) * shape_.head_dim + c]});
      }
      sums_.sums[static_cast<std::size_t>(place + c)] += queries * keys[c];
    }
  }
}

double RecallSums::recall(std::size_t share) const {
  return queries == 0 ? 0 : shares[share].chosen / static_cast<double>(queries);
}

double RecallSums::best_recall(std::size_t share) const {
  return queries == 0 ? 0 : shares[share].best / static_cast<double>(queries);
}

RecallTap::RecallTap(std::unique_ptr<Attention> inner, const AttentionShape& shape,
                     RecallSums& sums)
    : inner_(std::move(inner)), shape_(shape), sums_(sums), bins_(2 * kSelectBins) {
  label_queries_.resize(static_cast<std::size_t>(group_of(shape) * shape.head_dim));
}

void RecallTap::plan(const KvBatch& batch) {
  inner_->plan(batch);
  batch_ = batch;
}

void RecallTap::run(const KvLayerView& layer, const float* q, float* out) {
  STEMMA_CHECK(layer.labels != nullptr, "a layer of a pool with labels");
  for (std::int64_t request = 0; request < batch_.page_table.requests(); ++request) {
    const std::int64_t end = batch_.row_indptr[static_cast<std::size_t>(request + 1)];
    for (std::int64_t row = batch_.row_indptr[static_cast<std::size_t>(request)]; row < end;
         ++row) {
      const std::int64_t tokens = batch_.positions[static_cast<std::size_t>(row)] + std::int64_t{1};
      if (tokens < kRecallTokensMin || tokens % kRecallRowStep != 0) continue;
      for (std::int64_t head = 0; head < shape_.kv_heads; ++head) {
        measure_head(layer, request, row, head, q);
      }
    }
  }
  inner_->run(layer, q, out);
}

void RecallTap::measure_head(const KvLayerView& layer, std::int64_t request, std::int64_t row,
                             std::int64_t kv_head, const float* q) {
  SelectTask task;
  task.layer = &layer;
  task.shape = &shape_;
  task.pages = raw(batch_.page_table.pages_of(request)).data();
  task.q = q + (row * shape_.kv_heads + kv_head) * group_of(shape_) * shape_.head_dim;
  task.kv_head = kv_head;
  task.tokens = batch_.positions[static_cast<std::size_t>(row)] + std::int64_t{1};
  read_keys(layer, request, task.tokens, kv_head);
  weigh(task.tokens, task.q);
  const auto padded = static_cast<std::size_t>(padded_tokens(task.tokens));
  label_scores_.resize(static_cast<std::size_t>(group_of(shape_)) * padded);
  candidates_.resize(padded);
  chosen_.resize(padded);
  for (RecallSums::Share& share : sums_.shares) {
    task.kept_tokens = share.dial.tokens_kept(task.tokens);
    select_kernel()(task, {label_queries_.data(), label_scores_.data(), candidates_.data(),
                           bins_.data(), chosen_.data()});
    for (std::int64_t i = 0; i < task.kept_tokens; ++i) {
      share.chosen += mass_[static_cast<std::size_t>(chosen_[static_cast<std::size_t>(i)])];
    }
    scores_ = mass_;
    const auto kept_end = scores_.begin() + task.kept_tokens;
    std::nth_element(scores_.begin(), kept_end - 1, scores_.end(), std::greater<>());
    share.best += std::accumulate(scores_.begin(), kept_end, 0.0);
  }
  sums_.queries += group_of(shape_);
}

void RecallTap::read_keys(const KvLayerView& layer, std::int64_t request, std::int64_t tokens,
                          std::int64_t kv_head) {
  keys_.clear();
  for (std::int64_t token = 0; token < tokens; ++token) {
    const std::int64_t key = stored_row(layer, batch_.page_table.slot(request, token), kv_head);
    for (std::int64_t c = 0; c < shape_.head_dim; ++c) {
      keys_.push_back(static_cast<float>(stored_element(layer.k, layer.dtype, key + c)));
    }
  }
}

void RecallTap::weigh(std::int64_t tokens, const float* q) {
  mass_.assign(static_cast<std::size_t>(tokens), 0.0);
  scores_.resize(mass_.size());
  for (std::int64_t head = 0; head < group_of(shape_); ++head, q += shape_.head_dim) {
    double max = -HUGE_VAL;
    for (std::size_t token = 0; token < scores_.size(); ++token) {
      const float* const key = keys_.data() + token * static_cast<std::size_t>(shape_.head_dim);
      scores_[token] =
          double{shape_.scale} * std::inner_product(q, q + shape_.head_dim, key, 0.0, std::plus<>(),
                                                    std::multiplies<double>());
      max = std::max(max, scores_[token]);
    }
    double total = 0;
    for (double& score : scores_) total += score = std::exp(score - max);
    for (std::size_t token = 0; token < scores_.size(); ++token) {
      mass_[token] += scores_[token] / total;
    }
  }
}

}  // namespace stemma
