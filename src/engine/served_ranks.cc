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
  if (own.pages != first.pages || own.windowed_pages != first.windowed_pages) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--kv-bytes hold {} pages and {} windowed ones, on rank 0 {} and {}",
                             own.pages, own.windowed_pages, first.pages, first.windowed_pages)};
  }
  return {};
}

}  // namespace

RankTerms rank_terms(const LoadedRunner& runner, const KvPool& pool, const EngineOptions& options) {
  NamespaceFields fields;
  for (const auto& [name, value] : runner.namespace_fields()) {
    if (name != "tensor_parallel_rank") fields.add(name, std::string_view(value));
  }
  fields.add("kv_dtype", dtype_name(pool.shape().dtype));
  fields.add("page_size", pool.shape().page_size);
  fields.add("step_tokens_max", options.scheduler.step_tokens_max);
  fields.add("requests_max", options.kv.requests_max);
  fields.add("context_tokens_max", options.kv.context_tokens_max);
  return {options.kv.pages, options.kv.windowed_pages, fields.finish()};
}

Status agree_on_terms(RankGroup& ranks, const RankTerms& own) {
  RankTerms first = own;
  STEMMA_RETURN_IF_ERROR(ranks.broadcast(std::as_writable_bytes(std::span(&first, 1))));
  return agree(ranks, compare(own, first));
}

Status check_ranked(const ServedModelOptions& options) {
  const auto refused = [](std::string_view flag) {
    return Error{ErrorCode::kUnsupported, fmt::format("--tensor-parallel: not with {} yet", flag)};
  };
  const ServedTierOptions& tiers = options.tiers;
  if (!tiers.disk_directory.empty()) return refused("--disk");
  if (!tiers.remote_url.empty()) return refused("--remote");
  if (!tiers.host_file.empty()) return refused("--host-file");
  if (tiers.host_bytes > 0) return refused("--host-bytes");
  if (tiers.codec != "plain") return refused("--tier-codec");
  if (options.engine.shadow_audit_percent > 0) return refused("--shadow-audit");
  return {};
}

}  // namespace stemma
