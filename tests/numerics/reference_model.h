// ReferenceModel: the published definitions of the supported families in double precision, written
// out plainly.
//
// Llama (Touvron et al. 2023; llama3 RoPE scaling as in its reference code), Qwen2 (biases on q, k
// and v), Qwen3 (norms on the heads of q and k), Qwen3-MoE (each token to the experts of the
// largest softmax). No cache, no batching, no page: every position looks back at all earlier ones.
// It shares no code with the engine but the plain values of a configuration.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "model/config.h"
#include "stemma/ids.h"

namespace stemma {

class ReferenceModel {
 public:
  using Row = std::vector<double>;
  // The values of a tensor by its name in the file, row-major.
  using Tensors = std::map<std::string, Row>;

  ReferenceModel(const ModelConfig& config, Tensors tensors)
      : config_(config), tensors_(std::move(tensors)) {}

  // The logits after each token.   [tokens][vocab_tokens]
  std::vector<Row> logits(const std::vector<TokenId>& tokens) const {
    const Row& embeddings = tensors_.at("model.embed_tokens.weight");
    std::vector<Row> x;
    for (const TokenId token : tokens) {
      const auto begin = embeddings.begin() + token * config_.hidden;
      x.emplace_back(begin, begin + config_.hidden);
    }
    for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
      const std::string prefix = "model.layers." + std::to_string(layer) + ".";
      attention(prefix, x);
      for (Row& row : x) {
        const Row h = norm(row, prefix + "post_attention_layernorm.weight");
        add(row, config_.mixture.at_layer(layer) ? mixture(prefix + "mlp.", h)
                                                 : mlp(prefix + "mlp.", h));
      }
    }
    for (Row& row : x) {
      row = linear(norm(row, "model.norm.weight"),
                   config_.tied_embeddings ? "model.embed_tokens" : "lm_head");
    }
    return x;
  }

 private:
  void attention(const std::string& prefix, std::vector<Row>& x) const {
    const std::string stem = prefix + "self_attn.";
    std::vector<Row> keys;
    std::vector<Row> values;
    for (std::size_t position = 0; position < x.size(); ++position) {
      const Row h = norm(x[position], prefix + "input_layernorm.weight");
      const Row query = heads(linear(h, stem + "q_proj"), stem + "q_norm.weight", position);
      keys.push_back(heads(linear(h, stem + "k_proj"), stem + "k_norm.weight", position));
      values.push_back(linear(h, stem + "v_proj"));
      add(x[position], linear(attend(query, keys, values), stem + "o_proj"));
    }
  }

  Row attend(const Row& query, const std::vector<Row>& keys, const std::vector<Row>& values) const {
    const std::int64_t dim = config_.head_dim;
    Row out;
    for (std::int64_t head = 0; head < config_.query_heads; ++head) {
      const std::int64_t kv_begin = head / (config_.query_heads / config_.kv_heads) * dim;
      Row shares;
      for (const Row& key : keys) {
        double score = 0;
        for (std::int64_t i = 0; i < dim; ++i) {
          score += at(query, head * dim + i) * at(key, kv_begin + i);
        }
        shares.push_back(score / std::sqrt(static_cast<double>(dim)));
      }
      const double top = *std::max_element(shares.begin(), shares.end());
      double total = 0;
      for (double& share : shares) {
        total += share = std::exp(share - top);
      }
      for (std::int64_t i = 0; i < dim; ++i) {
        double sum = 0;
        for (std::size_t k = 0; k < keys.size(); ++k) {
          sum += shares[k] * at(values[k], kv_begin + i);
        }
        out.push_back(sum / total);
      }
    }
    return out;
  }

  Row mlp(const std::string& stem, const Row& h) const {
    Row inner = linear(h, stem + "gate_proj");
    const Row up = linear(h, stem + "up_proj");
    for (std::size_t i = 0; i < inner.size(); ++i) {
      inner[i] = inner[i] / (1.0 + std::exp(-inner[i])) * up[i];
    }
    return linear(inner, stem + "down_proj");
  }

  Row mixture(const std::string& stem, const Row& h) const {
    Row out(h.size(), 0.0);
    if (tensors_.count(stem + "shared_experts.up_proj.weight") != 0) {
      out = mlp(stem + "shared_experts.", h);
    }
    for (const auto& [expert, weight] : route(stem, h)) {
      const Row said = mlp(stem + "experts." + std::to_string(expert) + ".", h);
      for (std::size_t i = 0; i < out.size(); ++i) {
        out[i] += weight * said[i];
      }
    }
    return out;
  }

  // The experts of a token and their weights.
  std::map<std::size_t, double> route(const std::string& stem, const Row& h) const {
    const MixtureConfig& mixture = config_.mixture;
    Row scores = linear(h, stem + "gate");
    double total = 0;
    for (const double score : scores) {
      total += std::exp(score);
    }
    for (double& score : scores) {
      score = std::exp(score) / total;
    }
    std::map<std::size_t, double> chosen;
    double sum = 0;
    for (std::int64_t i = 0; i < mixture.experts_per_token; ++i) {
      const std::size_t best = best_of(scores, chosen);
      sum += chosen[best] = scores[best];
    }
    for (auto& [expert, weight] : chosen) {
      weight = (mixture.normalised ? weight / sum : weight) * mixture.scaling;
    }
    return chosen;
  }

  // The first of the largest values that are not yet taken.
  static std::size_t best_of(const Row& values, const std::map<std::size_t, double>& taken) {
    std::size_t best = values.size();
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (taken.count(i) == 0 && (best == values.size() || values[i] > values[best])) {
        best = i;
      }
    }
    return best;
  }

  // Each head normalised, if there is such a norm, and rotated to `position`.
  Row heads(Row row, const std::string& norm_name, std::size_t position) const {
    const auto dim = static_cast<std::size_t>(config_.head_dim);
    for (std::size_t begin = 0; begin < row.size(); begin += dim) {
      Row head(row.begin() + static_cast<std::ptrdiff_t>(begin),
               row.begin() + static_cast<std::ptrdiff_t>(begin + dim));
      if (tensors_.count(norm_name) != 0) {
        head = norm(head, norm_name);
      }
      for (std::size_t i = 0; i < dim / 2; ++i) {
        const double angle = static_cast<double>(position) * radians_per_position(i);
        row[begin + i] = head[i] * std::cos(angle) - head[i + dim / 2] * std::sin(angle);
        row[begin + i + dim / 2] = head[i + dim / 2] * std::cos(angle) + head[i] * std::sin(angle);
      }
    }
    return row;
  }

  double radians_per_position(std::size_t pair) const {
    const RopeConfig& rope = config_.rope;
    const double plain = 1.0 / std::pow(rope.theta, 2.0 * static_cast<double>(pair) /
                                                        static_cast<double>(config_.head_dim));
    if (rope.scaling == RopeConfig::Scaling::kLinear) {
      return plain / rope.factor;
    }
    if (rope.scaling == RopeConfig::Scaling::kNone) {
      return plain;
    }
    const auto original = static_cast<double>(rope.original_context_tokens);
    const double wavelength = 2.0 * std::numbers::pi / plain;
    if (wavelength < original / rope.high_frequency_factor) {
      return plain;
    }
    if (wavelength > original / rope.low_frequency_factor) {
      return plain / rope.factor;
    }
    const double smooth = (original / wavelength - rope.low_frequency_factor) /
                          (rope.high_frequency_factor - rope.low_frequency_factor);
    return (1.0 - smooth) * plain / rope.factor + smooth * plain;
  }

  Row norm(const Row& x, const std::string& name) const {
    const Row& weight = tensors_.at(name);
    double squares = 0;
    for (const double value : x) {
      squares += value * value;
    }
    const double scale =
        1.0 / std::sqrt(squares / static_cast<double>(x.size()) + config_.norm_epsilon);
    Row out;
    for (std::size_t i = 0; i < x.size(); ++i) {
      out.push_back(x[i] * scale * weight[i]);
    }
    return out;
  }

  Row linear(const Row& x, const std::string& name) const {
    const Row& weight = tensors_.at(name + ".weight");
    Row out(weight.size() / x.size(), 0.0);
    for (std::size_t n = 0; n < out.size(); ++n) {
      for (std::size_t k = 0; k < x.size(); ++k) {
        out[n] += x[k] * weight[n * x.size() + k];
      }
    }
    const auto bias = tensors_.find(name + ".bias");
    if (bias != tensors_.end()) {
      add(out, bias->second);
    }
    return out;
  }

  static void add(Row& x, const Row& y) {
    std::transform(x.begin(), x.end(), y.begin(), x.begin(), std::plus<>());
  }
  static double at(const Row& row, std::int64_t i) { return row[static_cast<std::size_t>(i)]; }

  ModelConfig config_;
  Tensors tensors_;
};

}  // namespace stemma
