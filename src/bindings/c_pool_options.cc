#include "bindings/c_pool_options.h"

#include "base/thread_count.h"
#include "bindings/c_handles.h"

namespace stemma {

stemma_status read_pool(const stemma_pool_options* given, CPoolPlan& plan) {
  stemma_pool_options options = kCPoolDefaults;
  if (const stemma_status status = read_struct(given, options); status != STEMMA_OK) return status;
  if (!read_enum(options.dtype, DType::kInt8, plan.shape.dtype)) return refuse("dtype is unknown");
  if (!read_enum(options.kind, KvKind::kMla, plan.shape.kind)) return refuse("kind is unknown");
  if (!read_enum(options.layout, KvLayout::kPageFirst, plan.layout)) {
    return refuse("layout is unknown");
  }
  if (const Status status = check_threads(options.threads); !status.ok()) {
    return fail(status.error());
  }
  if (options.layers < 1) return refuse("layers must be at least 1");
  plan.threads = options.threads;
  plan.shape.layers = options.layers;
  plan.shape.pages = options.pages;
  plan.shape.page_size = options.page_size;
  plan.shape.heads = options.heads;
  plan.shape.head_dim = options.head_dim;
  plan.shape.latent_dim = options.latent_dim;
  return STEMMA_OK;
}

}  // namespace stemma
