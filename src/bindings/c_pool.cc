// Pools and digests of the C ABI.
#include <limits>
#include <span>
#include <utility>

#include "bindings/c_handles.h"
#include "bindings/c_pool_options.h"
#include "stemma/embed.h"
#include "stemma/options.h"

void stemma_pool_options_init(stemma_pool_options* options, size_t struct_size) {
  stemma::write_struct(stemma::kCPoolDefaults, options, struct_size);
}

stemma_status stemma_pages_for_bytes(const stemma_pool_options* options, int64_t bytes,
                                     int64_t* pages) {
  return stemma::guarded([&] {
    stemma::CPoolPlan plan;
    if (const auto status = stemma::read_pool(options, plan); status != STEMMA_OK) return status;
    if (pages == nullptr) return stemma::refuse("pages is NULL");
    plan.shape.pages = 1;
    if (const auto valid = stemma::validate(plan.shape); !valid.ok()) {
      return stemma::fail(valid.error());
    }
    const auto fit = stemma::pages_for_bytes(bytes, plan.shape);
    if (!fit.ok()) return stemma::fail(fit.error());
    *pages = *fit;
    return stemma_status{STEMMA_OK};
  });
}

stemma_status stemma_pool_open(const stemma_pool_options* options, stemma_pool** pool) {
  return stemma::guarded([&] {
    stemma::CPoolPlan plan;
    if (const auto status = stemma::read_pool(options, plan); status != STEMMA_OK) return status;
    if (pool == nullptr) return stemma::refuse("pool is NULL");
    auto opened = stemma::open_kv_pool(plan.shape, plan.layout, plan.threads);
    if (!opened.ok()) return stemma::fail(opened.error());
    *pool = std::make_unique<stemma_pool>(stemma_pool{std::move(opened).value()}).release();
    return stemma_status{STEMMA_OK};
  });
}

void stemma_pool_close(stemma_pool* pool) {
  const std::unique_ptr<stemma_pool> closed(pool);
}

stemma_status stemma_pool_layer(stemma_pool* pool, int64_t layer, stemma_layer* view) {
  return stemma::guarded([&] {
    if (!stemma::has_layer(pool, layer)) return stemma::refuse("the pool has no such layer");
    const stemma::KvLayerView of = pool->pool->layer_view(layer);
    // The pool's bytes are not constant; its views are for those who read.
    return stemma::fill_struct({.struct_size = 0,
                                .k = const_cast<void*>(of.k),
                                .v = const_cast<void*>(of.v),
                                .k_scales = const_cast<float*>(of.k_scales),
                                .v_scales = const_cast<float*>(of.v_scales),
                                .pages = of.pages,
                                .page_size = of.page_size,
                                .heads = of.heads,
                                .head_dim = of.head_dim,
                                .value_dim = of.value_dim,
                                .page_stride = of.page_stride,
                                .token_stride = of.token_stride,
                                .head_stride = of.head_stride,
                                .scale_page_stride = of.scale_page_stride,
                                .scale_head_stride = of.scale_head_stride},
                               view);
  });
}

stemma_status stemma_pool_store(stemma_pool* pool, int64_t layer, const int64_t* slots, size_t rows,
                                const void* k, const void* v, int32_t dtype, int64_t row_stride) {
  return stemma::guarded([&] {
    if (!stemma::has_layer(pool, layer)) return stemma::refuse("the pool has no such layer");
    if (rows == 0) return stemma_status{STEMMA_OK};
    const stemma::KvShape& shape = pool->pool->shape();
    const bool latent = shape.kind == stemma::KvKind::kMla;
    if (!stemma::is_array<std::int64_t>(slots, rows) || k == nullptr || (v == nullptr) != latent) {
      return stemma::refuse("slots, k and v are given, v not for latent rows");
    }
    if (!stemma::are_rows(rows, row_stride)) return stemma::refuse("rows too far apart");
    stemma::KvRows k_rows = {.elements = k,
                             .rows = static_cast<std::int64_t>(rows),
                             .heads = shape.heads,
                             .head_dim = shape.head_dim,
                             .row_stride = row_stride};
    if (!stemma::read_enum(dtype, stemma::DType::kInt8, k_rows.dtype)) {
      return stemma::refuse("dtype is unknown");
    }
    stemma::KvRows v_rows;
    if (!latent) v_rows = k_rows;
    v_rows.elements = v;
    const auto stored = pool->pool->store(layer, std::span(slots, rows), k_rows, v_rows);
    return stored.ok() ? stemma_status{STEMMA_OK} : stemma::fail(stored.error());
  });
}

stemma_status stemma_digest(const stemma_field* fields, size_t count, uint8_t digest[32]) {
  return stemma::guarded([&] {
    if (!stemma::is_array<stemma_field>(fields, count) || digest == nullptr) {
      return stemma::refuse("fields and digest are given");
    }
    std::vector<stemma::NamespaceField> named;
    for (const stemma_field& field : std::span(fields, count)) {
      if (field.name == nullptr || !stemma::is_array<std::byte>(field.value, field.value_bytes)) {
        return stemma::refuse("a field has a name and a value");
      }
      named.push_back(
          {field.name, {static_cast<const std::byte*>(field.value), field.value_bytes}});
    }
    const stemma::NamespaceDigest made = stemma::namespace_digest(named);
    std::copy(made.bytes.begin(), made.bytes.end(), digest);
    return stemma_status{STEMMA_OK};
  });
}
