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

  // `embedding_scale`: √hidden as the embeddings' type has it, for those that scale them.
  ReferenceModel(const ModelConfig& config, Tensors tensors, double embedding_scale)
      : config_(config), tensors_(std::move(tensors)), embedding_scale_(embedding_scale) {}

  // What a row's experts were chosen by: how much better the worst that was taken is than the best
  // that was not, where that is least; groups count too.
  struct Choices {
    double gap = 1e300;

    void note(const Row& wishes, const std::map<std::size_t, double>& taken) {
      double worst_taken = 1e300;
      double best_left = -1e300;
      for (std::size_t i = 0; i < wishes.size(); ++i) {
        double& side = taken.count(i) != 0 ? worst_taken : best_left;
        side = taken.count(i) != 0 ? std::min(side, wishes[i]) : std::max(side, wishes[i]);
      }
      gap = std::min(gap, worst_taken - best_left);
    }
  };

  // The logits after each token.   [tokens][vocab_tokens]
  std::vector<Row> logits(const std::vector<TokenId>& tokens) const {
    std::vector<Choices> unused;
    return logits(tokens, unused);
  }
  // The same, and how close the choices of experts were.   [tokens]
  std::vector<Row> logits(const std::vector<TokenId>& tokens, std::vector<Choices>& choices) const {
    choices.assign(tokens.size(), {});
    const Row& embeddings = tensors_.at("model.embed_tokens.weight");
    std::vector<Row> x;
    for (const TokenId token : tokens) {
      const auto begin = embeddings.begin() + token * config_.hidden;
      x.emplace_back(begin, begin + config_.hidden);
      if (config_.scaled_embeddings) multiply_by(x.back(), embedding_scale_);
    }
    for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
      const std::string prefix = "model.layers." + std::to_string(layer) + ".";
      if (config_.latent.rank > 0) {
        latent_attention(prefix + "self_attn.", prefix + "input_layernorm.weight", x);
      } else {
        attention(layer, prefix, x);
      }
      for (std::size_t position = 0; position < x.size(); ++position) {
        const Row h =
            norm(x[position], prefix + (config_.branch_norms ? "pre_feedforward_layernorm.weight"
                                                             : "post_attention_layernorm.weight"));
        const std::string stem = prefix + "mlp.";
        Row said =
            config_.mixture.at_layer(layer) ? mixture(stem, h, choices[position]) : mlp(stem, h);
        if (config_.branch_norms) said = norm(said, prefix + "post_feedforward_layernorm.weight");
        add(x[position], said);
      }
    }
    for (Row& row : x) {
      row = linear(norm(row, "model.norm.weight"),
                   config_.tied_embeddings ? "model.embed_tokens" : "lm_head");
      for (double& logit : row) logit = capped(logit, config_.logit_cap);
    }
    return x;
  }

 private:
  void attention(std::int64_t layer, const std::string& prefix, std::vector<Row>& x) const {
    const bool windowed = config_.windows.at_layer(layer);
    const RopeConfig& rope = windowed ? config_.windowed_rope.value_or(config_.rope) : config_.rope;
    const std::string stem = prefix + "self_attn.";
    std::vector<Row> keys;
    std::vector<Row> values;
    for (std::size_t position = 0; position < x.size(); ++position) {
      const Row h = norm(x[position], prefix + "input_layernorm.weight");
      const Row query = heads(linear(h, stem + "q_proj"), stem + "q_norm.weight", position, rope);
      keys.push_back(heads(linear(h, stem + "k_proj"), stem + "k_norm.weight", position, rope));
      values.push_back(linear(h, stem + "v_proj"));
      if (windowed && std::ssize(keys) > config_.windows.tokens) {
        keys.erase(keys.begin());
        values.erase(values.begin());
      }
      Row said = linear(attend(query, keys, values), stem + "o_proj");
      if (config_.branch_norms) said = norm(said, prefix + "post_attention_layernorm.weight");
      add(x[position], said);
    }
  }

  Row attend(const Row& query, const std::vector<Row>& keys, const std::vector<Row>& values) const {
    const std::int64_t dim = config_.head_dim;
    Row out;
    for (std::int64_t head = 0; head < config_.query_heads; ++head) {
      const std::int64_t kv_begin = head / (config_.query_heads / config_.kv_heads) * dim;
      std::vector<Row> head_keys;
      std::vector<Row> head_values;
      for (std::size_t k = 0; k < keys.size(); ++k) {
        head_keys.push_back(part(keys[k], kv_begin, dim));
        head_values.push_back(part(values[k], kv_begin, dim));
      }
      const double scale =
          1.0 / std::sqrt(config_.score_dim > 0 ? config_.score_dim : static_cast<double>(dim));
      append(out, attend_head(part(query, head * dim, dim), head_keys, head_values, scale));
    }
    return out;
  }

  // softmax(scale × q kᵀ) v of one head.
  Row attend_head(const Row& query, const std::vector<Row>& keys, const std::vector<Row>& values,
                  double scale) const {
    Row shares;
    for (const Row& key : keys) {
      double score = 0;
      for (std::size_t i = 0; i < query.size(); ++i) {
        score += query[i] * key[i];
      }
      shares.push_back(capped(score * scale, config_.score_cap));
    }
    const double top = *std::max_element(shares.begin(), shares.end());
    double total = 0;
    for (double& share : shares) {
      total += share = std::exp(share - top);
    }
    Row out(values.front().size(), 0.0);
    for (std::size_t k = 0; k < keys.size(); ++k) {
      for (std::size_t i = 0; i < out.size(); ++i) {
        out[i] += shares[k] / total * values[k][i];
      }
    }
    return out;
  }

  // As DeepSeek-V2 defines it, not absorbed: every head gets its own keys and values back from the
  // latent rows.
  void latent_attention(const std::string& stem, const std::string& norm_name,
                        std::vector<Row>& x) const {
    const LatentConfig& latent = config_.latent;
    const auto heads = static_cast<std::size_t>(config_.query_heads);
    std::vector<std::vector<Row>> keys(heads);
    std::vector<std::vector<Row>> values(heads);
    for (std::size_t position = 0; position < x.size(); ++position) {
      const Row h = norm(x[position], norm_name);
      const Row query =
          latent.query_rank == 0
              ? linear(h, stem + "q_proj")
              : linear(norm(linear(h, stem + "q_a_proj"), stem + "q_a_layernorm.weight", 1e-6),
                       stem + "q_b_proj");
      const Row down = linear(h, stem + "kv_a_proj_with_mqa");
      const Row turned_key = turned_pairs(part(down, latent.rank, latent.rope_dim), position);
      const Row up = linear(norm(part(down, 0, latent.rank), stem + "kv_a_layernorm.weight", 1e-6),
                            stem + "kv_b_proj");
      Row out;
      for (std::size_t head = 0; head < heads; ++head) {
        const auto at_head = static_cast<std::int64_t>(head);
        const std::int64_t up_begin = at_head * (latent.plain_dim + latent.value_dim);
        keys[head].push_back(part(up, up_begin, latent.plain_dim));
        append(keys[head].back(), turned_key);
        values[head].push_back(part(up, up_begin + latent.plain_dim, latent.value_dim));
        const std::int64_t query_begin = at_head * (latent.plain_dim + latent.rope_dim);
        Row head_query = part(query, query_begin, latent.plain_dim);
        append(
            head_query,
            turned_pairs(part(query, query_begin + latent.plain_dim, latent.rope_dim), position));
        append(out, attend_head(head_query, keys[head], values[head], latent_scale()));
      }
      add(x[position], linear(out, stem + "o_proj"));
    }
  }

  double latent_scale() const {
    const auto dim = static_cast<double>(config_.latent.plain_dim + config_.latent.rope_dim);
    const double taken = yarn_length(config_.rope.mscale_all_dim);
    return taken * taken / std::sqrt(dim);
  }

  // Pairs side by side, turned to `position`.
  Row turned_pairs(Row row, std::size_t position) const {
    for (std::size_t i = 0; i < row.size() / 2; ++i) {
      const double angle =
          static_cast<double>(position) * radians_per_position(i, row.size(), config_.rope);
      const double length = turned_length();
      const double a = row[2 * i];
      const double b = row[2 * i + 1];
      row[2 * i] = length * (a * std::cos(angle) - b * std::sin(angle));
      row[2 * i + 1] = length * (b * std::cos(angle) + a * std::sin(angle));
    }
    return row;
  }

  Row mlp(const std::string& stem, const Row& h) const {
    Row inner = linear(h, stem + "gate_proj");
    const Row up = linear(h, stem + "up_proj");
    for (std::size_t i = 0; i < inner.size(); ++i) {
      inner[i] = activated(inner[i]) * up[i];
    }
    return linear(inner, stem + "down_proj");
  }

  Row mixture(const std::string& stem, const Row& h, Choices& choices) const {
    Row out(h.size(), 0.0);
    if (tensors_.count(stem + "shared_experts.up_proj.weight") != 0) {
      out = mlp(stem + "shared_experts.", h);
    }
    for (const auto& [expert, weight] : route(stem, h, choices)) {
      const Row said = mlp(stem + "experts." + std::to_string(expert) + ".", h);
      for (std::size_t i = 0; i < out.size(); ++i) {
        out[i] += weight * said[i];
      }
    }
    return out;
  }

  // The experts of a token and their weights.
  std::map<std::size_t, double> route(const std::string& stem, const Row& h,
                                      Choices& choices) const {
    const MixtureConfig& mixture = config_.mixture;
    const bool v3 = mixture.choice == MixtureConfig::Choice::kCorrectedGroups;
    const Row logits = linear(h, stem + "gate");
    double total = 0;
    for (const double logit : logits) {
      total += std::exp(logit);
    }
    Row scores;
    for (const double logit : logits) {
      scores.push_back(v3 ? 1.0 / (1.0 + std::exp(-logit)) : std::exp(logit) / total);
    }
    Row wishes = scores;
    if (v3) {
      add(wishes, tensors_.at(stem + "gate.e_score_correction_bias"));
    }
    if (mixture.choice != MixtureConfig::Choice::kSoftmax) {
      close_groups(wishes, choices);
    }
    std::map<std::size_t, double> chosen;
    double sum = 0;
    for (std::int64_t i = 0; i < mixture.experts_per_token; ++i) {
      const std::size_t best = best_of(wishes, chosen);
      sum += chosen[best] = scores[best];
    }
    choices.note(wishes, chosen);
    for (auto& [expert, weight] : chosen) {
      weight = (mixture.normalised ? weight / sum : weight) * mixture.scaling;
    }
    return chosen;
  }

  // Nothing is wished for outside the groups with the best expert (V2) or the best two (V3).
  void close_groups(Row& wishes, Choices& choices) const {
    const auto groups = static_cast<std::size_t>(config_.mixture.groups);
    const std::size_t size = wishes.size() / groups;
    Row counts;
    for (std::size_t group = 0; group < groups; ++group) {
      Row own =
          part(wishes, static_cast<std::int64_t>(group * size), static_cast<std::int64_t>(size));
      std::sort(own.rbegin(), own.rend());
      const bool two = config_.mixture.choice == MixtureConfig::Choice::kCorrectedGroups;
      counts.push_back(two ? own[0] + own[1] : own[0]);
    }
    std::map<std::size_t, double> open;
    for (std::int64_t i = 0; i < config_.mixture.groups_per_token; ++i) {
      open[best_of(counts, open)] = 1;
    }
    choices.note(counts, open);
    for (std::size_t expert = 0; expert < wishes.size(); ++expert) {
      if (open.count(expert / size) == 0) {
        wishes[expert] = -1e300;
      }
    }
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
  Row heads(Row row, const std::string& norm_name, std::size_t position,
            const RopeConfig& rope) const {
    const auto dim = static_cast<std::size_t>(config_.head_dim);
    for (std::size_t begin = 0; begin < row.size(); begin += dim) {
      Row head(row.begin() + static_cast<std::ptrdiff_t>(begin),
               row.begin() + static_cast<std::ptrdiff_t>(begin + dim));
      if (tensors_.count(norm_name) != 0) {
        head = norm(head, norm_name);
      }
      for (std::size_t i = 0; i < dim / 2; ++i) {
        const double angle = static_cast<double>(position) * radians_per_position(i, dim, rope);
        const double cosine = turned_length() * std::cos(angle);
        const double sine = turned_length() * std::sin(angle);
        row[begin + i] = head[i] * cosine - head[i + dim / 2] * sine;
        row[begin + i + dim / 2] = head[i + dim / 2] * cosine + head[i] * sine;
      }
    }
    return row;
  }

  double yarn_length(double strength) const {
    const RopeConfig& rope = config_.rope;
    return rope.scaling == RopeConfig::Scaling::kYarn ? 1.0 + 0.1 * strength * std::log(rope.factor)
                                                      : 1.0;
  }

  double turned_length() const {
    return yarn_length(config_.rope.mscale) / yarn_length(config_.rope.mscale_all_dim);
  }

  // YaRN: the share of the divided frequency grows from pair `low` to pair `high`.
  double yarn_radians(double plain, std::size_t pair, std::size_t dim) const {
    const RopeConfig& rope = config_.rope;
    const auto pair_of = [&](double turns) {
      const double wavelength = static_cast<double>(rope.original_context_tokens) / turns;
      return static_cast<double>(dim) / 2.0 * std::log(wavelength / (2.0 * std::numbers::pi)) /
             std::log(rope.theta);
    };
    const double low = std::max(0.0, std::floor(pair_of(rope.fast_turns)));
    const double high =
        std::min(static_cast<double>(dim) - 1.0, std::ceil(pair_of(rope.slow_turns)));
    const double along = (static_cast<double>(pair) - low) / (high - low);
    const double share = std::min(1.0, std::max(0.0, along));
    return plain * (1.0 - share) + plain / rope.factor * share;
  }

  double radians_per_position(std::size_t pair, std::size_t dim, const RopeConfig& rope) const {
    const double plain =
        1.0 / std::pow(rope.theta, 2.0 * static_cast<double>(pair) / static_cast<double>(dim));
    if (rope.scaling == RopeConfig::Scaling::kYarn) {
      return yarn_radians(plain, pair, dim);
    }
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
    return norm(x, name, config_.norm_epsilon);
  }

  Row norm(const Row& x, const std::string& name, double epsilon) const {
    const Row& weight = tensors_.at(name);
    double squares = 0;
    for (const double value : x) {
      squares += value * value;
    }
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + epsilon);
    Row out;
    for (std::size_t i = 0; i < x.size(); ++i) {
      out.push_back(x[i] * scale * (config_.norms_add_one ? 1.0 + weight[i] : weight[i]));
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
  static void append(Row& row, const Row& more) { row.insert(row.end(), more.begin(), more.end()); }
  static Row part(const Row& row, std::int64_t begin, std::int64_t columns) {
    return {row.begin() + begin, row.begin() + begin + columns};
  }

  // Gated by a sigmoid, or by the normal distribution in its approximation by tanh.
  double activated(double x) const {
    if (config_.activation == Activation::kSilu) return x / (1.0 + std::exp(-x));
    const double inner = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
    return 0.5 * x * (1.0 + std::tanh(inner));
  }

  static double capped(double x, double cap) { return cap > 0 ? cap * std::tanh(x / cap) : x; }

  static void multiply_by(Row& row, double factor) {
    for (double& value : row) value *= factor;
  }

  ModelConfig config_;
  Tensors tensors_;
  double embedding_scale_;
};

}  // namespace stemma
