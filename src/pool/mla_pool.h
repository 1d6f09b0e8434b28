// MlaPool: the latent rows of multi-head latent attention, one of head_dim elements a token and
// layer, whatever the number of query heads. Its first latent_dim elements are V as well
// (DeepSeek-V2, arXiv 2405.04434).
//
// Thread:     as KvPool: disjoint slots may be stored at once.
// Memory:     one Buffer of shape.total_bytes(), its pages touched in create.
// Cost:       store is one pass over the rows.
// Not here:   other kinds of pool, free pages (PageAllocator), reading (attention/).
#pragma once

#include <memory>
#include <span>

#include "base/thread_pool.h"
#include "device/buffer.h"
#include "pool/row_array.h"
#include "stemma/kv_pool.h"
#include "stemma/result.h"

namespace stemma {

class MlaPool final : public KvPool {
 public:
  // A zeroed pool in host memory. kInvalidArgument as validate(shape); kOutOfMemory.
  static Result<std::unique_ptr<MlaPool>> create(const KvShape& shape, KvLayout layout,
                                                 ThreadPool& threads);

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

 private:
  MlaPool(const KvShape& shape, KvLayout layout, Buffer buffer);

  template <typename Slot>
  Status store_checked(std::int64_t layer, std::span<const Slot> slots, const KvRows& k,
                       const KvRows& v);

  KvShape shape_;
  KvLayout layout_;
  Buffer buffer_;
  RowArray rows_;
};

}  // namespace stemma
