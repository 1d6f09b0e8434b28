#include "stemma/embed.h"

#include <utility>

#include "base/clock.h"
#include "base/or_no_thread.h"
#include "base/thread_count.h"
#include "base/thread_pool.h"
#include "pool/kv_pool_factory.h"
#include "pool/page_codec.h"
#include "prefix/namespace_digest.h"
#include "tier/tier_stack.h"

namespace stemma {

namespace {

// Pages that are packed already, or have labels, are kept as they are.
Status check_codec(PageCodec codec, const KvPool& pool) {
  const KvShape& shape = pool.shape();
  const bool may_change = !is_scaled(shape.dtype) && shape.kind != KvKind::kDoubleSparse;
  if (codec == PageCodec::kPlain || may_change) return {};
  return Error{ErrorCode::kInvalidArgument,
               "codec must be plain for pages that are packed already (dtype " +
                   std::string(dtype_name(shape.dtype)) + ")"};
}

}  // namespace

Result<std::unique_ptr<KvPool>> open_kv_pool(const KvShape& shape, KvLayout layout, int threads) {
  STEMMA_RETURN_IF_ERROR(check_threads(threads));
  if (shape.kind == KvKind::kDoubleSparse) {
    return Error{ErrorCode::kUnsupported,
                 "KV shape: double_sparse needs channels calibrated for a model"};
  }
  return or_no_thread([&]() -> Result<std::unique_ptr<KvPool>> {
    ThreadPool pool(threads);
    return make_kv_pool(shape, layout, pool);
  });
}

Result<std::unique_ptr<LowerTiers>> open_lower_tiers(const LowerTierOptions& options,
                                                     KvPool& device,
                                                     std::vector<std::unique_ptr<PageStore>> stores,
                                                     int threads, KvPool* windowed_or_null) {
  STEMMA_RETURN_IF_ERROR(check_threads(threads));
  static const MonotonicClock clock;
  const auto codec = try_parse_page_codec(options.codec);
  if (!codec.has_value()) {
    return Error{ErrorCode::kInvalidArgument,
                 "codec must be plain, int8 or int4 (got " + options.codec + ")"};
  }
  if (windowed_or_null == &device) {
    return Error{ErrorCode::kInvalidArgument, "windowed pool: it is the pool itself"};
  }
  if (windowed_or_null != nullptr &&
      windowed_or_null->shape().page_size != device.shape().page_size) {
    return Error{ErrorCode::kInvalidArgument,
                 "windowed pool: its pages have as many tokens as the pool's"};
  }
  STEMMA_RETURN_IF_ERROR(check_codec(*codec, device));
  if (windowed_or_null != nullptr) {
    STEMMA_RETURN_IF_ERROR(check_codec(*codec, *windowed_or_null));
  }
  std::unique_ptr<PurgeFile> purges;
  if (!options.purge_file.empty()) {
    STEMMA_ASSIGN_OR_RETURN(purges, PurgeFile::open(options.purge_file));
  }
  const auto open = [&]() -> Result<std::unique_ptr<TierStack>> {
    ThreadPool pool(threads);
    return TierStack::open({.host_bytes = options.host_bytes,
                            .host_layout = options.host_layout,
                            .codec = *codec,
                            .host_file = options.host_file},
                           device, std::move(stores), pool, clock, windowed_or_null);
  };
  STEMMA_ASSIGN_OR_RETURN(auto stack, or_no_thread(open));
  stack->set_purge_file(std::move(purges));
  if (options.digest.has_value()) stack->describe(*options.digest, "");
  return std::unique_ptr<LowerTiers>(std::move(stack));
}

NamespaceDigest namespace_digest(std::span<const NamespaceField> fields) {
  NamespaceFields hashed;
  for (const NamespaceField& field : fields) hashed.add(field.name, field.value);
  return hashed.finish();
}

}  // namespace stemma
