// Simulation: the whole serving loop over tiers, under a fake clock, with simulated stores, users
// and faults, everything from one seed: engine, scheduler, cache, transfers and stores run as they
// are; only the model is the stamp model, of every kind that there are pools for, and time and luck
// are drawn.
//
// What was purged while nobody asked for it is found in no tier until somebody asks again. Who is
// told of events alone knows of each text as much as the device has of it.
//
// After each step: no stamp is wrong, every output so far is the beginning of its closed form, only
// what a fault of the model hit has failed, no request speaks after its end, and the audit finds
// nothing. In the end the faults stop: everything must end within a bounded number of steps, no
// page and no lock may be left behind, and a text that is asked twice must be found (I12, I13).
//
// The same seed gives the same run, step by step: trace() is a digest of all that came out. A
// contradiction that aborts prints seed and step, too.
//
// Thread:     one; one simulation at a time.
// Memory:     that of a small engine.
// Cost:       some 100 us a step.
// Not here:   what is drawn (simulation_plan), texts (simulated_texts).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/prng.h"
#include "engine/late_runner.h"
#include "sim/simulated_texts.h"
#include "sim/simulated_tiers.h"
#include "sim/simulation_plan.h"
#include "sim/stamp_model.h"
#include "sim/told_pages.h"
#include "stemma/engine.h"

namespace stemma {

// The stamp model, taking its time. Pages that are computed again for an audit may come out wrong:
// then right pages are complained of, and go.
class TimedModel final : public Runner {
 public:
  TimedModel(FakeClock& clock, std::int64_t token_us, std::uint64_t seed)
      : clock_(clock), token_us_(token_us), prng_(seed) {}

  Result<LogitsView> forward(const KvBatch& batch, KvPools pools) override {
    clock_.advance_us(token_us_ * batch.rows());
    auto logits = stamps_.forward(batch, pools);
    // A step that read a wrong page is void, and is no failure.
    failed_ = failed_ || (!logits.ok() && logits.error().code != ErrorCode::kCorrupt);
    if (logits.ok() && ends_audit(batch) && prng_.below(1000) < wrong_audits_) {
      spoil(batch, pools);
    }
    return logits;
  }

  bool waits_by_layer() const override { return true; }

  StampModel& stamps() { return stamps_; }
  // How often an audit comes out wrong, in a thousand; and how often that has happened.
  void set_wrong_audits(std::int64_t permille) { wrong_audits_ = permille; }
  std::int64_t spoiled_audits() const { return spoiled_; }
  // Whether a step has failed since this was asked last.
  bool take_failed() { return std::exchange(failed_, false); }

 private:
  // The page is whole after this step, and nobody reads it.
  static bool ends_audit(const KvBatch& batch) {
    return batch.requests.size() == 1 && !batch.requests[0].valid() &&
           (batch.positions.back() + 1) % batch.page_table.page_size == 0;
  }

  void spoil(const KvBatch& batch, const KvPools& pools) {
    const bool has_full = pools.full.shape().layers > 0;
    const bool windowed = pools.windowed != nullptr && (!has_full || prng_.below(2) == 0);
    KvPool& pool = windowed ? *pools.windowed : pools.full;
    const SlotId slot = windowed ? batch.windowed_slots.back() : batch.write_slots.back();
    const PageId page(static_cast<std::int32_t>(slot.value() / pool.shape().page_size));
    auto pieces = pool.layer_pieces(prng_.below(pool.shape().layers));
    *pieces.begin()->of(page) ^= std::byte{1};
    ++spoiled_;
  }

  FakeClock& clock_;
  std::int64_t token_us_;
  Prng prng_;
  std::int64_t wrong_audits_ = 0;
  std::int64_t spoiled_ = 0;
  StampModel stamps_;
  bool failed_ = false;
};

class Simulation {
 public:
  // Counters of engine, cache and tiers by their metric names, and what the simulation did
  // ("sim_").
  using Tally = std::map<std::string, std::int64_t>;

  // Of pools as drawn, unless some are wished for.
  Simulation(std::uint64_t seed, std::int64_t steps,
             std::optional<SimulatedPools> wished = std::nullopt);
  ~Simulation();
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  // Runs all steps and the end; what was broken, with seed and step, or nullopt.
  std::optional<std::string> run();

  const SimulationPlan& plan() const { return plan_; }
  const Tally& tally() const { return tally_; }
  std::uint64_t trace() const { return trace_; }

 private:
  // Of the tokens of a prompt behind its first.
  struct Scores {
    bool wanted = false;
    std::size_t told = 0;  // or not wanted
  };
  // What was asked and has not ended.
  struct Asked {
    std::vector<TokenId> prompt;
    std::vector<TokenId> answer;  // all of it, in closed form
    std::vector<TokenId> got;
    Scores scores = {};
    std::size_t conversation = 0;
    std::uint8_t space = 0;  // its namespace
  };

  void make_pools();
  void open_engine();
  void close_engine();
  enum class End : std::uint8_t { kEngine, kProcess, kPower };
  void close_engine_at(End end);
  void restart(End end);

  void step();
  void change_weather();
  void set_weather(Weather weather);
  void set_weather_of_store(std::size_t store, Weather weather);
  void disturb();
  void disturb_requests();
  void flip_in_host();
  void change_quota();
  void purge();
  void note_asked(std::uint8_t space, const std::vector<TokenId>& prompt);
  void check_not_found(std::uint8_t space);
  void check_purged();
  std::int64_t pending_purges() const;
  void submit();
  void share_prefix(RequestSpec& spec);
  void draw_scores(RequestSpec& spec, Asked& asked);
  RequestId any_request();

  void run_engine();
  void take(const EngineEvent& event, bool model_failed);
  void take_scores(const EngineEvent& event, Asked& asked);
  void check_scored(RequestId request, const Asked& asked);
  void take_end(const EngineEvent& event, const Asked& asked, bool model_failed);
  void check_state();

  SimulatedDiskStore* disk_or_null() {
    return tiers_or_null_ == nullptr ? nullptr : tiers_or_null_->disk_or_null();
  }

  void end_faults();
  void live_on();
  std::int64_t patience_steps() const;
  std::string standstill() const;
  bool waits_for_tier() const { return held_back_ == "waiting_for_tier"; }
  void settle();
  bool disk_is_gone();
  void check_nothing_held();
  void check_clean_round();
  void check_cached(std::int64_t cached, std::int64_t full);
  std::int64_t answer_alone(const std::vector<TokenId>& prompt);

  bool drawn(std::int64_t permille) { return prng_.below(1000) < permille; }
  void note(std::uint64_t value) { trace_ = mix64(trace_ ^ value); }
  void fail(const std::string& what);
  bool failed() const { return failure_.has_value(); }

  std::uint64_t seed_;
  std::int64_t steps_;
  std::optional<SimulatedPools> wished_;
  Prng prng_;
  Prng copies_prng_;  // which requests are several
  Prng purges_prng_;  // what is purged, and when
  Prng shares_prng_;  // who goes on from what everybody shares
  Prng quotas_prng_;  // whose quota changes, and when
  Prng pools_prng_;   // what the model keeps
  Prng scores_prng_;  // whose prompts are scored
  bool queues_;       // whether steps are planned while others are computed
  SimulationPlan plan_;
  FakeClock clock_;
  TimedModel model_;
  LateRunner late_;
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<KvPool> windowed_pool_;  // nullptr: no layer has a window
  std::unique_ptr<SimulatedTiers> tiers_or_null_;
  std::unique_ptr<Engine> engine_;
  SimulatedTexts texts_;
  std::map<RequestId, Asked> asked_;
  std::set<RequestId> cancelled_;
  std::optional<PurgeId> last_purge_;  // of this engine
  // By namespace: the last text that was asked for in it; and those that were purged while nothing
  // of them waited or ran, and of which nothing was asked since.
  std::map<std::uint8_t, std::vector<TokenId>> texts_of_;
  std::set<std::uint8_t> purged_;
  ToldPages told_;
  std::int64_t step_ = 0;
  std::int64_t weather_until_step_ = 0;
  std::string_view held_back_;        // why the last step turned a request away
  std::int64_t computed_tokens_ = 0;  // in the last step
  Tally tally_;
  std::uint64_t trace_ = 0;
  std::optional<std::string> failure_;
};

}  // namespace stemma
