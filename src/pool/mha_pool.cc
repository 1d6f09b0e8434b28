#include "pool/mha_pool.h"

#include <utility>

namespace stemma {

Result<std::unique_ptr<MhaPool>> MhaPool::create(const KvShape& shape, KvLayout layout,
                                                 ThreadPool& threads) {
  STEMMA_ASSIGN_OR_RETURN(Buffer buffer, take_memory(shape, KvKind::kMha, threads));
  return std::unique_ptr<MhaPool>(new MhaPool(shape, layout, std::move(buffer)));
}

}  // namespace stemma
