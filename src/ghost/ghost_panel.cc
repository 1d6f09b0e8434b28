#include "ghost/ghost_panel.h"

#include <algorithm>
#include <utility>

namespace stemma {

namespace {

constexpr std::string_view kReference = "lru";

}  // namespace

Result<std::unique_ptr<GhostPanel>> GhostPanel::open(const GhostPanelOptions& options) {
  STEMMA_RETURN_IF_ERROR(GhostCurve::check(options.curve));
  auto panel = std::make_unique<GhostPanel>(options.curve);
  for (const std::int64_t capacity_pages : options.capacities) {
    if (options.policies.empty()) break;
    STEMMA_RETURN_IF_ERROR(panel->add_lane(options, std::string(kReference), capacity_pages));
    for (const std::string& policy : options.policies) {
      if (policy == kReference) continue;
      STEMMA_RETURN_IF_ERROR(panel->add_lane(options, policy, capacity_pages));
    }
  }
  return panel;
}

Status GhostPanel::add_lane(const GhostPanelOptions& options, const std::string& policy,
                            std::int64_t capacity_pages) {
  Lane lane{.policy = policy, .capacity_pages = capacity_pages, .ghost = nullptr};
  STEMMA_ASSIGN_OR_RETURN(lane.ghost,
                          GhostCache::open({.policy = policy,
                                            .capacity_pages = capacity_pages,
                                            .pages_per_sample = options.curve.pages_per_sample,
                                            .seed = options.curve.seed,
                                            .request_pages_max = options.curve.request_pages_max}));
  lanes_.push_back(std::move(lane));
  return {};
}

void GhostPanel::feed(const GhostRequest& request) {
  curve_.feed(request);
  for (const Lane& lane : lanes_) lane.ghost->feed(request);
}

void GhostPanel::look_up(std::span<const std::int64_t> page_hashes) {
  curve_.look_up(page_hashes);
  for (const Lane& lane : lanes_) lane.ghost->look_up(page_hashes);
}

void GhostPanel::insert(std::span<const std::int64_t> page_hashes) {
  curve_.insert(page_hashes);
  for (const Lane& lane : lanes_) lane.ghost->insert(page_hashes);
}

void GhostPanel::fade(double share) {
  curve_.fade(share);
  for (const Lane& lane : lanes_) lane.ghost->fade(share);
}

std::optional<double> GhostPanel::try_hit_rate(std::string_view policy,
                                               std::int64_t capacity_pages) const {
  const GhostCache* ghost = find_or_null(policy, capacity_pages);
  // The curve has room for outputs that are resident already: a cache computes them in other pages.
  if (ghost != nullptr && watches_every_page_) return ghost->hit_rate();
  const double of_lru = curve_.hit_rate(capacity_pages);
  if (policy == kReference) return of_lru;
  const GhostCache* reference = find_or_null(kReference, capacity_pages);
  if (ghost == nullptr || reference == nullptr) return std::nullopt;
  if (curve_.lookup_pages() <= 0) return 0.0;
  // Over all look-ups and not those of the sample, in which a page that every request shares would
  // weigh twenty times too much, or not at all.
  const double more = (ghost->hit_pages() - reference->hit_pages()) / curve_.lookup_pages();
  return std::clamp(of_lru + more, 0.0, 1.0);
}

const GhostCache* GhostPanel::find_or_null(std::string_view policy,
                                           std::int64_t capacity_pages) const {
  const auto found = std::find_if(lanes_.begin(), lanes_.end(), [&](const Lane& lane) {
    return lane.policy == policy && lane.capacity_pages == capacity_pages;
  });
  return found == lanes_.end() ? nullptr : found->ghost.get();
}

}  // namespace stemma
