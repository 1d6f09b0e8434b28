// CudaAttention: paged attention of a batch on a GPU: plan once a step, run once a layer.
//
// plan cuts the batch on the host into a list of work (cuda_attention_plan), writes it with the
// page table to pinned memory and queues its copy to the device; run queues kernels. Keys are
// walked in tiles of 64 counted from position 0, each in one fixed order of products of the tensor
// cores, and partitions of kCudaPartitionTiles of them are folded left to right: what a row gets
// depends on its own position and tokens only, never on the batch, how a prompt was cut, or with
// whom it was computed (I13).
//
// Operands of products are of the pool's type, f16 or bf16. Weights are rounded to it before they
// meet V, and their sum is one of the rounded ones. Codes of scaled pools are multiplied as f16,
// exactly what they are, with weights that V's scale is a part of and whose sum is not rounded
// (docs/decisions/0024). Sums are f32. Pools of f32 are computed in f32 throughout.
//
// With a dial, rows far into their context attend to tokens that are chosen for them by their
// labels, as those of SparseAttention do (attention/sparse_kernel.h), in partitions of the chosen
// ones: a row that keeps everything gets the bits of a dense one. Queries that choose are not
// rounded to the operands' type.
//
// An infinite or NaN element of V makes NaN of rows of its own request that do not see it and meet
// it in one tile: before it, or where their window has passed it. Other requests never do.
//
// Thread:     one batch at a time, one stream: plan and the runs after it in its order.
// Memory:     of the device and pinned, sized at creation; plan and run allocate nothing.
// Cost:       decode is bound by reading K and V once, prefill by 4 × head_dim operations a query,
//             key and head; sparse rows by reading labels three times and K and V of what is
//             chosen.
// Not here:   the kernels (split_attention_cuda, chunk_attention_cuda, hopper_chunk_attention_cuda,
//             hopper_latent_attention_cuda, plain_attention_cuda), how a batch is cut
//             (cuda_attention_plan), how tokens are chosen (cuda_token_choice), writing K and V and
//             labels (CudaPool).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "attention/attention.h"
#include "attention/cuda_attention_plan.h"
#include "attention/cuda_token_choice.h"
#include "attention/sparse_dial.h"
#include "device/cuda_device.h"
#include "device/cuda_pinned_turns.h"
#include "stemma/kv_batch.h"
#include "stemma/kv_pool.h"
#include "stemma/result.h"

namespace stemma {

struct CudaAttentionOptions {
  DType row_dtype = DType::kBF16;  // of q and out: f32, bf16 or f16
  DType kv_dtype = DType::kBF16;   // of the pool
  std::int64_t page_size = 0;
  bool share_prefixes = true;  // compute what decode rows have in common together
  // Pages that the table of one batch may name; 0: as many as the limits allow. Worth a limit where
  // pages are small: the table takes 4 bytes each, three times.
  std::int64_t table_pages_max = 0;
  // Bytes of the device for sums of partitions. Where a batch would need more, it is split less.
  std::int64_t sums_bytes_max = std::int64_t{256} << 20;
  // Makes rows sparse; layers must then be those of a pool with labels.
  std::optional<SparseDial> dial = {};
  // Bytes of the device for choices that are made at once. One row may take more.
  std::int64_t choice_bytes_max = std::int64_t{256} << 20;
  // Rows of long chunks by products of warpgroups, where the device and the rows allow it
  // (has_hopper_chunk_kernel): the bits of the other kernel (docs/decisions/0016), faster.
  bool hopper_chunks = true;
  // Latent rows by products of warpgroups, where the device and the rows allow it
  // (has_hopper_latent_kernel): the bits of the other kernel. Off: it was run on no GPU yet.
  bool hopper_latent = false;
  // Batches are cut for, and teams launched for, no more multiprocessors than so many; 0: all. Less
  // than all leaves room for what else runs, and has a batch cut as on a smaller GPU, so that what
  // one meets can be met again on a larger one. The bits are the same.
  std::int64_t multiprocessors_max = 0;
};

// Its end waits for the copies of its plans.
class CudaAttention {
  struct Key {};

 public:
  // kInvalidArgument or kUnsupported name what is wrong with the shape, the limits or the options;
  // kOutOfMemory. Supported: head_dim a multiple of 8 up to 256, of scaled pools of 16; of
  // latent rows up to 576, with values up to 512; with a dial none of scaled pools, latent rows,
  // windows and capped scores. `device` must outlive it; memory belongs to `stream`, which must
  // outlive it too.
  static Result<std::unique_ptr<CudaAttention>> create(CudaDevice& device, CudaStream& stream,
                                                       const AttentionShape& shape,
                                                       const AttentionLimits& limits,
                                                       const CudaAttentionOptions& options);
  CudaAttention(Key, const CudaTraits& traits, const AttentionShape& shape,
                const CudaAttentionOptions& options, const CudaPlanLimits& limits);  // for create
  CudaAttention(const CudaAttention&) = delete;
  CudaAttention& operator=(const CudaAttention&) = delete;

  // Prepares for `batch`, which may be gone when it returns: queues a copy and little more. Steps
  // queued before may still be computed; a third plan waits until the first one's copy is done.
  // kInvalidArgument if the batch is not within the limits or names too many pages.
  // REQUIRES: every position has a page.
  Status plan(CudaStream& stream, const KvBatch& batch);

  // The same for a batch of which every request computes one row, so that the runs queue what
  // depends on `bucket_rows` alone: a CudaGraph that was recorded of such runs computes any later
  // batch that was planned with the same bucket. Rows of `out` beyond the batch's are left alone.
  // kInvalidArgument too if the batch has more rows than that, or a request has several.
  // REQUIRES: as plan; bucket_rows <= limits.rows_max.
  Status plan_decode(CudaStream& stream, const KvBatch& batch, std::int64_t bucket_rows);

  // out = softmax(scale × q kᵀ, capped, keys at positions <= the query's and in its window) v.
  // `layer` has addresses of the device. q: [rows, query_heads, head_dim], out: [rows, query_heads,
  // value_dim], of the device, dense, of row_dtype, aligned to 16 bytes. kInvalidArgument if the
  // layer is not of the shape, page size or dtype that was agreed. May be recorded.
  // REQUIRES: plan or plan_decode was called, on this stream.
  Status run(CudaStream& stream, const KvLayerView& layer, const void* q, void* out);

  const AttentionShape& shape() const noexcept { return shape_; }
  // Whether rows of long chunks are computed by products of warpgroups.
  bool has_hopper_chunks() const noexcept;
  // The same of latent rows of which an item has more than 16 pairs.
  bool has_hopper_latent() const noexcept;
  // Of the batch that was planned last: the items of a list, each computed for every KV head, and
  // how many teams take them in turn.
  std::span<const AttentionItem> items(AttentionList list) const { return plan_.items(list); }
  std::int64_t teams(AttentionList list) const { return launches_.teams[list]; }

 private:
  // What runs queue.
  struct Launches {
    std::int64_t teams[kAttentionLists] = {};
    std::int64_t merged_rows = 0;
    std::int64_t waves = 0;  // of choices
  };

  Status allocate(CudaDevice& device, CudaStream& stream, const CudaPlanLimits& limits);
  Status upload(CudaStream& stream, const KvBatch& batch);
  std::int64_t resident_teams(AttentionList list) const;
  Status check_layer(const KvLayerView& layer) const;
  Status launch(CudaStream& stream, const AttentionParams& params, AttentionList list) const;
  Status launch_waves(CudaStream& stream, AttentionParams params, const KvLayerView& layer) const;
  AttentionParams params_of(const KvLayerView& layer, const void* q, void* out) const;

  AttentionShape shape_;
  CudaAttentionOptions options_;
  CudaTraits traits_;
  CudaAttentionPlan plan_;
  PinnedTurns images_;
  CudaMemory image_;  // of the device: what kernels read
  CudaMemory sum_values_;
  CudaMemory sum_weights_;
  CudaMemory chunk_sums_;
  std::int64_t wave_rows_ = 0;  // 0: nothing is ever sparse
  CudaTokenChoice choice_;
  Launches launches_;  // of the batch that was planned last
};

}  // namespace stemma
