// Attention: queries of a batch against the keys and values that its page table names.
//
// plan looks at the batch once a step and cuts the work for all layers; run computes one layer.
// What a row gets depends on its own position and tokens only: keys are walked in partitions of
// fixed length counted from position 0, each in one fixed order, and the partitions are merged left
// to right, those of latent rows in sections of a few, and these left to right (I13).
//
// Thread:     one batch at a time; run spreads its work over the ThreadPool it was made with.
// Memory:     scratch sized at construction for the largest batch; plan and run do not allocate.
// Cost:       decode is bound by reading K and V once; prefill by 4 × head_dim operations a query,
//             key and head; latent rows always by 2 × (head_dim + latent_dim) of them.
// Not here:   writing K and V (KvPool::store), RoPE and projections (model/).
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/thread_pool.h"
#include "stemma/kv_batch.h"
#include "stemma/kv_pool.h"
#include "stemma/result.h"

namespace stemma {

// Of one layer, the same for all layers of a model.
struct AttentionShape {
  std::int64_t query_heads = 0;  // a multiple of kv_heads
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;  // of q and k: 32 … 256, of latent rows 16 … 1024; a multiple of 8
  float scale = 0;            // scores are scale × (q · k)
  // Of one KV head of latent rows (KvKind::kMla): the first columns of k, which are v; else 0.
  std::int64_t latent_dim = 0;
  // A query sees the keys of so many positions, its own the last of them; 0: all before it. Pages
  // are then those of KvBatch::windowed_table.
  std::int64_t window_tokens = 0;
  float score_cap = 0;  // c > 0: scores become c × tanh(score / c) (Gemma-2)

  // The first position that a query sees.
  std::int64_t first_seen(std::int64_t position) const noexcept {
    return window_tokens == 0 ? 0 : std::max<std::int64_t>(position - window_tokens + 1, 0);
  }
  // The pages of these layers.
  const PageTableView& table(const KvBatch& batch) const noexcept {
    return window_tokens == 0 ? batch.page_table : batch.windowed_table;
  }
  // Columns of v and out of one head.
  std::int64_t value_dim() const noexcept { return latent_dim > 0 ? latent_dim : head_dim; }
};

// The largest batch that plan will be given.
struct AttentionLimits {
  std::int64_t rows_max = 0;
  std::int64_t requests_max = 0;
  std::int64_t context_tokens_max = 0;
};

// kInvalidArgument names what is wrong with them.
Status validate(const AttentionShape& shape);
Status validate(const AttentionLimits& limits);

class Attention {
 public:
  virtual ~Attention() = default;

  // "cpu" (vectorised) or "reference" (plain loops in double).
  virtual std::string_view name() const = 0;

  // Prepares for `batch`: valid for all layers of this step. The batch must outlive the runs.
  // REQUIRES: the batch is within the limits; every position has a page.
  virtual void plan(const KvBatch& batch) = 0;

  // out = softmax(scale × q kᵀ, capped, keys at positions <= the query's and in its window) v, in
  // f32.
  // q: [rows, query_heads, head_dim], out: [rows, query_heads, value_dim], dense.
  // REQUIRES: plan was called for this batch; `layer` has this shape and the batch's page size.
  virtual void run(const KvLayerView& layer, const float* q, float* out) = 0;
};

// "cpu", "reference".
std::span<const std::string_view> attention_names();

// Makes an attention by name; kNotFound lists the known ones, kInvalidArgument names what is wrong
// with the shape or the limits. `threads` must outlive it.
Result<std::unique_ptr<Attention>> make_attention(std::string_view name,
                                                  const AttentionShape& shape,
                                                  const AttentionLimits& limits,
                                                  ThreadPool& threads);

}  // namespace stemma
