// KvPool factory: the pool of a shape's kind, chosen once at start-up from options.
//
// Thread:     any.
// Memory:     what the pool holds.
// Cost:       the pool's: mapping and touching its memory.
// Not here:   how a kind stores (mha_pool, mla_pool, double_sparse_pool), which kind a model needs
//             (model/).
#pragma once

#include <memory>
#include <string_view>

#include "base/thread_pool.h"
#include "pool/heavy_channels.h"
#include "stemma/kv_pool.h"
#include "stemma/result.h"

namespace stemma {

// As the kind's own create. `threads` only helps to touch the memory and is not kept. `channels`
// are for kDoubleSparse alone.
Result<std::unique_ptr<KvPool>> make_kv_pool(const KvShape& shape, KvLayout layout,
                                             ThreadPool& threads, HeavyChannels channels = {});

// A layout or a dtype by name; kNotFound lists the known ones.
Result<KvLayout> parse_kv_layout(std::string_view name);
Result<DType> parse_kv_dtype(std::string_view name);

}  // namespace stemma
