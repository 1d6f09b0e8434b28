// MlaPool: the latent rows of multi-head latent attention, one of head_dim elements a token and
// layer, whatever the number of query heads. Its first latent_dim elements are V as well
// (DeepSeek-V2, arXiv 2405.04434).
//
// Thread:     as KvPool: disjoint slots may be stored at once.
// Memory:     as RowPool.
// Cost:       store is one pass over the rows.
// Not here:   what all pools have alike (row_pool), other kinds, reading (attention/).
#pragma once

#include <memory>

#include "pool/row_pool.h"

namespace stemma {

class MlaPool final : public RowPool {
 public:
  // A zeroed pool in host memory. kInvalidArgument as validate(shape); kOutOfMemory.
  static Result<std::unique_ptr<MlaPool>> create(const KvShape& shape, KvLayout layout,
                                                 ThreadPool& threads);

 private:
  using RowPool::RowPool;
};

}  // namespace stemma
