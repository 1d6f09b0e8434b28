// Sizes are small, so that pages are short, texts are evicted and everything meets everything.
#include "sim/simulation_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "sim/stamp_model.h"

namespace stemma {
namespace {

constexpr std::array<std::string_view, 5> kPoolsNames = {"plain", "windowed", "all_windowed",
                                                         "latent", "sparse"};

std::string draw_eviction(Prng& prng) {
  return pick<const char*>(prng, {"lru", "lru", "lfu", "fifo", "mru", "filo", "slru", "priority",
                                  "gdsf", "tlru", "s3fifo", "hazard"});
}

KvLayout draw_layout(Prng& prng) {
  return pick(prng, {KvLayout::kLayerFirst, KvLayout::kPageFirst});
}

void draw_cache(KvCacheOptions& kv, Prng& prng) {
  kv.page_size = pick<std::int64_t>(prng, {1, 3, 4, 16});
  kv.context_tokens_max = pick<std::int64_t>(prng, {20, 40, 80, 120});
  const std::int64_t quarters = pick<std::int64_t>(prng, {3, 4, 5, 6, 8, 16});
  kv.pages = std::max<std::int64_t>(kv.context_tokens_max * quarters / 4 / kv.page_size, 1);
  kv.requests_max = pick<std::int64_t>(prng, {1, 2, 4, 6});
  kv.eviction = draw_eviction(prng);
}

void draw_tier_rules(TierOptions& tiers, Prng& prng) {
  tiers.host_eviction = draw_eviction(prng);
  tiers.write_policy = pick(prng, {WritePolicy::kWriteThrough, WritePolicy::kWriteThroughSelective,
                                   WritePolicy::kWriteBack});
  tiers.selective_uses = 1 + prng.below(3);
  tiers.demote_ahead_pages = pick<std::int64_t>(prng, {-1, 0, 1, 4, 1000});
  tiers.load_wait_us = pick<std::int64_t>(prng, {0, 200, 5'000, 50'000});
  tiers.load_by_layer = prng.below(3) > 0;
  tiers.load_pages_max = pick<std::int64_t>(prng, {1, 2, 4, 64});
  // The last is for ever, as far as any step can tell.
  tiers.store_deadline_us = pick<std::int64_t>(prng, {500, 20'000, 2'000'000, 86'400'000'000});
  tiers.promotions_max = pick<std::int64_t>(prng, {1, 2, 16});
}

void draw_scheduler(SchedulerOptions& scheduler, const KvCacheOptions& kv, Prng& prng) {
  scheduler.step_tokens_max = kv.requests_max + prng.below(60);
  scheduler.chunk_tokens_max = pick<std::int64_t>(prng, {1, 5, 16, 200});
  scheduler.waiting_max = pick<std::int64_t>(prng, {2, 8, 24});
  scheduler.watermark_pages = pick<std::int64_t>(prng, {-1, 0, 1, 3});
  scheduler.step_us_max = pick<std::int64_t>(prng, {0, 0, 1'000, 100'000});
  scheduler.policy = static_cast<SchedulePolicy>(prng.below(8));
  scheduler.priority_rule = static_cast<PriorityRule>(prng.below(3));
  scheduler.keep_for_waiting = prng.below(2) == 0;
  scheduler.publish_outputs = prng.below(4) != 0;
  scheduler.seed = prng();
}

void draw_tiers(SimulationPlan& plan, Prng& prng) {
  plan.has_tiers = plan.engine.kv.cache == "radix" && prng.below(10) != 0;
  const std::int64_t pages = plan.engine.kv.pages;
  plan.tiers.host_pages =
      std::max<std::int64_t>(pick<std::int64_t>(prng, {1, pages / 2, pages, 4 * pages}), 1);
  plan.tiers.host_layout = draw_layout(prng);
  if (prng.below(3) != 0) plan.tiers.stores.push_back(Tier::kDisk);
  if (prng.below(2) != 0) plan.tiers.stores.push_back(Tier::kRemote);
  plan.tiers.store_bytes = pick<std::int64_t>(prng, {1 << 14, 1 << 18, 1 << 30});
  plan.tiers.real_disk = prng.below(4) != 0;
  plan.tiers.disk_bytes = pick<std::int64_t>(prng, {kDiskBytesMin, 1 << 20, 8 << 20});
  plan.tiers.lanes.seed = prng();
}

// From the smallest windows and pools of windowed pages that there may be to some out of which
// nothing ever goes.
void draw_windows(SimulationPlan& plan, Prng& prng) {
  KvCacheOptions& kv = plan.engine.kv;
  kv.window_tokens = pick<std::int64_t>(prng, {1, 2, 7, 16, 33, 1'000});
  if (plan.pools == SimulatedPools::kAllWindowed) ++kv.window_tokens;  // StampModel::look_back
  const auto pages_for = [&](std::int64_t chunk_tokens) {
    return windowed_pages_max(kv.window_tokens, kv.page_size, chunk_tokens);
  };
  const std::int64_t chunk_tokens = plan.engine.scheduler.chunk_tokens_max;
  kv.windowed_pages = pick<std::int64_t>(
      prng, {pages_for(1), pages_for(1) + 1 + prng.below(4), pages_for(chunk_tokens),
             2 * pages_for(chunk_tokens), pages_for(1) + kv.pages / 2, pages_for(1) + kv.pages});
}

}  // namespace

std::string_view pools_name(SimulatedPools pools) {
  return kPoolsNames[static_cast<std::size_t>(pools)];
}

std::optional<SimulatedPools> try_parse_pools(std::string_view name) {
  const auto found = std::find(kPoolsNames.begin(), kPoolsNames.end(), name);
  if (found == kPoolsNames.end()) return std::nullopt;
  return static_cast<SimulatedPools>(found - kPoolsNames.begin());
}

std::int64_t SimulationPlan::text_tokens_max() const {
  return std::min(engine.kv.context_tokens_max, engine.kv.pages * engine.kv.page_size + 1);
}

KvShape SimulationPlan::pool_shape() const {
  KvKind kind = KvKind::kMha;
  if (pools == SimulatedPools::kLatent) kind = KvKind::kMla;
  if (pools == SimulatedPools::kSparse) kind = KvKind::kDoubleSparse;
  KvShape shape = stamp_shape(engine.kv.pages, engine.kv.page_size, kind);
  if (pools == SimulatedPools::kAllWindowed) shape.layers = 0;
  return shape;
}

// Of more layers than the other has, so that neither is taken for the other.
KvShape SimulationPlan::windowed_pool_shape() const {
  KvShape shape = stamp_shape(engine.kv.windowed_pages, engine.kv.page_size);
  ++shape.layers;
  return shape;
}

void draw_pools(SimulationPlan& plan, std::optional<SimulatedPools> wished, Prng& prng) {
  using enum SimulatedPools;
  const SimulatedPools drawn = pick(
      prng, {kPlain, kPlain, kPlain, kPlain, kWindowed, kWindowed, kAllWindowed, kLatent, kSparse});
  plan.pools = wished.value_or(drawn);
  if (plan.pools == kWindowed || plan.pools == kAllWindowed) draw_windows(plan, prng);
}

void draw_names(SimulationPlan& plan, std::uint64_t seed) {
  Prng prng(seed);
  KvCacheOptions& kv = plan.engine.kv;
  if (prng.below(2) == 0) kv.namespaces_max = 1 + prng.below(7);
  kv.events_pages_max = pick<std::int64_t>(prng, {0, 0, 4, 64, 2'000});
}

SimulationPlan draw_plan(Prng& prng) {
  SimulationPlan plan;
  plan.engine.kv.cache = prng.below(20) == 0 ? "none" : "radix";
  draw_cache(plan.engine.kv, prng);
  draw_tier_rules(plan.engine.kv.tiers, prng);
  draw_scheduler(plan.engine.scheduler, plan.engine.kv, prng);
  plan.engine.inbox_max = pick<std::int64_t>(prng, {3, 64});
  plan.engine.ghost_pages_per_sample = pick<std::int64_t>(prng, {0, 0, 0, 1});
  plan.engine.shadow_audit_percent = pick<double>(prng, {0, 0, 30, 100});
  plan.engine.sampling_seed = prng();
  plan.device_layout = draw_layout(prng);
  draw_tiers(plan, prng);
  plan.token_us = pick<std::int64_t>(prng, {0, 1, 10, 200});
  plan.step_us_max = pick<std::int64_t>(prng, {1, 100, 2'000});
  plan.phase_steps = pick<std::int64_t>(prng, {50, 200, 600});
  plan.families = 1 + prng.below(3);
  plan.conversations = 1 + prng.below(12);
  plan.namespaces = 1 + prng.below(3);
  plan.submits = pick<std::int64_t>(prng, {30, 100, 300, 800});
  plan.cancels = pick<std::int64_t>(prng, {0, 10, 50});
  plan.stops = pick<std::int64_t>(prng, {0, 10});
  plan.model_faults = pick<std::int64_t>(prng, {0, 0, 10});
  plan.wrong_audits = pick<std::int64_t>(prng, {0, 20, 200});
  plan.host_flips = pick<std::int64_t>(prng, {0, 0, 20});
  plan.restarts = pick<std::int64_t>(prng, {0, 2, 8});
  plan.power_offs = pick<std::int64_t>(prng, {0, 2, 8});
  return plan;
}

std::string to_string(const SimulationPlan& plan) {
  const KvCacheOptions& kv = plan.engine.kv;
  const TierOptions& tiers = kv.tiers;
  const SchedulerOptions& scheduler = plan.engine.scheduler;
  std::string text = fmt::format(
      "pools={} window={} windowed_pages={} cache={} page_size={} pages={} requests_max={} "
      "context={} eviction={} policy={} rule={} "
      "step_tokens={} chunk={} waiting={} watermark={} keep={} publish_outputs={} layout={} "
      "token_us={} step_us={} families={} conversations={} namespaces={} names={} events={} "
      "submits={} cancels={} "
      "stops={} model_faults={} restarts={} purges={} shares={} audit={} wrong_audits={}",
      pools_name(plan.pools), kv.window_tokens, kv.windowed_pages, kv.cache, kv.page_size, kv.pages,
      kv.requests_max, kv.context_tokens_max, kv.eviction, schedule_policy_name(scheduler.policy),
      static_cast<int>(scheduler.priority_rule), scheduler.step_tokens_max,
      scheduler.chunk_tokens_max, scheduler.waiting_max, scheduler.watermark_pages,
      scheduler.keep_for_waiting, scheduler.publish_outputs, static_cast<int>(plan.device_layout),
      plan.token_us, plan.step_us_max, plan.families, plan.conversations, plan.namespaces,
      kv.namespaces_max, kv.events_pages_max, plan.submits, plan.cancels, plan.stops,
      plan.model_faults, plan.restarts, plan.purges, plan.shares_in_4,
      plan.engine.shadow_audit_percent, plan.wrong_audits);
  if (!plan.has_tiers) return text + " tiers=none";
  text += fmt::format(
      " host_pages={} host_layout={} host_eviction={} write={} uses={} ahead={} wait_us={} "
      "by_layer={} load_pages={} deadline_us={} promotions={} store_bytes={} real_disk={} "
      "disk_bytes={} "
      "flips={} power_offs={} stores=",
      plan.tiers.host_pages, static_cast<int>(plan.tiers.host_layout), tiers.host_eviction,
      write_policy_name(tiers.write_policy), tiers.selective_uses, tiers.demote_ahead_pages,
      tiers.load_wait_us, tiers.load_by_layer, tiers.load_pages_max, tiers.store_deadline_us,
      tiers.promotions_max, plan.tiers.store_bytes, plan.tiers.real_disk, plan.tiers.disk_bytes,
      plan.host_flips, plan.power_offs);
  for (const Tier tier : plan.tiers.stores) text += std::string(tier_name(tier)) + ";";
  return text;
}

FaultyStore::Faults draw_faults(Weather weather, bool lookup_is_local, Prng& prng) {
  FaultyStore::Faults faults;
  faults.lookup_is_local = lookup_is_local;
  switch (weather) {
    case Weather::kFlaky:
      faults.read_fails = prng.below(40);
      faults.read_misses = prng.below(40);
      faults.write_fails = prng.below(40);
      faults.lookup_fails = prng.below(40);
      faults.purge_fails = 40;
      break;
    case Weather::kCorrupting:
      faults.read_flips = 1 + prng.below(60);
      faults.read_others = prng.below(40);
      break;
    case Weather::kRefusing:
      faults.write_refuses = 100;
      faults.read_fails = pick<std::int64_t>(prng, {0, 100});
      faults.lookup_fails = pick<std::int64_t>(prng, {0, 100});
      faults.purge_fails = faults.lookup_fails;
      break;
    case Weather::kCalm:
    case Weather::kHanging:
    case Weather::kSlow:
      break;
  }
  return faults;
}

// After an error of a sync the store only reads until it is opened again: such errors are rare.
SimulatedFaults draw_disk_faults(Weather weather, const SimulatedDisk& disk, Prng& prng) {
  SimulatedFaults faults;
  switch (weather) {
    case Weather::kFlaky:
      faults.error_share = prng.unit() * 0.02;
      if (prng.below(2) == 0) faults.failing = DiskVerb::kRead;
      break;
    case Weather::kCorrupting:
      faults.flip_share = prng.unit() * 0.5;
      faults.misdirected_share = prng.unit() * 0.3;
      break;
    case Weather::kRefusing:
      faults.sys_errno = ENOSPC;
      faults.failing = pick<std::optional<DiskVerb>>(
          prng, {std::nullopt, DiskVerb::kWrite, DiskVerb::kAllocate, DiskVerb::kSync});
      if (!faults.failing.has_value()) faults.space_bytes = disk.used_bytes();
      break;
    case Weather::kHanging:
      faults.hang_share = prng.unit() * 0.2;
      break;
    case Weather::kSlow:
      faults.latency_us = pick<std::int64_t>(prng, {50, 5'000});
      break;
    case Weather::kCalm:
      break;
  }
  return faults;
}

SimulatedLanes::Options draw_lanes(Weather weather, const SimulatedLanes::Options& before,
                                   Prng& prng) {
  SimulatedLanes::Options lanes = before;
  lanes.hang_percent = weather == Weather::kHanging ? 1 + prng.below(100) : 0;
  lanes.job_us_max = weather == Weather::kSlow ? pick<std::int64_t>(prng, {5'000, 100'000})
                                               : pick<std::int64_t>(prng, {0, 200, 1'000});
  return lanes;
}

}  // namespace stemma
