#include "attention/reference_sparse_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "attention/stored_element.h"
#include "base/check.h"

namespace stemma {

namespace {

// 2^x as straight lines between the powers of two.
double power_line(double x) {
  const double whole = std::floor(x);
  return std::ldexp(1 + x - whole, static_cast<int>(whole));
}

// Weights of the softmax that guesses are made of, in place; scores are of base 2.
void softmax_line(std::vector<double>& scores) {
  const double max = *std::max_element(scores.begin(), scores.end());
  for (double& score : scores) score = power_line(std::max(score - max, -127.0));
  const double total = std::accumulate(scores.begin(), scores.end(), 0.0);
  for (double& score : scores) score /= total;
}

// Weights of a softmax, in place.
void softmax(std::vector<double>& scores) {
  const double max = *std::max_element(scores.begin(), scores.end());
  for (double& score : scores) score = std::exp(score - max);
  const double total = std::accumulate(scores.begin(), scores.end(), 0.0);
  for (double& score : scores) score /= total;
}

}  // namespace

ReferenceSparseAttention::ReferenceSparseAttention(const AttentionShape& shape,
                                                   const SparseDial& dial, const AttentionLimits&)
    : shape_(shape), dial_(dial) {}

void ReferenceSparseAttention::run(const KvLayerView& layer, const float* q, float* out) {
  STEMMA_CHECK(layer.labels != nullptr, "a layer of a pool with labels");
  const std::int64_t group_floats = shape_.query_heads / shape_.kv_heads * shape_.head_dim;
  for (std::int64_t request = 0; request < batch_.page_table.requests(); ++request) {
    const std::int64_t end = batch_.row_indptr[static_cast<std::size_t>(request + 1)];
    for (std::int64_t row = batch_.row_indptr[static_cast<std::size_t>(request)]; row < end;
         ++row) {
      Head head;
      head.request = request;
      head.tokens = batch_.positions[static_cast<std::size_t>(row)] + std::int64_t{1};
      for (; head.kv_head < shape_.kv_heads; ++head.kv_head) {
        const std::int64_t place = (row * shape_.kv_heads + head.kv_head) * group_floats;
        const std::vector<std::int64_t> chosen = choose(layer, head, q + place);
        for (std::int64_t i = 0; i < group_floats; i += shape_.head_dim) {
          attend(layer, head, chosen, q + place + i, out + place + i);
        }
      }
    }
  }
}

std::vector<double> ReferenceSparseAttention::guesses(const KvLayerView& layer,
                                                      std::int64_t request, std::int64_t tokens,
                                                      std::int64_t kv_head, const float* q) const {
  const std::int64_t channels = layer.label_channels;
  const std::int32_t* const heavy = layer.heavy_channels + kv_head * channels;
  std::vector<double> guesses(static_cast<std::size_t>(tokens));
  std::vector<double> weights(guesses.size());
  for (std::int64_t head = 0; head < shape_.query_heads / shape_.kv_heads; ++head) {
    for (std::int64_t token = 0; token < tokens; ++token) {
      const std::int64_t page = batch_.page_table.slot(request, token).value() / layer.page_size;
      const std::int64_t label = page * layer.label_page_stride +
                                 token % layer.page_size * layer.label_token_stride +
                                 kv_head * layer.label_head_stride;
      double score = 0;
      for (std::int64_t i = 0; i < channels; ++i) {
        score += double{q[head * shape_.head_dim + heavy[i]]} *
                 stored_element(layer.labels, layer.dtype, label + i);
      }
      weights[static_cast<std::size_t>(token)] = score * double{shape_.scale} * std::numbers::log2e;
    }
    softmax_line(weights);
    for (std::size_t i = 0; i < guesses.size(); ++i) guesses[i] += weights[i];
  }
  return guesses;
}

std::vector<std::int64_t> ReferenceSparseAttention::choose(const KvLayerView& layer,
                                                           const Head& head, const float* q) const {
  std::vector<std::int64_t> chosen(static_cast<std::size_t>(head.tokens));
  std::iota(chosen.begin(), chosen.end(), std::int64_t{0});
  if (head.tokens <= dial_.dense_up_to()) return chosen;
  const std::vector<double> guess = guesses(layer, head.request, head.tokens, head.kv_head, q);
  std::stable_sort(chosen.begin(), chosen.end(), [&](std::int64_t a, std::int64_t b) {
    return guess[static_cast<std::size_t>(a)] > guess[static_cast<std::size_t>(b)];
  });
  chosen.resize(static_cast<std::size_t>(dial_.tokens_kept(head.tokens)));
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

void ReferenceSparseAttention::attend(const KvLayerView& layer, const Head& head,
                                      const std::vector<std::int64_t>& chosen, const float* q,
                                      float* out) const {
  const auto row_of = [&](std::int64_t token) {
    return stored_row(layer, batch_.page_table.slot(head.request, token), head.kv_head);
  };
  std::vector<double> weights;
  for (const std::int64_t token : chosen) {
    double score = 0;
    for (std::int64_t i = 0; i < shape_.head_dim; ++i) {
      score += double{q[i]} * stored_element(layer.k, layer.dtype, row_of(token) + i);
    }
    weights.push_back(score * double{shape_.scale});
  }
  softmax(weights);
  for (std::int64_t i = 0; i < shape_.head_dim; ++i) {
    double sum = 0;
    for (std::size_t t = 0; t < chosen.size(); ++t) {
      sum += weights[t] * stored_element(layer.v, layer.dtype, row_of(chosen[t]) + i);
    }
    out[i] = static_cast<float>(sum);
  }
}

}  // namespace stemma
