// SimulationPlan: everything that one simulation is made of, drawn from its seed before it begins.
//
// Thread:     values.
// Memory:     a few words.
// Cost:       none.
// Not here:   what happens step by step (simulation), texts (simulated_texts).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/prng.h"
#include "sim/simulated_tiers.h"
#include "stemma/options.h"

namespace stemma {

// What the layers of the model keep of a token: K and V; the same, where some layers look back over
// a window only, or all do; latent rows; K, V and labels.
enum class SimulatedPools : std::uint8_t { kPlain, kWindowed, kAllWindowed, kLatent, kSparse };

// "plain", "windowed", "all_windowed", "latent", "sparse"
std::string_view pools_name(SimulatedPools pools);
std::optional<SimulatedPools> try_parse_pools(std::string_view name);

struct SimulationPlan {
  EngineOptions engine;
  SimulatedPools pools = SimulatedPools::kPlain;
  KvLayout device_layout = KvLayout::kLayerFirst;
  bool has_tiers = false;
  SimulatedTierOptions tiers;

  // How time passes.
  std::int64_t token_us = 0;     // computing one token
  std::int64_t step_us_max = 0;  // between two steps
  std::int64_t phase_steps = 0;  // of one kind of weather, at most

  // Texts.
  std::int64_t families = 1;  // texts of one family begin alike
  std::int64_t conversations = 1;
  std::int64_t namespaces = 1;

  // How often, in a thousand steps.
  std::int64_t submits = 0;
  std::int64_t cancels = 0;
  std::int64_t stops = 0;
  std::int64_t model_faults = 0;
  std::int64_t wrong_audits = 0;  // in a thousand audits
  std::int64_t host_flips = 0;
  std::int64_t restarts = 0;
  std::int64_t power_offs = 0;
  std::int64_t purges = 0;

  std::int64_t shares_in_4 = 0;  // requests of four that go on from what every namespace shares

  // Tokens that a request may have, prompt and output together.
  std::int64_t text_tokens_max() const;
  bool has_windows() const noexcept { return engine.kv.window_tokens > 0; }
  // Of the pools.   REQUIRES of the second: has_windows().
  KvShape pool_shape() const;
  KvShape windowed_pool_shape() const;
};

SimulationPlan draw_plan(Prng& prng);
// Four plans in nine stay plain, and three get windows, unless something is wished for.
void draw_pools(SimulationPlan& plan, std::optional<SimulatedPools> wished, Prng& prng);
// Whether names of namespaces run out, and whether changes of the cache do not fit into their log.
void draw_names(SimulationPlan& plan, std::uint64_t seed);
// One line for people.
std::string to_string(const SimulationPlan& plan);

// What the tiers below the device are like for a while.
enum class Weather : std::uint8_t { kCalm, kFlaky, kHanging, kCorrupting, kRefusing, kSlow };
inline constexpr int kWeathers = 6;

FaultyStore::Faults draw_faults(Weather weather, bool lookup_is_local, Prng& prng);
SimulatedFaults draw_disk_faults(Weather weather, const SimulatedDisk& disk, Prng& prng);
SimulatedLanes::Options draw_lanes(Weather weather, const SimulatedLanes::Options& before,
                                   Prng& prng);

// One of those given.
template <typename T>
T pick(Prng& prng, std::initializer_list<T> choices) {
  return choices.begin()[prng.below(static_cast<std::int64_t>(choices.size()))];
}

}  // namespace stemma
