#include "stemma/options.h"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace stemma {
namespace {

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

}  // namespace

Status validate(const KvCacheOptions& options) {
  constexpr std::int64_t kIdsMax = std::int64_t{1} << 31;
  STEMMA_RETURN_IF_ERROR(at_least("page_size", options.page_size, 1));
  STEMMA_RETURN_IF_ERROR(at_least("pages", options.pages, 1));
  STEMMA_RETURN_IF_ERROR(at_most("pages", options.pages, kIdsMax - 1));
  STEMMA_RETURN_IF_ERROR(at_least("requests_max", options.requests_max, 1));
  STEMMA_RETURN_IF_ERROR(at_most("requests_max", options.requests_max, 1 << 16));
  STEMMA_RETURN_IF_ERROR(at_least("context_tokens_max", options.context_tokens_max, 2));
  return at_most("context_tokens_max", options.context_tokens_max, kIdsMax - 1);
}

Status validate(const EngineOptions& options) {
  STEMMA_RETURN_IF_ERROR(validate(options.kv));
  const SchedulerOptions& scheduler = options.scheduler;
  STEMMA_RETURN_IF_ERROR(
      at_least("step_tokens_max", scheduler.step_tokens_max, options.kv.requests_max));
  STEMMA_RETURN_IF_ERROR(at_most("step_tokens_max", scheduler.step_tokens_max, 1 << 24));
  STEMMA_RETURN_IF_ERROR(at_least("chunk_tokens_max", scheduler.chunk_tokens_max, 1));
  STEMMA_RETURN_IF_ERROR(at_least("waiting_max", scheduler.waiting_max, 1));
  STEMMA_RETURN_IF_ERROR(at_least("watermark_pages", scheduler.watermark_pages, -1));
  STEMMA_RETURN_IF_ERROR(at_least("ghost_pages_per_sample", options.ghost_pages_per_sample, 0));
  return at_least("inbox_max", options.inbox_max, 1);
}

std::string_view schedule_policy_name(SchedulePolicy policy) {
  for (const auto& [known, name] : kPolicyNames) {
    if (known == policy) {
      return name;
    }
  }
  return "unknown";
}

Result<SchedulePolicy> parse_schedule_policy(std::string_view name) {
  std::string known_names;
  for (const auto& [policy, known] : kPolicyNames) {
    if (known == name) {
      return policy;
    }
    known_names += known_names.empty() ? "" : ", ";
    known_names += known;
  }
  return Error{ErrorCode::kNotFound,
               fmt::format("schedule policy '{}' is unknown; known: {}", name, known_names)};
}

Result<std::int64_t> pages_for_bytes(std::int64_t kv_bytes, const KvShape& shape) {
  const std::int64_t pages = kv_bytes / shape.page_bytes();
  if (pages < 1) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("kv_bytes must hold at least one page of {} bytes (got {})",
                             shape.page_bytes(), kv_bytes)};
  }
  return pages;
}

}  // namespace stemma
