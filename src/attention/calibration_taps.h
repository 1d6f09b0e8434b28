// Calibration taps: attentions that pass everything on to another one and look at what passes:
// which channels of q and k make the scores, and how much of the attention's mass the tokens hold
// that labels would choose.
//
// They count runs from each plan to know the layer.
//
// Thread:     as Attention; looking is done by the calling thread.
// Memory:     a few numbers a layer, head and channel; of RecallTap the keys of one context.
// Cost:       ChannelTap little; RecallTap exact scores of every kRecallRowStep-th row.
// Not here:   running prompts (cli/calibrate_command), the file (model/sparse_calibration).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "attention/attention.h"
#include "attention/sparse_dial.h"
#include "attention/sparse_kernel.h"
#include "pool/heavy_channels.h"

namespace stemma {

// For each layer, KV head and channel c: the sum over rows, the KV head's query heads and the
// tokens that the row sees of |q_c × k_c|.
struct ChannelSums {
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::vector<double> sums;  // [layers, heads, head_dim]

  ChannelSums(std::int64_t layers, std::int64_t heads, std::int64_t head_dim);

  // The `channels_each` heaviest of each head, ascending; of equal ones the lower.
  HeavyChannels heaviest(std::int64_t channels_each) const;
};

class ChannelTap final : public Attention {
 public:
  // `sums` must outlive it. REQUIRES: batches are of one request at a time, each from its first
  // token on.
  ChannelTap(std::unique_ptr<Attention> inner, const AttentionShape& shape, ChannelSums& sums);

  std::string_view name() const override { return inner_->name(); }
  void plan(const KvBatch& batch) override;
  void run(const KvLayerView& layer, const float* q, float* out) override;

 private:
  void add_row(const KvLayerView& layer, std::int64_t row, const float* q);

  std::unique_ptr<Attention> inner_;
  AttentionShape shape_;
  ChannelSums& sums_;
  std::vector<double> key_sums_;  // of |k_c| over the request's tokens   [layers, heads, head_dim]
  std::int64_t layer_ = 0;
  KvBatch batch_;
};

inline constexpr std::int64_t kRecallRowStep = 16;
// Rows that see fewer tokens are not counted.
inline constexpr std::int64_t kRecallTokensMin = 128;

// Mass of attention, averaged over rows, layers and query heads.
struct RecallSums {
  struct Share {
    SparseDial dial;
    double chosen = 0;  // on the tokens that labels choose
    double best = 0;    // on as many tokens, chosen for the same query heads by their exact mass
  };
  std::vector<Share> shares;
  std::int64_t queries = 0;

  double recall(std::size_t share) const;
  double best_recall(std::size_t share) const;
};

class RecallTap final : public Attention {
 public:
  // `sums` must outlive it and has the dials to measure. REQUIRES: layers have labels.
  RecallTap(std::unique_ptr<Attention> inner, const AttentionShape& shape, RecallSums& sums);

  std::string_view name() const override { return inner_->name(); }
  void plan(const KvBatch& batch) override;
  void run(const KvLayerView& layer, const float* q, float* out) override;

 private:
  void measure_head(const KvLayerView& layer, std::int64_t request, std::int64_t row,
                    std::int64_t kv_head, const float* q);
  void read_keys(const KvLayerView& layer, std::int64_t request, std::int64_t tokens,
                 std::int64_t kv_head);
  // The mass of each token, summed over the KV head's query heads.
  void weigh(std::int64_t tokens, const float* q);

  std::unique_ptr<Attention> inner_;
  AttentionShape shape_;
  RecallSums& sums_;
  KvBatch batch_;
  std::vector<float> keys_;     // [tokens, head_dim] of one KV head
  std::vector<double> mass_;    // [tokens]
  std::vector<double> scores_;  // [tokens]
  std::vector<float> label_queries_, label_scores_;
  std::vector<std::uint32_t> candidates_, bins_;
  std::vector<std::int32_t> chosen_;
};

}  // namespace stemma
