// DoubleSparsePool: keys and values as an MhaPool's, and labels: for each token and head the
// elements of K in the head's heavy channels, side by side. Attention reads all labels of a context
// to guess which tokens matter, and K and V of those alone ("Post-Training Sparse Attention with
// Double Sparsity", arXiv 2408.07092).
//
// Labels are gathered from K as it is stored, rounded, so that they cannot disagree with it; they
// belong to the page and move, are shared and are checked with it.
//
// Thread:     as KvPool: disjoint slots may be stored at once.
// Memory:     one Buffer of shape.total_bytes(), its pages touched in create: K, V, labels.
// Cost:       store is one pass over the rows of K and one over those of V, and label_channels
//             elements a head more.
// Not here:   which channels are heavy (model/calibration), reading (attention/).
#pragma once

#include <memory>
#include <span>

#include "pool/heavy_channels.h"
#include "pool/row_pool.h"

namespace stemma {

class DoubleSparsePool final : public RowPool {
 public:
  // A zeroed pool in host memory. kInvalidArgument as validate(shape) and validate_heavy_channels;
  // kOutOfMemory.
  static Result<std::unique_ptr<DoubleSparsePool>> create(const KvShape& shape, KvLayout layout,
                                                          HeavyChannels channels,
                                                          ThreadPool& threads);

  const HeavyChannels& heavy_channels() const noexcept { return channels_; }

  Status store(std::int64_t layer, std::span<const std::int64_t> slots, const KvRows& k,
               const KvRows& v) override;
  Status store(std::int64_t layer, std::span<const std::int32_t> slots, const KvRows& k,
               const KvRows& v) override;

  KvLayerView layer_view(std::int64_t layer) const override;

 private:
  DoubleSparsePool(const KvShape& shape, KvLayout layout, HeavyChannels channels, Buffer buffer);

  template <typename Slot>
  void store_labels(std::int64_t layer, std::span<const Slot> slots);
  template <typename Element>
  void gather_label(std::int64_t layer, std::int64_t slot);

  HeavyChannels channels_;
};

}  // namespace stemma
