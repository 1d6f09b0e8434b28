#include "prefix/eviction_order.h"

#include <array>
#include <utility>

namespace stemma {

namespace {

constexpr std::array<std::pair<std::string_view, EvictionPolicy>, 11> kPolicies = {{
    {"lru", EvictionPolicy::kLru},
    {"lfu", EvictionPolicy::kLfu},
    {"fifo", EvictionPolicy::kFifo},
    {"mru", EvictionPolicy::kMru},
    {"filo", EvictionPolicy::kFilo},
    {"slru", EvictionPolicy::kSlru},
    {"priority", EvictionPolicy::kPriority},
    {"gdsf", EvictionPolicy::kGdsf},
    {"tlru", EvictionPolicy::kTlru},
    {"s3fifo", EvictionPolicy::kS3Fifo},
    {"hazard", EvictionPolicy::kHazard},
}};

}  // namespace

Result<EvictionOrder> EvictionOrder::make(std::string_view name, std::int64_t protected_hits) {
  for (const auto& [known, policy] : kPolicies) {
    if (known == name) return EvictionOrder(policy, protected_hits);
  }
  return Error{ErrorCode::kNotFound, "eviction: unknown order \"" + std::string(name) +
                                         "\" (known: " + known_names() + ")"};
}

std::string EvictionOrder::known_names() {
  std::string names;
  for (const auto& [known, policy] : kPolicies) {
    if (!names.empty()) names += ", ";
    names += known;
  }
  return names;
}

std::string_view EvictionOrder::name() const noexcept {
  for (const auto& [known, policy] : kPolicies) {
    if (policy == policy_) return known;
  }
  return "";
}

}  // namespace stemma
