// MhaPool: keys and values of multi-head attention (MHA, GQA, MQA), one row of heads × head_dim a
// token and layer.
//
// Thread:     as KvPool: disjoint slots may be stored at once.
// Memory:     as RowPool.
// Cost:       store is one pass over the rows of K and one over those of V.
// Not here:   what all pools have alike (row_pool), other kinds, reading (attention/).
#pragma once

#include <memory>

#include "pool/row_pool.h"

namespace stemma {

class MhaPool final : public RowPool {
 public:
  // A zeroed pool in host memory. kInvalidArgument as validate(shape); kOutOfMemory.
  static Result<std::unique_ptr<MhaPool>> create(const KvShape& shape, KvLayout layout,
                                                 ThreadPool& threads);

 private:
  using RowPool::RowPool;
};

}  // namespace stemma
