#include "engine/served_ranks.h"

#include <fmt/format.h>

#include <string_view>

#include "prefix/namespace_digest.h"

namespace stemma {

namespace {

Status compare(const RankTerms& own, const RankTerms& first) {
  if (own.digest != first.digest) {
    return Error{ErrorCode::kInvalidArgument,
                 "its weights, flags or vector instructions are not those of rank 0"};
  }
  if (own.adapters != first.adapters) {
    return Error{ErrorCode::kInvalidArgument,
                 "its adapters are not those of rank 0: other names, files or another order"};
  }
  if (own.pages != first.pages || own.windowed_pages != first.windowed_pages) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--kv-bytes hold {} pages and {} windowed ones, on rank 0 {} and {}",
                             own.pages, own.windowed_pages, first.pages, first.windowed_pages)};
  }
  if (own.host_pages != first.host_pages || own.host_windowed_pages != first.host_windowed_pages) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("there is host memory for {} pages and {} windowed ones, on rank 0 "
                             "for {} and {}",
                             own.host_pages, own.host_windowed_pages, first.host_pages,
                             first.host_windowed_pages)};
  }
  return {};
}

}  // namespace

RankTerms rank_terms(const RankParts& parts) {
  const EngineOptions& options = parts.options;
  NamespaceFields fields;
  for (const auto& [name, value] : parts.runner.namespace_fields()) {
    if (name != "tensor_parallel_rank") fields.add(name, std::string_view(value));
  }
  fields.add("kv_dtype", dtype_name(parts.pool.shape().dtype));
  fields.add("page_size", parts.pool.shape().page_size);
  fields.add("step_tokens_max", options.scheduler.step_tokens_max);
  fields.add("requests_max", options.kv.requests_max);
  fields.add("context_tokens_max", options.kv.context_tokens_max);
  fields.add("tier_codec", parts.tier_codec);
  RankTerms terms = {.pages = options.kv.pages, .windowed_pages = options.kv.windowed_pages};
  if (parts.tiers_or_null != nullptr) {
    const LowerTiers& tiers = *parts.tiers_or_null;
    for (const PageStore* const store : tiers.stores()) fields.add("store", store->name());
    fields.add("host_file", tiers.host_image_or_null() == nullptr ? 0 : 1);
    terms.host_pages = tiers.host_pages();
    terms.host_windowed_pages = tiers.host_windowed_pages();
  }
  terms.digest = fields.finish();
  for (const AdapterIdentity& adapter : parts.runner.adapters()->list()) {
    fields.add("adapter", std::string_view(adapter.name)).add("digest", adapter.digest);
  }
  terms.adapters = fields.finish();
  return terms;
}

Status agree_on_terms(RankGroup& ranks, const RankTerms& own) {
  RankTerms first = own;
  STEMMA_RETURN_IF_ERROR(ranks.broadcast(std::as_writable_bytes(std::span(&first, 1))));
  return agree(ranks, compare(own, first));
}

Result<NamespaceDigest> leading_namespace(RankGroup& ranks, const NamespaceDigest& own) {
  NamespaceDigest first = own;
  STEMMA_RETURN_IF_ERROR(ranks.broadcast(std::as_writable_bytes(std::span(&first, 1))));
  return first;
}

}  // namespace stemma
