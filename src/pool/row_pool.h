// RowPool: what pools in host memory have alike: their memory and the arrays in it.
//
// Thread:     as KvPool: disjoint slots may be stored at once.
// Memory:     one Buffer of PoolArrays::total_bytes, its pages touched in create.
// Cost:       store is one pass over the rows of each array.
// Not here:   where arrays lie (pool_arrays), what a kind adds (mha_pool, mla_pool,
//             double_sparse_pool), free pages (PageAllocator), reading (attention/).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/thread_pool.h"
#include "device/buffer.h"
#include "pool/pool_arrays.h"
#include "stemma/kv_pool.h"
#include "stemma/result.h"

namespace stemma {

class RowPool : public KvPool {
 public:
  const KvShape& shape() const override { return arrays_.shape(); }
  KvLayout layout() const override { return arrays_.layout(); }
  DeviceKind device() const override { return DeviceKind::kCpu; }

  Status store(std::int64_t layer, std::span<const std::int64_t> slots, const KvRows& k,
               const KvRows& v) override;
  Status store(std::int64_t layer, std::span<const std::int32_t> slots, const KvRows& k,
               const KvRows& v) override;

  KvLayerView layer_view(std::int64_t layer) const override { return arrays_.layer_view(layer); }
  LayerPieces<const std::byte> layer_pieces(std::int64_t layer) const override {
    return arrays_.layer_pieces<const std::byte>(layer);
  }
  LayerPieces<std::byte> layer_pieces(std::int64_t layer) override {
    return arrays_.layer_pieces<std::byte>(layer);
  }
  TensorView logical_view() override { return arrays_.logical_view(); }

  Status copy_page(PageId from, PageId to) override;
  Result<std::optional<std::int64_t>> first_different_layer(PageId a, PageId b) override;
  Result<std::unique_ptr<PageMover>> make_mover(HostPool& host) override;

 protected:
  // Zeroed memory for a pool of `shape`. kInvalidArgument as validate(shape); kOutOfMemory.
  // REQUIRES: the shape is of that kind.
  static Result<Buffer> take_memory(const KvShape& shape, KvKind kind, ThreadPool& threads);
  RowPool(const KvShape& shape, KvLayout layout, Buffer buffer);

  const PoolArrays& arrays() const noexcept { return arrays_; }

 private:
  template <typename Slot>
  Status store_checked(std::int64_t layer, std::span<const Slot> slots, const KvRows& k,
                       const KvRows& v);

  Buffer buffer_;
  PoolArrays arrays_;
};

}  // namespace stemma
