// Two hundred simulations of the whole serving loop over tiers, each of 2,000 steps and everything
// drawn from its seed, what the model's layers keep too; 1,000 of 10,000 steps with
// STEMMA_LONG_TESTS=1. One alone, to look at what it found: tests_sim --seed S --steps N. Marks
// make sure that, over all seeds, whatever the simulation is for has happened.
#include "sim/simulation.h"

#include <gtest/gtest.h>

#include <map>
#include <span>
#include <string>
#include <utility>

#include "base/long_tests_fixture.h"

namespace stemma {
namespace {

constexpr const char* kMarks[] = {"stemma_host_loaded_pages_total",
                                  "stemma_disk_loaded_pages_total",
                                  "stemma_remote_loaded_pages_total",
                                  "stemma_host_load_corrupt_pages_total",
                                  "stemma_disk_load_corrupt_pages_total",
                                  "stemma_remote_load_corrupt_pages_total",
                                  "stemma_disk_load_missing_pages_total",
                                  "stemma_remote_load_missing_pages_total",
                                  "stemma_disk_load_failed_pages_total",
                                  "stemma_remote_load_failed_pages_total",
                                  "stemma_declined_pages_total",
                                  "stemma_disk_breaker_openings_total",
                                  "stemma_lent_pages_total",
                                  "stemma_void_loans_total",
                                  "stemma_overtaken_pages_total",
                                  "stemma_quarantined_subtrees_total",
                                  "stemma_unbacked_pages_total",
                                  "stemma_unstored_pages_total",
                                  "stemma_stored_pages_total",
                                  "stemma_preemptions_total",
                                  "stemma_forks_total",
                                  "stemma_shadow_audits_total",
                                  "stemma_shadow_audit_mismatches_total",
                                  "stemma_shadow_audit_skipped_total",
                                  "stemma_evicted_pages_total",
                                  "stemma_finished_requests_total",
                                  "stemma_device_purged_pages_total",
                                  "stemma_host_purged_pages_total",
                                  "stemma_disk_purged_pages_total",
                                  "sim_purged_remote_pages",
                                  "sim_purges",
                                  "sim_quotas",
                                  "sim_purges_of_running",
                                  "sim_shared_prefixes",
                                  "sim_written_back_pages",
                                  "sim_hung_jobs",
                                  "sim_abandoned_jobs",
                                  "sim_cancels",
                                  "sim_cancels_while_loading",
                                  "sim_stops",
                                  "sim_told_anew",
                                  "sim_refused",
                                  "sim_failed",
                                  "sim_restarts_in_flight",
                                  "sim_restored_purges",
                                  "sim_steps_queued_behind",
                                  "sim_steps_waiting_for_tier",
                                  "sim_found_after_restart"};

constexpr const char* kWindowedMarks[] = {"stemma_windowed_evicted_pages_total",
                                          "stemma_windowed_backed_up_pages_total",
                                          "stemma_windowed_loaded_pages_total",
                                          "stemma_evicted_pages_total",
                                          "stemma_preemptions_total",
                                          "stemma_forks_total",
                                          "sim_hits_beyond_windows",
                                          "sim_hits_cut_by_windows",
                                          "sim_shared_prefixes",
                                          "sim_cancels",
                                          "sim_stops",
                                          "sim_failed",
                                          "sim_purges_of_running",
                                          "sim_quotas",
                                          "sim_restarts_in_flight",
                                          "sim_steps_queued_behind"};

constexpr const char* kEveryKindMarks[] = {"stemma_host_loaded_pages_total",
                                           "stemma_disk_loaded_pages_total",
                                           "stemma_remote_loaded_pages_total",
                                           "stemma_disk_load_corrupt_pages_total",
                                           "stemma_lent_pages_total",
                                           "stemma_shadow_audits_total",
                                           "stemma_forks_total",
                                           "stemma_preemptions_total",
                                           "sim_found_after_restart"};

void expect_happened(const Simulation::Tally& tally, std::span<const char* const> marks) {
  for (const char* mark : marks) {
    const auto found = tally.find(mark);
    EXPECT_GT(found == tally.end() ? 0 : found->second, 0)
        << mark << " never happened: the simulation does not test it";
  }
}

// Pages that a promotion nobody waits for kept for ever behind a hole; and what only looked like a
// standstill: copies begun in slow weather, removals of a disk that only reads, purges asked for
// too late. Of windows: rows of another text, and keys that were not found (the address sanitizer
// saw both).
TEST(Simulation, WhatOnceBrokeDoesNotAnyMore) {
  struct Run {
    std::uint64_t seed;
    std::int64_t steps;
    SimulatedPools pools = SimulatedPools::kPlain;
  };
  for (const Run run :
       {Run{569, 10'000}, Run{12, 2'000}, Run{249, 10'000}, Run{20, 10'000},
        Run{60, 2'000, SimulatedPools::kWindowed}, Run{83, 2'000, SimulatedPools::kWindowed},
        Run{50'169, 6'000, SimulatedPools::kWindowed},
        Run{50'314, 6'000, SimulatedPools::kWindowed}, Run{73, 2'000, SimulatedPools::kAllWindowed},
        Run{185, 2'000, SimulatedPools::kAllWindowed}}) {
    Simulation simulation(run.seed, run.steps, run.pools);
    const auto failure = simulation.run();
    EXPECT_FALSE(failure.has_value()) << *failure;
  }
}

// Lives of pools that are drawn seldom, in which pages come damaged from the disk: one in fifteen.
constexpr std::pair<SimulatedPools, std::uint64_t> kDamagedLives[] = {
    {SimulatedPools::kLatent, 70'008},
    {SimulatedPools::kLatent, 70'112},
    {SimulatedPools::kSparse, 70'116},
    {SimulatedPools::kSparse, 70'187}};

TEST(Simulation, NothingIsBroken) {
  const std::uint64_t seeds = long_tests() ? 1000 : 200;
  const std::int64_t steps = long_tests() ? 10'000 : 2'000;
  Simulation::Tally all;
  std::map<SimulatedPools, Simulation::Tally> of_pools;
  const auto live = [&](Simulation& simulation) {
    const auto failure = simulation.run();
    ASSERT_FALSE(failure.has_value()) << *failure;
    for (const auto& [name, value] : simulation.tally()) {
      all[name] += value;
      of_pools[simulation.plan().pools][name] += value;
    }
  };
  for (std::uint64_t seed = 1; seed <= seeds && !HasFatalFailure(); ++seed) {
    Simulation simulation(seed, steps);
    live(simulation);
  }
  for (const auto& [pools, seed] : kDamagedLives) {
    Simulation simulation(seed, 6'000, pools);
    live(simulation);
  }
  if (HasFatalFailure()) return;
  expect_happened(all, kMarks);
  for (const SimulatedPools pools : {SimulatedPools::kWindowed, SimulatedPools::kAllWindowed}) {
    SCOPED_TRACE(pools_name(pools));
    expect_happened(of_pools[pools], kWindowedMarks);
  }
  for (const SimulatedPools pools : {SimulatedPools::kLatent, SimulatedPools::kSparse}) {
    SCOPED_TRACE(pools_name(pools));
    expect_happened(of_pools[pools], kEveryKindMarks);
  }
}

// Nothing may depend on addresses, on the order of hashed containers or on the machine's clock: the
// hash of the look-up tables is seeded anew for each engine, so two runs differ in it.
TEST(Simulation, TheSameSeedGivesTheSameRun) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Simulation first(seed, 400);
    const auto failure = first.run();
    ASSERT_FALSE(failure.has_value()) << *failure;
    Simulation second(seed, 400);
    EXPECT_FALSE(second.run().has_value());
    EXPECT_EQ(first.trace(), second.trace()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace stemma
