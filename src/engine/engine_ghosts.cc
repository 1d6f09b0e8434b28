#include "engine/engine_ghosts.h"

#include <algorithm>
#include <cmath>

#include "ghost/ghost_advice.h"
#include "ghost/page_hashes.h"

namespace stemma {

namespace {

constexpr std::string_view kOtherPolicy = "slru";
constexpr std::int64_t kFadeEveryUs = 60'000'000;
constexpr double kFadeShare = 0.98;

}  // namespace

Result<std::unique_ptr<EngineGhosts>> EngineGhosts::open(const EngineOptions& options,
                                                         std::int64_t page_bytes) {
  if (options.ghost_pages_per_sample == 0 || options.kv.cache == "none") {
    return std::unique_ptr<EngineGhosts>();
  }
  std::unique_ptr<EngineGhosts> ghosts(new EngineGhosts(options, page_bytes));
  GhostPanelOptions panel;
  panel.curve.capacity_pages_max = kTimesWatched * options.kv.pages;
  panel.curve.pages_per_sample = options.ghost_pages_per_sample;
  panel.curve.request_pages_max = static_cast<std::int64_t>(ghosts->hashes_.capacity());
  panel.policies = {std::string(kOtherPolicy)};
  panel.capacities = {options.kv.pages};
  STEMMA_ASSIGN_OR_RETURN(ghosts->panel_, GhostPanel::open(panel));
  return ghosts;
}

EngineGhosts::EngineGhosts(const EngineOptions& options, std::int64_t page_bytes)
    : kv_(options.kv), page_bytes_(page_bytes) {
  hashes_.reserve(static_cast<std::size_t>(kv_.context_tokens_max / kv_.page_size + 1));
}

// As the cache does it, one token of a prompt is left to be computed.
void EngineGhosts::look_up(std::int64_t space, std::span<const TokenId> prompt,
                           std::int64_t now_us) {
  fade(now_us);
  hash_pages(space, prompt.first(prompt.size() - 1), kv_.page_size, hashes_);
  panel_->look_up(hashes_);
}

void EngineGhosts::insert(std::int64_t space, std::span<const TokenId> computed) {
  hash_pages(space, computed, kv_.page_size, hashes_);
  panel_->insert(hashes_);
}

void EngineGhosts::fade(std::int64_t now_us) {
  if (faded_us_ < 0) faded_us_ = now_us;
  const std::int64_t minutes = (now_us - faded_us_) / kFadeEveryUs;
  if (minutes <= 0) return;
  faded_us_ += minutes * kFadeEveryUs;
  panel_->fade(std::pow(kFadeShare, static_cast<double>(minutes)));
}

void EngineGhosts::visit_metrics(MetricVisitor& visitor) const {
  const double lookups = panel_->curve().lookup_pages();
  const auto hits = [&](double hit_rate) {
    return static_cast<std::int64_t>(std::llround(hit_rate * lookups));
  };
  visitor.gauge("stemma_ghost_lookup_pages", std::llround(lookups));
  visitor.gauge("stemma_ghost_hit_pages_half", hits(panel_->curve().hit_rate(kv_.pages / 2)));
  visitor.gauge("stemma_ghost_hit_pages_same", hits(panel_->curve().hit_rate(kv_.pages)));
  visitor.gauge("stemma_ghost_hit_pages_double", hits(panel_->curve().hit_rate(2 * kv_.pages)));
  visitor.gauge("stemma_ghost_hit_pages_quadruple", hits(panel_->curve().hit_rate(4 * kv_.pages)));
  const std::optional<double> other = panel_->try_hit_rate(kOtherPolicy, kv_.pages);
  if (other.has_value()) visitor.gauge("stemma_ghost_hit_pages_slru", hits(*other));
}

std::vector<std::string> EngineGhosts::advice() const {
  std::vector<std::string> lines;
  const GhostCurve& curve = panel_->curve();
  if (curve.lookup_pages() == 0) return lines;
  const RoomChange now = {.tier = "device", .capacity_pages = kv_.pages, .page_bytes = page_bytes_};
  for (const RoomChange& change : advised_room_changes(now)) {
    lines.push_back(describe_room_change(curve, change));
  }
  const std::optional<double> other = panel_->try_hit_rate(kOtherPolicy, kv_.pages);
  if (kv_.eviction == "lru" && other.has_value()) {
    lines.push_back(describe_policy_change(kOtherPolicy, curve.hit_rate(kv_.pages), *other));
  }
  return lines;
}

}  // namespace stemma
