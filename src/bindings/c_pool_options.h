// Pool options of the C ABI, as the pools of every library of it read them.
//
// Thread:     any.
// Memory:     none.
// Cost:       none worth noting.
// Not here:   opening (c_pool, cuda_c_pool).
#pragma once

#include "stemma/c.h"
#include "stemma/kv_shape.h"

namespace stemma {

inline constexpr stemma_pool_options kCPoolDefaults = {.struct_size = sizeof(stemma_pool_options),
                                                       .layers = 0,
                                                       .pages = 0,
                                                       .page_size = 16,
                                                       .heads = 0,
                                                       .head_dim = 0,
                                                       .latent_dim = 0,
                                                       .dtype = STEMMA_BF16,
                                                       .kind = STEMMA_MHA,
                                                       .layout = STEMMA_LAYER_FIRST,
                                                       .threads = 1};

struct CPoolPlan {
  KvShape shape;
  KvLayout layout = KvLayout::kLayerFirst;
  int threads = 1;
};

// What the options ask for; STEMMA_INVALID_ARGUMENT and UNSUPPORTED as every struct of the C ABI.
stemma_status read_pool(const stemma_pool_options* given, CPoolPlan& plan);

}  // namespace stemma
