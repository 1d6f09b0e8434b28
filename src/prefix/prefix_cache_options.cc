#include "prefix/prefix_cache_options.h"

#include "prefix/eviction_order.h"
#include "prefix/hazard_policy.h"

namespace stemma {

Status check_options(const PrefixCacheOptions& options) {
  constexpr std::int64_t kPagesMax = std::int64_t{1} << 30;
  if (options.page_size < 1 || options.page_size > 1 << 20) {
    return Error{ErrorCode::kInvalidArgument, std::string("page_size: must be 1 to 1048576 (got ") +
                                                  std::to_string(options.page_size) + ")"};
  }
  if (options.namespaces_max < 1 || options.namespaces_max > 1 << 20) {
    return Error{ErrorCode::kInvalidArgument,
                 std::string("namespaces_max: must be 1 to 1048576 (got ") +
                     std::to_string(options.namespaces_max) + ")"};
  }
  if (options.allocator.total_pages() >= kPagesMax) {
    return Error{ErrorCode::kTooLarge,
                 std::string("a prefix cache holds fewer than 2^30 pages (got ") +
                     std::to_string(options.allocator.total_pages()) + ")"};
  }
  if (options.eviction == "hazard" && options.allocator.total_pages() >= HazardPolicy::kPagesMax) {
    return Error{ErrorCode::kTooLarge,
                 "eviction: hazard holds fewer than " + std::to_string(HazardPolicy::kPagesMax) +
                     " pages (got " + std::to_string(options.allocator.total_pages()) + ")"};
  }
  if (options.lookup_hash_bits < 1 || options.lookup_hash_bits > 32) {
    return Error{ErrorCode::kInvalidArgument,
                 std::string("lookup_hash_bits: must be 1 to 32 (got ") +
                     std::to_string(options.lookup_hash_bits) + ")"};
  }
  if (options.events_pages_max < 0 || options.events_pages_max > 1 << 24) {
    return Error{ErrorCode::kInvalidArgument,
                 std::string("events_pages_max: must be 0 to 16777216 (got ") +
                     std::to_string(options.events_pages_max) + ")"};
  }
  if (options.creditors < 0 || options.creditors > 256) {
    return Error{ErrorCode::kInvalidArgument, std::string("creditors: must be 0 to 256 (got ") +
                                                  std::to_string(options.creditors) + ")"};
  }
  const auto order = EvictionOrder::make(options.eviction, options.slru_protected_hits);
  if (!order.ok()) return order.error();
  return {};
}

}  // namespace stemma
