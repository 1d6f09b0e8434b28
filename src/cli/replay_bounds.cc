#include "cli/replay_bounds.h"

#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "base/check.h"

namespace stemma {

ReplayBounds::Wish ReplayBounds::wish_of(const ReplayFlags& flags) {
  if (flags.bounds == "on") return Wish::kOn;
  return flags.bounds == "off" ? Wish::kOff : Wish::kIfCheap;
}

void ReplayBounds::add(const TraceRequest& request) {
  if (wish_ == Wish::kOff) return;
  pages_ += std::ssize(request.page_hashes) + std::ssize(request.output_page_hashes);
  if (wish_ == Wish::kIfCheap && pages_ > kBoundedPagesMax) {
    future_ = TraceFuture();
    wish_ = Wish::kOff;
    dropped_ = true;
    return;
  }
  future_.add(request);
}

std::optional<ReplayBounds::HitRates> ReplayBounds::hit_rates(std::int64_t capacity_pages) {
  if (!shown()) return std::nullopt;
  const auto known = known_.find(capacity_pages);
  if (known != known_.end()) return known->second;
  HitRates rates = {};
  for (std::size_t i = 0; i < std::size(kOracleKinds); ++i) {
    rates[i] =
        Oracle(future_, kOracleKinds[i], capacity_pages + pages_below_device_).run().hit_rate();
  }
  known_.emplace(capacity_pages, rates);
  return rates;
}

void ReplayBounds::append_to(nlohmann::ordered_json& line, std::int64_t capacity_pages) {
  const auto rates = hit_rates(capacity_pages);
  for (std::size_t i = 0; rates.has_value() && i < rates->size(); ++i) {
    line["bounds"][std::string(oracle_name(kOracleKinds[i]))] = (*rates)[i];
  }
}

void ReplayBounds::warn_if_dropped(const std::string& trace) const {
  if (!dropped_) return;
  std::cerr << fmt::format(
      "stemma: {}: no bounds beside the policies: more than {} pages are looked up (--bounds on "
      "holds them all in memory)\n",
      trace, kBoundedPagesMax);
}

ReplayReport ReplayBounds::run(OracleKind kind, std::int64_t capacity_pages) const {
  STEMMA_CHECK(wish_ == Wish::kOn, "the whole trace is held");
  return Oracle(future_, kind, capacity_pages).run();
}

}  // namespace stemma
