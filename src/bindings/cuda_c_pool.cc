// Pools on a GPU of the C ABI (stemma/c_cuda.h).
#include <utility>

#include "bindings/c_handles.h"
#include "bindings/c_pool_options.h"
#include "stemma/c_cuda.h"
#include "stemma/cuda_pool.h"

namespace stemma {

namespace {

constexpr stemma_cuda_rows kNoRows = {.struct_size = sizeof(stemma_cuda_rows),
                                      .slots = nullptr,
                                      .k = nullptr,
                                      .v = nullptr,
                                      .rows = 0,
                                      .row_stride = 0,
                                      .slot_bytes = 0,
                                      .dtype = STEMMA_F32};

// nullptr: it is on no GPU.
CudaKvPool* on_gpu_or_null(const stemma_pool* pool) {
  const bool is = pool != nullptr && pool->pool->device() == DeviceKind::kCuda;
  return is ? static_cast<CudaKvPool*>(pool->pool.get()) : nullptr;
}

stemma_status refuse_pool() {
  return refuse("the pool is none of stemma_cuda_pool_open");
}

stemma_status status_of(const Status& done) {
  return done.ok() ? stemma_status{STEMMA_OK} : fail(done.error());
}

bool has_page(const KvPool& pool, std::int32_t page) {
  return page >= 0 && page < pool.shape().pages;
}

Status store(CudaKvPool& pool, std::int64_t layer, const stemma_cuda_rows& given, DType dtype,
             void* stream) {
  const KvShape& shape = pool.shape();
  const KvRows k = {.elements = given.k,
                    .dtype = dtype,
                    .device = DeviceKind::kCuda,
                    .rows = given.rows,
                    .heads = shape.heads,
                    .head_dim = shape.head_dim,
                    .row_stride = given.row_stride};
  KvRows v;
  if (given.v != nullptr) v = k;
  v.elements = given.v;
  const auto count = static_cast<std::size_t>(given.rows);
  if (given.slot_bytes == sizeof(std::int32_t)) {
    return pool.store_on(stream, layer,
                         std::span(static_cast<const std::int32_t*>(given.slots), count), k, v);
  }
  return pool.store_on(stream, layer,
                       std::span(static_cast<const std::int64_t*>(given.slots), count), k, v);
}

}  // namespace

}  // namespace stemma

int32_t stemma_cuda_devices(void) {
  return stemma::cuda_devices();
}

stemma_status stemma_cuda_pool_open(const stemma_pool_options* options, int32_t device,
                                    stemma_pool** pool) {
  return stemma::guarded([&] {
    stemma::CPoolPlan plan;
    if (const auto status = stemma::read_pool(options, plan); status != STEMMA_OK) return status;
    if (pool == nullptr) return stemma::refuse("pool is NULL");
    auto opened = stemma::open_cuda_pool(plan.shape, plan.layout, device);
    if (!opened.ok()) return stemma::fail(opened.error());
    *pool = std::make_unique<stemma_pool>(stemma_pool{std::move(opened).value()}).release();
    return stemma_status{STEMMA_OK};
  });
}

stemma_status stemma_cuda_pool_store(stemma_pool* pool, int64_t layer, const stemma_cuda_rows* rows,
                                     void* stream) {
  return stemma::guarded([&] {
    stemma::CudaKvPool* const own = stemma::on_gpu_or_null(pool);
    if (own == nullptr) return stemma::refuse_pool();
    stemma_cuda_rows given = stemma::kNoRows;
    if (const auto status = stemma::read_struct(rows, given); status != STEMMA_OK) return status;
    stemma::DType dtype = stemma::DType::kF32;
    if (!stemma::read_enum(given.dtype, stemma::DType::kBF16, dtype)) {
      return stemma::refuse("dtype must be f32, f16 or bf16");
    }
    if (given.slot_bytes != 4 && given.slot_bytes != 8) {
      return stemma::refuse("slot_bytes must be 4 or 8");
    }
    if (given.rows < 0) return stemma::refuse("rows must not be negative");
    if (given.rows == 0) return stemma_status{STEMMA_OK};
    const bool latent = own->shape().kind == stemma::KvKind::kMla;
    const auto count = static_cast<std::size_t>(given.rows);
    if (!stemma::is_array<std::int64_t>(given.slots, count) || given.k == nullptr ||
        (given.v == nullptr) != latent) {
      return stemma::refuse("slots, k and v are given, v not for latent rows");
    }
    if (!stemma::are_rows(count, given.row_stride)) return stemma::refuse("rows too far apart");
    return stemma::status_of(stemma::store(*own, layer, given, dtype, stream));
  });
}

stemma_status stemma_cuda_pool_copy_page(stemma_pool* pool, int32_t from, int32_t to,
                                         void* stream) {
  return stemma::guarded([&] {
    stemma::CudaKvPool* const own = stemma::on_gpu_or_null(pool);
    if (own == nullptr) return stemma::refuse_pool();
    if (!stemma::has_page(*own, from) || !stemma::has_page(*own, to)) {
      return stemma::refuse("the pool has no such page");
    }
    return stemma::status_of(own->copy_page_on(stream, stemma::PageId(from), stemma::PageId(to)));
  });
}

stemma_status stemma_cuda_pool_record_use(stemma_pool* pool, void* stream) {
  return stemma::guarded([&] {
    stemma::CudaKvPool* const own = stemma::on_gpu_or_null(pool);
    if (own == nullptr) return stemma::refuse_pool();
    return stemma::status_of(own->record_use(stream));
  });
}

int32_t stemma_cuda_wait_layer(stemma_cache* cache, int64_t layer, void* stream) {
  return stemma::guarded([&]() -> stemma_status {
    if (cache == nullptr) return stemma::refuse("cache is NULL");
    stemma::LayerGate* const arriving = cache->kv->arriving_or_null();
    if (arriving == nullptr) return 1;
    if (stemma::on_gpu_or_null(cache->pool_or_null) == nullptr) return stemma::refuse_pool();
    if (!stemma::has_layer(cache->pool_or_null, layer)) {
      return stemma::refuse("the pool has no such layer");
    }
    return stemma::wait_on_layer(*arriving, stream, layer) ? 1 : 0;
  });
}
