// What the simulation does to whole tenants: quotas that change, and purges, after which nothing is
// found until somebody asks again.
#include <fmt/format.h>

#include <algorithm>

#include "sim/metric_of.h"
#include "sim/simulation.h"

namespace stemma {

// Of one namespace, which is a tenant's: of any size, also of nothing.
void Simulation::change_quota() {
  NamespaceDigest digest;
  digest.bytes[0] = static_cast<std::uint8_t>(quotas_prng_.below(plan_.namespaces));
  const bool is_large = quotas_prng_.below(4) == 0;
  const std::int64_t pages_max = plan_.engine.kv.pages / (is_large ? 1 : plan_.namespaces);
  engine_->set_quota(family_of(digest), quotas_prng_.below(pages_max + 1));
  ++tally_["sim_quotas"];
}

// Of one namespace, or of all.
void Simulation::purge() {
  NamespaceDigest digest;
  digest.bytes[0] = static_cast<std::uint8_t>(purges_prng_.below(plan_.namespaces));
  std::vector<NamespaceFamily> families;
  if (purges_prng_.below(3) != 0) families.push_back(family_of(digest));
  const Result<PurgeId> id = engine_->purge(families);
  if (!id.ok()) {
    ++tally_["sim_refused_purges"];
    return;
  }
  last_purge_ = *id;
  ++tally_[asked_.empty() ? "sim_purges" : "sim_purges_of_running"];
  for (const auto& [space, text] : texts_of_) {
    if (!families.empty() && space != digest.bytes[0]) continue;
    check_not_found(space);
    purged_.insert(space);
  }
}

void Simulation::check_not_found(std::uint8_t space) {
  NamespaceDigest digest;
  digest.bytes[0] = space;
  const auto explanation = engine_->explain(digest, texts_of_[space], 0);
  if (!explanation.has_value()) return;
  const std::int64_t found =
      explanation->nearest.common_tokens + explanation->host_tokens + explanation->store_tokens;
  if (found > 0)
    fail(fmt::format("{} tokens of namespace {} are found after a purge", found, space));
}

// What a store has of a namespace that it has confirmed would be gone with another purge.
void Simulation::check_purged() {
  for (const std::uint8_t space : purged_) check_not_found(space);
  if (!last_purge_.has_value() || tiers_or_null_ == nullptr || pending_purges() > 0) return;
  const auto report = engine_->purge_report(*last_purge_);
  tally_["sim_purged_remote_pages"] += report->pages[static_cast<std::size_t>(Tier::kRemote)];
  last_purge_.reset();
  for (const std::uint8_t space : purged_) {
    NamespaceDigest digest;
    digest.bytes[0] = space;
    const NamespaceFamily family = family_of(digest);
    for (std::size_t i = 0; i < plan_.tiers.stores.size(); ++i) {
      if (plan_.tiers.stores[i] == Tier::kDisk && disk_or_null() != nullptr) continue;
      const std::int64_t left = tiers_or_null_->store(i).inner().purge({&family, 1}, 0).pages;
      if (left > 0) fail(fmt::format("a store kept {} pages that were purged", left));
    }
  }
}

std::int64_t Simulation::pending_purges() const {
  return std::max<std::int64_t>(metric_of(*engine_, "stemma_pending_purges"), 0);
}

}  // namespace stemma
