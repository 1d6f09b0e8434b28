#include "pool/kv_pool_factory.h"

#include <fmt/format.h>

#include <utility>

#include "pool/double_sparse_pool.h"
#include "pool/mha_pool.h"
#include "pool/mla_pool.h"

namespace stemma {

namespace {

// A pool of one kind as any pool.
template <typename Pool>
Result<std::unique_ptr<KvPool>> as_pool(Result<std::unique_ptr<Pool>> pool) {
  if (!pool.ok()) return std::move(pool).error();
  return std::unique_ptr<KvPool>(std::move(pool).value());
}

}  // namespace

Result<std::unique_ptr<KvPool>> make_kv_pool(const KvShape& shape, KvLayout layout,
                                             ThreadPool& threads, HeavyChannels channels) {
  switch (shape.kind) {
    case KvKind::kMha:
      return as_pool(MhaPool::create(shape, layout, threads));
    case KvKind::kMla:
      return as_pool(MlaPool::create(shape, layout, threads));
    case KvKind::kDoubleSparse:
      return as_pool(DoubleSparsePool::create(shape, layout, std::move(channels), threads));
  }
  return Error{ErrorCode::kInvalidArgument, "KV shape: of no kind", 0};
}

Result<KvLayout> parse_kv_layout(std::string_view name) {
  if (const auto layout = try_parse_kv_layout(name)) return *layout;
  return Error{ErrorCode::kNotFound,
               fmt::format("unknown KV layout '{}' (known: layer_first, page_first)", name), 0};
}

Result<DType> parse_kv_dtype(std::string_view name) {
  if (const auto dtype = try_parse_dtype(name)) return *dtype;
  return Error{
      ErrorCode::kNotFound,
      fmt::format("unknown KV dtype '{}' (known: f32, f16, bf16, fp8_e4m3, fp8_e5m2, int8)", name),
      0};
}

}  // namespace stemma
