// RowPool: what pools in host memory have alike: K and V as two row arrays, one behind the other,
// or latent rows as one that is both.
//
// Thread:     as KvPool: disjoint slots may be stored at once.
// Memory:     one Buffer of shape.total_bytes(), its pages touched in create; scales of scaled
// dtypes
//             lie behind the codes and begin a cache line, for which there is one more.
// Cost:       store is one pass over the rows of each array.
// Not here:   what a kind adds (mha_pool, mla_pool, double_sparse_pool), free pages
//             (PageAllocator), reading (attention/).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "device/buffer.h"
#include "pool/row_array.h"
#include "stemma/kv_pool.h"
#include "stemma/result.h"

namespace stemma {

class RowPool : public KvPool {
 public:
  const KvShape& shape() const override { return shape_; }
  KvLayout layout() const override { return layout_; }
  DeviceKind device() const override { return DeviceKind::kCpu; }

  Status store(std::int64_t layer, std::span<const std::int64_t> slots, const KvRows& k,
               const KvRows& v) override;
  Status store(std::int64_t layer, std::span<const std::int32_t> slots, const KvRows& k,
               const KvRows& v) override;

  KvLayerView layer_view(std::int64_t layer) const override;
  LayerPieces<const std::byte> layer_pieces(std::int64_t layer) const override;
  LayerPieces<std::byte> layer_pieces(std::int64_t layer) override;
  TensorView logical_view() override;

 protected:
  // Zeroed memory for a pool of `shape`. kInvalidArgument as validate(shape); kOutOfMemory.
  // REQUIRES: the shape is of that kind.
  static Result<Buffer> take_memory(const KvShape& shape, KvKind kind, ThreadPool& threads);
  RowPool(const KvShape& shape, KvLayout layout, Buffer buffer);

  const RowArray& keys() const noexcept { return keys_; }
  // Where the memory begins that K and V leave over.
  std::byte* behind_values() const noexcept;

 private:
  bool is_latent() const noexcept { return shape_.kind == KvKind::kMla; }
  RowArray rows_of_side(std::int64_t side);
  template <typename Slot>
  Status store_checked(std::int64_t layer, std::span<const Slot> slots, const KvRows& k,
                       const KvRows& v);
  template <typename Byte>
  LayerPieces<Byte> pieces_of(std::int64_t layer) const;

  KvShape shape_;
  KvLayout layout_;
  Buffer buffer_;
  RowArray keys_;
  RowArray values_;  // right behind the keys; of latent rows the keys themselves
};

}  // namespace stemma
