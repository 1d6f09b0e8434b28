#include "stemma/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/math.h"

namespace stemma {
namespace {

// Tokens of a request, pages of a cache: their numbers have 32 bits.
constexpr std::int64_t kIdsMax = std::int64_t{1} << 31;

Status at_least(const char* field, std::int64_t value, std::int64_t least) {
  if (value >= least) {
    return {};
  }
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("{} must be at least {} (got {})", field, least, value)};
}

Status at_most(const char* field, std::int64_t value, std::int64_t most) {
  if (value <= most) {
    return {};
  }
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("{} must be at most {} (got {})", field, most, value)};
}

constexpr std::array<std::pair<SchedulePolicy, std::string_view>, 8> kPolicyNames = {{
    {SchedulePolicy::kFcfs, "fcfs"},
    {SchedulePolicy::kLpm, "lpm"},
    {SchedulePolicy::kDfsWeight, "dfs-weight"},
    {SchedulePolicy::kLof, "lof"},
    {SchedulePolicy::kRandom, "random"},
    {SchedulePolicy::kPriority, "priority"},
    {SchedulePolicy::kShortestUncachedFirst, "shortest-uncached-first"},
    {SchedulePolicy::kHrrn, "hrrn"},
}};

constexpr std::array<std::pair<WritePolicy, std::string_view>, 3> kWritePolicyNames = {{
    {WritePolicy::kWriteThrough, "write-through"},
    {WritePolicy::kWriteThroughSelective, "write-through-selective"},
    {WritePolicy::kWriteBack, "write-back"},
}};

template <typename Names>
std::string_view name_of(const Names& names, decltype(names[0].first) value) {
  for (const auto& [known, name] : names) {
    if (known == value) {
      return name;
    }
  }
  return "unknown";
}

template <typename Names>
auto parse_name(const Names& names, const char* what, std::string_view name)
    -> Result<std::remove_cvref_t<decltype(names[0].first)>> {
  std::string known_names;
  for (const auto& [value, known] : names) {
    if (known == name) {
      return value;
    }
    known_names += known_names.empty() ? "" : ", ";
    known_names += known;
  }
  return Error{ErrorCode::kNotFound,
               fmt::format("{} '{}' is unknown; known: {}", what, name, known_names)};
}

Status validate(const TierOptions& tiers) {
  STEMMA_RETURN_IF_ERROR(at_least("selective_uses", tiers.selective_uses, 1));
  STEMMA_RETURN_IF_ERROR(at_least("demote_ahead_pages", tiers.demote_ahead_pages, -1));
  STEMMA_RETURN_IF_ERROR(at_least("load_wait_us", tiers.load_wait_us, 0));
  STEMMA_RETURN_IF_ERROR(at_least("load_pages_max", tiers.load_pages_max, 1));
  STEMMA_RETURN_IF_ERROR(at_least("store_deadline_us", tiers.store_deadline_us, 1));
  return at_least("promotions_max", tiers.promotions_max, 1);
}

}  // namespace

Status validate(const KvCacheOptions& options) {
  STEMMA_RETURN_IF_ERROR(at_least("page_size", options.page_size, 1));
  STEMMA_RETURN_IF_ERROR(at_most("page_size", options.page_size, kIdsMax - 1));
  STEMMA_RETURN_IF_ERROR(at_least("pages", options.pages, 1));
  STEMMA_RETURN_IF_ERROR(at_most("pages", options.pages, kIdsMax / 2 - 1));
  STEMMA_RETURN_IF_ERROR(at_least("requests_max", options.requests_max, 1));
  STEMMA_RETURN_IF_ERROR(at_most("requests_max", options.requests_max, 1 << 16));
  STEMMA_RETURN_IF_ERROR(at_least("context_tokens_max", options.context_tokens_max, 2));
  STEMMA_RETURN_IF_ERROR(at_most("context_tokens_max", options.context_tokens_max, kIdsMax - 1));
  STEMMA_RETURN_IF_ERROR(at_least("namespaces_max", options.namespaces_max, 1));
  STEMMA_RETURN_IF_ERROR(at_most("namespaces_max", options.namespaces_max, 1 << 20));
  STEMMA_RETURN_IF_ERROR(at_least("events_pages_max", options.events_pages_max, 0));
  STEMMA_RETURN_IF_ERROR(at_most("events_pages_max", options.events_pages_max, 1 << 24));
  STEMMA_RETURN_IF_ERROR(at_least("evicted_marks", options.evicted_marks, 0));
  STEMMA_RETURN_IF_ERROR(at_most("evicted_marks", options.evicted_marks, 1 << 24));
  STEMMA_RETURN_IF_ERROR(at_least("window_tokens", options.window_tokens, 0));
  STEMMA_RETURN_IF_ERROR(at_most("window_tokens", options.window_tokens, kIdsMax - 1));
  const std::int64_t windowed_min =
      options.window_tokens == 0 ? 0
                                 : windowed_pages_max(options.window_tokens, options.page_size, 1);
  STEMMA_RETURN_IF_ERROR(at_least("windowed_pages", options.windowed_pages, windowed_min));
  STEMMA_RETURN_IF_ERROR(at_most("windowed_pages", options.windowed_pages,
                                 options.window_tokens == 0 ? 0 : kIdsMax - 1));
  return validate(options.tiers);
}

Status validate(const EngineOptions& options) {
  STEMMA_RETURN_IF_ERROR(validate(options.kv));
  const SchedulerOptions& scheduler = options.scheduler;
  STEMMA_RETURN_IF_ERROR(
      at_least("step_tokens_max", scheduler.step_tokens_max, options.kv.requests_max));
  STEMMA_RETURN_IF_ERROR(at_most("step_tokens_max", scheduler.step_tokens_max, 1 << 24));
  STEMMA_RETURN_IF_ERROR(at_least("step_us_max", scheduler.step_us_max, 0));
  STEMMA_RETURN_IF_ERROR(at_least("chunk_tokens_max", scheduler.chunk_tokens_max, 1));
  STEMMA_RETURN_IF_ERROR(at_least("scored_tokens_max", scheduler.scored_tokens_max, 0));
  STEMMA_RETURN_IF_ERROR(at_most("scored_tokens_max", scheduler.scored_tokens_max, 1 << 20));
  STEMMA_RETURN_IF_ERROR(at_least("waiting_max", scheduler.waiting_max, 1));
  STEMMA_RETURN_IF_ERROR(at_most("waiting_max", scheduler.waiting_max, 1 << 24));
  STEMMA_RETURN_IF_ERROR(at_least("watermark_pages", scheduler.watermark_pages, -1));
  STEMMA_RETURN_IF_ERROR(at_least("ghost_pages_per_sample", options.ghost_pages_per_sample, 0));
  if (!(options.shadow_audit_percent >= 0 && options.shadow_audit_percent <= 100)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("shadow_audit_percent must be from 0 to 100 (got {})",
                             options.shadow_audit_percent)};
  }
  STEMMA_RETURN_IF_ERROR(at_most("inbox_max", options.inbox_max, 1 << 25));
  return at_least("inbox_max", options.inbox_max, 1);
}

std::string_view write_policy_name(WritePolicy policy) {
  return name_of(kWritePolicyNames, policy);
}

Result<WritePolicy> parse_write_policy(std::string_view name) {
  return parse_name(kWritePolicyNames, "write policy", name);
}

std::string_view schedule_policy_name(SchedulePolicy policy) {
  return name_of(kPolicyNames, policy);
}

Result<SchedulePolicy> parse_schedule_policy(std::string_view name) {
  return parse_name(kPolicyNames, "schedule policy", name);
}

std::int64_t windowed_pages_max(std::int64_t window_tokens, std::int64_t page_size,
                                std::int64_t chunk_tokens) {
  // No request has more of either.
  const std::int64_t window = std::min(window_tokens, kIdsMax);
  const std::int64_t chunk = std::min(chunk_tokens, kIdsMax);
  return ceil_div(window - 1 + chunk, page_size) + 1;
}

Result<std::int64_t> pages_for_bytes(std::int64_t kv_bytes, const KvShape& shape) {
  KvShape page = shape;
  page.pages = 1;
  STEMMA_RETURN_IF_ERROR(validate(page));
  STEMMA_RETURN_IF_ERROR(at_least("layers", page.layers, 1));
  const std::int64_t pages = kv_bytes / page.page_bytes();
  if (pages < 1) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("kv_bytes must hold at least one page of {} bytes (got {})",
                             page.page_bytes(), kv_bytes)};
  }
  return pages;
}

}  // namespace stemma
