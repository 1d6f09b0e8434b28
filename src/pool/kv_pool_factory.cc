#include "pool/kv_pool_factory.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "pool/mha_pool.h"

namespace stemma {

namespace {

constexpr std::array<std::string_view, 1> kKinds = {"mha"};

}  // namespace

std::span<const std::string_view> kv_pool_kinds() {
  return kKinds;
}

Result<std::unique_ptr<KvPool>> make_kv_pool(std::string_view kind, const KvShape& shape,
                                             KvLayout layout, ThreadPool& threads) {
  if (kind == "mha") {
    STEMMA_ASSIGN_OR_RETURN(std::unique_ptr<KvPool> pool, MhaPool::create(shape, layout, threads));
    return pool;
  }
  return Error{ErrorCode::kNotFound,
               fmt::format("unknown KV pool kind '{}' (known: {})", kind, fmt::join(kKinds, ", ")),
               0};
}

Result<KvLayout> parse_kv_layout(std::string_view name) {
  if (const auto layout = try_parse_kv_layout(name)) return *layout;
  return Error{ErrorCode::kNotFound,
               fmt::format("unknown KV layout '{}' (known: layer_first, page_first)", name), 0};
}

Result<DType> parse_kv_dtype(std::string_view name) {
  if (const auto dtype = try_parse_dtype(name)) return *dtype;
  return Error{ErrorCode::kNotFound,
               fmt::format("unknown KV dtype '{}' (known: f32, f16, bf16)", name), 0};
}

}  // namespace stemma
