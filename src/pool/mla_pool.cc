#include "pool/mla_pool.h"

#include <utility>

namespace stemma {

Result<std::unique_ptr<MlaPool>> MlaPool::create(const KvShape& shape, KvLayout layout,
                                                 ThreadPool& threads) {
  STEMMA_ASSIGN_OR_RETURN(Buffer buffer, take_memory(shape, KvKind::kMla, threads));
  return std::unique_ptr<MlaPool>(new MlaPool(shape, layout, std::move(buffer)));
}

}  // namespace stemma
