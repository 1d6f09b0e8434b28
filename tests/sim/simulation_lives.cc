// The lives of a simulation's engines: how each begins and ends, and what it leaves to the next.
#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "sim/metric_of.h"
#include "sim/simulation.h"

namespace stemma {
namespace {

// Adds up counters, of one engine after another.
class AddUp final : public MetricVisitor {
 public:
  explicit AddUp(Simulation::Tally& tally) : tally_(tally) {}
  void counter(std::string_view name, std::int64_t value) override {
    tally_[std::string(name)] += value;
  }
  void gauge(std::string_view, std::int64_t) override {}

 private:
  Simulation::Tally& tally_;
};

}  // namespace

void Simulation::open_engine() {
  Runner& runner = queues_ ? static_cast<Runner&>(late_) : model_;
  auto engine = Engine::open(plan_.engine, {.runner = runner,
                                            .pools = {*pool_, windowed_pool_.get()},
                                            .vocab_tokens = kStampVocab,
                                            .clock = clock_,
                                            .lower_tiers = tiers_or_null_.get()});
  STEMMA_CHECK(engine.ok(), "options that were drawn are valid");
  engine_ = std::move(engine).value();
}

void Simulation::close_engine() {
  AddUp add_up(tally_);
  tally_["sim_steps_queued_behind"] += std::exchange(late_.queued_behind, 0);
  engine_->visit_metrics(add_up);
  if (plan_.engine.kv.tiers.write_policy == WritePolicy::kWriteBack) {
    tally_["sim_written_back_pages"] +=
        std::max<std::int64_t>(metric_of(*engine_, "stemma_backed_up_pages_total"), 0);
  }
  engine_.reset();
  tally_["sim_told_anew"] += told_.forget();
}

// What only the engine knew is lost, and with it every request; what stores keep is not, but for
// what a disk had not synced when its power went.
void Simulation::restart(End end) {
  ++tally_["sim_restarts"];
  if (!asked_.empty()) ++tally_["sim_restarts_in_flight"];
  if (end == End::kEngine && prng_.below(2) == 0) {
    engine_->settle(std::chrono::milliseconds(50));
  }
  close_engine_at(end);
  asked_.clear();
  cancelled_.clear();
  if (SimulatedDiskStore* disk = disk_or_null()) {
    if (end == End::kProcess) disk->open();
    if (end == End::kPower) {
      ++tally_["sim_power_losses"];
      disk->crash(pick<std::size_t>(prng_, {512, 4096}));
    }
  }
  open_engine();
  if (pending_purges() > 0) ++tally_["sim_restored_purges"];
}

// One that is killed leaves the purge file as it is.
void Simulation::close_engine_at(End end) {
  PurgeFile* const file_or_null =
      tiers_or_null_ == nullptr ? nullptr : tiers_or_null_->purge_file_or_null();
  const bool is_killed = end != End::kEngine && file_or_null != nullptr;
  Unconfirmed said;
  if (is_killed) said = *file_or_null->said_or_null();
  last_purge_.reset();
  close_engine();
  if (is_killed) STEMMA_CHECK(file_or_null->keep(said).ok(), "a file in memory can be written");
}

}  // namespace stemma
