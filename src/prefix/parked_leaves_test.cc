// Parked leaves against plain lists: each tenant's in the order in which they came, whoever was
// held in between and came back; which tenant is the fullest (its audit looks at each).
#include "prefix/parked_leaves.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "base/prng.h"

namespace stemma {
namespace {

constexpr std::int32_t kNodes = 30;
constexpr std::int32_t kTenants = 3;

// What is known of a leaf that was parked.
struct Known {
  TenantId tenant;
  std::int64_t turn = 0;
  std::int64_t last_use = 0;
  bool parked = false;
};

NodeSlot first_of(const std::map<std::int32_t, Known>& leaves, TenantId tenant) {
  NodeSlot first;
  for (const auto& [slot, leaf] : leaves) {
    if (!leaf.parked || leaf.tenant != tenant) continue;
    if (!first.valid() || leaf.turn < leaves.at(first.value()).turn) first = NodeSlot(slot);
  }
  return first;
}

TEST(ParkedLeaves, KeepTheOrderInWhichTheyCame) {
  constexpr std::uint64_t kSeed = 3;
  SCOPED_TRACE(kSeed);
  TenantQuotas quotas(kNodes);
  ParkedLeaves parked(kNodes, quotas);
  for (std::uint8_t tenant = 0; tenant < kTenants; ++tenant) {
    quotas.set({{tenant}}, 3 * tenant);
    quotas.name_root(NodeSlot(tenant), {{tenant}});
    parked.add_queue();
  }
  std::map<std::int32_t, Known> known;
  Prng prng(kSeed);
  std::int64_t returned = 0;
  for (std::int64_t now = 1; now < 50'000; ++now) {
    const auto value = static_cast<std::int32_t>(prng.below(kNodes));
    const NodeSlot slot(value);
    Known& leaf = known[value];
    if (leaf.parked) {
      parked.remove(slot);
      leaf.parked = false;
      if (prng.below(4) == 0) {
        parked.forget(slot);
        leaf = {};
      }
    } else if (prng.below(3) == 0) {
      const std::int64_t use = prng.below(2) == 0 ? leaf.last_use : now;  // or it was used
      leaf.parked = leaf.turn > 0 && use == leaf.last_use;
      ASSERT_EQ(parked.try_return(slot, use), leaf.parked);
      returned += leaf.parked ? 1 : 0;
    } else {
      leaf = {TenantId(static_cast<std::int32_t>(prng.below(kTenants))), now, now, true};
      parked.park(slot, leaf.tenant, now);
    }
    const NodeSlot root(static_cast<std::int32_t>(prng.below(kTenants)));
    const std::int64_t pages = quotas.quota(quotas.tenant_of(root)).pages;
    parked.recount(quotas.count(root, prng.below(10) - pages));
    ASSERT_EQ(parked.contains(slot), leaf.parked);
    NodeSlot oldest;
    for (const TenantId tenant : id_range(TenantId(0), kTenants)) {
      const NodeSlot first = first_of(known, tenant);
      ASSERT_EQ(parked.first(tenant), first) << "operation " << now;
      if (!first.valid()) continue;
      if (!oldest.valid() || parked.turn(first) < parked.turn(oldest)) oldest = first;
    }
    ASSERT_EQ(parked.oldest(), oldest) << "operation " << now;
    ASSERT_EQ(parked.audit(), std::nullopt) << "operation " << now;
  }
  EXPECT_GT(returned, 1000);
}

TEST(ParkedLeaves, OfTwoTenantsThatAreAsFullTheFirstIsTakenForTheFullest) {
  TenantQuotas quotas(kNodes);
  ParkedLeaves parked(kNodes, quotas);
  for (std::uint8_t tenant = 0; tenant < 2; ++tenant) {
    quotas.set({{tenant}}, 2 + 2 * tenant);
    quotas.name_root(NodeSlot(tenant), {{tenant}});
    parked.add_queue();
    quotas.count(NodeSlot(tenant), 2 + 2 * tenant);
  }
  parked.park(NodeSlot(10), TenantId(1), 1);
  parked.park(NodeSlot(11), TenantId(0), 2);
  EXPECT_EQ(parked.fullest(), TenantId(0));
}

}  // namespace
}  // namespace stemma
