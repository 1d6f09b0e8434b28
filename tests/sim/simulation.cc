#include "sim/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <utility>

#include "base/check.h"
#include "sim/metric_of.h"
#include "stemma/log.h"

namespace stemma {
namespace {

// How long a serving loop with nothing to compute sleeps.
constexpr std::int64_t kNapUs = 500;

// What an abort says of the simulation that runs.
struct Running {
  std::uint64_t seed = 0;
  std::int64_t steps = 0;
  std::int64_t step = 0;
  std::string plan;
};
Running running;

extern "C" void name_running(int) {
  std::fprintf(stderr, "simulation: aborted: seed %llu, step %lld of %lld: %s\n",
               static_cast<unsigned long long>(running.seed), static_cast<long long>(running.step),
               static_cast<long long>(running.steps), running.plan.c_str());
  std::fflush(stderr);
}

std::int64_t tokens_in(const std::vector<TokenId>& tokens) {
  return static_cast<std::int64_t>(tokens.size());
}

// The answer to a prompt, up to the first of its stop tokens.
std::vector<TokenId> answer_to(const RequestSpec& spec) {
  std::vector<TokenId> answer = stamp_output(spec.prompt, spec.max_tokens);
  const auto stop = std::find_first_of(answer.begin(), answer.end(), spec.stop_tokens.begin(),
                                       spec.stop_tokens.end());
  if (stop != answer.end()) answer.erase(stop + 1, answer.end());
  return answer;
}

}  // namespace

Simulation::Simulation(std::uint64_t seed, std::int64_t steps, std::optional<SimulatedPools> wished)
    : seed_(seed),
      steps_(steps),
      wished_(wished),
      prng_(mix64(seed)),
      copies_prng_(mix64(seed + 1)),
      purges_prng_(mix64(seed + 2)),
      shares_prng_(mix64(seed + 3)),
      quotas_prng_(mix64(seed + 4)),
      pools_prng_(mix64(seed + 5)),
      scores_prng_(mix64(seed + 7)),
      queues_(mix64(seed + 6) % 2 == 0),
      plan_(draw_plan(prng_)),
      model_(clock_, plan_.token_us, seed),
      late_(model_, kStampVocab, seed),
      texts_({.families = plan_.families,
              .conversations = plan_.conversations,
              .namespaces = plan_.namespaces,
              .tokens_max = plan_.text_tokens_max()},
             prng_) {
  set_log_sink({});
  plan_.purges = pick<std::int64_t>(purges_prng_, {0, 3, 20});
  plan_.shares_in_4 = pick<std::int64_t>(shares_prng_, {0, 3, 4});
  plan_.engine.scheduler.scored_tokens_max = pick<std::int64_t>(scores_prng_, {1, 4, 40});
  draw_pools(plan_, wished, pools_prng_);
  draw_names(plan_, mix64(seed + 8));
  model_.set_wrong_audits(plan_.wrong_audits);
  late_.computes_early = false;  // else a step fails before its events do
  running = {seed, steps, 0, to_string(plan_)};
  std::signal(SIGABRT, name_running);
  make_pools();
  open_engine();
}

Simulation::~Simulation() {
  engine_.reset();
  std::signal(SIGABRT, SIG_DFL);
}

void Simulation::make_pools() {
  pool_ = make_stamp_pool(plan_.pool_shape(), plan_.device_layout);
  if (plan_.has_windows()) {
    windowed_pool_ = make_stamp_pool(plan_.windowed_pool_shape(), plan_.device_layout);
    model_.stamps().look_back(plan_.engine.kv.window_tokens);
  }
  if (plan_.has_tiers) {
    tiers_or_null_ =
        std::make_unique<SimulatedTiers>(plan_.tiers, *pool_, clock_, windowed_pool_.get());
  }
}

std::optional<std::string> Simulation::run() {
  for (step_ = 0; step_ < steps_ && !failed(); ++step_) {
    running.step = step_;
    step();
  }
  if (!failed()) end_faults();
  if (!failed()) live_on();
  if (!failed()) check_clean_round();
  if (engine_ != nullptr) close_engine();
  if (SimulatedDiskStore* disk = disk_or_null()) {
    if (disk->is_read_only()) ++tally_["sim_disk_read_only_in_the_end"];
    if (!disk->is_open()) ++tally_["sim_disk_closed_in_the_end"];
  }
  if (tiers_or_null_ != nullptr) {
    tally_["sim_hung_jobs"] += tiers_or_null_->counts().hung;
    tally_["sim_abandoned_jobs"] += tiers_or_null_->counts().abandoned;
  }
  for (const auto& [name, value] : tally_) note(static_cast<std::uint64_t>(value));
  return failure_;
}

void Simulation::step() {
  clock_.advance_us(prng_.below(plan_.step_us_max + 1));
  if (step_ >= weather_until_step_) change_weather();
  if (disk_or_null() != nullptr && disk_or_null()->is_off()) restart(End::kPower);
  if (drawn(plan_.submits)) submit();
  disturb();
  if (purges_prng_.below(1000) < plan_.purges) purge();
  if (quotas_prng_.below(100) == 0) change_quota();
  run_engine();
  check_state();
  check_purged();
}

// The stores' weathers change together and each for itself: a disk may be calm while the remote
// store hangs.
void Simulation::change_weather() {
  weather_until_step_ = step_ + 1 + prng_.below(plan_.phase_steps);
  set_weather(static_cast<Weather>(prng_.below(kWeathers)));
}

void Simulation::set_weather(Weather weather) {
  if (tiers_or_null_ == nullptr) return;
  tiers_or_null_->set_lanes(draw_lanes(weather, plan_.tiers.lanes, prng_));
  for (std::size_t i = 0; i < plan_.tiers.stores.size(); ++i) {
    const bool spared = weather != Weather::kCalm && prng_.below(4) == 0;
    set_weather_of_store(i, spared ? Weather::kCalm : weather);
  }
}

void Simulation::set_weather_of_store(std::size_t store, Weather weather) {
  const bool is_disk = plan_.tiers.stores[store] == Tier::kDisk;
  SimulatedDiskStore* disk = disk_or_null();
  if (!is_disk || disk == nullptr) {
    return tiers_or_null_->store(store).set_faults(draw_faults(weather, is_disk, prng_));
  }
  if (prng_.below(2) == 0) disk->disk().let_go();
  disk->set_faults(draw_disk_faults(weather, disk->disk(), prng_));
}

void Simulation::disturb() {
  disturb_requests();
  if (drawn(plan_.model_faults)) {
    prng_.below(2) == 0 ? model_.stamps().fail_next_step() : model_.stamps().tear_next_step();
  }
  if (drawn(plan_.host_flips)) flip_in_host();
  if (drawn(plan_.restarts)) restart(pick(prng_, {End::kEngine, End::kProcess, End::kPower}));
  if (drawn(plan_.power_offs) && disk_or_null() != nullptr) {
    disk_or_null()->power_off_after(prng_.below(40));
  }
}

void Simulation::disturb_requests() {
  if (drawn(plan_.cancels) && !asked_.empty()) {
    const RequestId id = any_request();
    if (engine_->cancel(id).ok()) {
      cancelled_.insert(id);
      const bool loads = waits_for_tier() && asked_[id].got.empty();
      ++tally_[loads ? "sim_cancels_while_loading" : "sim_cancels"];
    }
  }
  if (drawn(plan_.stops) && !asked_.empty()) {
    const RequestId id = any_request();
    if (asked_[id].got.empty() || !engine_->stop(id).has_value()) return;
    asked_.erase(id);
    cancelled_.erase(id);
    ++tally_["sim_stops"];
  }
}

RequestId Simulation::any_request() {
  return std::next(asked_.begin(), prng_.below(static_cast<std::int64_t>(asked_.size())))->first;
}

void Simulation::flip_in_host() {
  if (tiers_or_null_ == nullptr) return;
  const bool windowed =
      plan_.pools == SimulatedPools::kAllWindowed || (plan_.has_windows() && prng_.below(2) == 0);
  HostPool& host = windowed ? tiers_or_null_->windowed_host() : tiers_or_null_->host();
  const std::int64_t flips = 1 + prng_.below(4);
  for (std::int64_t i = 0; i < flips; ++i) {
    const PageId page(static_cast<std::int32_t>(prng_.below(host.pages())));
    const auto image = host.layer_image(page, prng_.below(host.layers()));
    image[static_cast<std::size_t>(prng_.below(std::ssize(image)))] ^=
        std::byte{1} << static_cast<int>(prng_.below(8));
  }
}

void Simulation::submit() {
  SimulatedTexts::Question question = texts_.ask();
  Asked asked = {.prompt = question.spec.prompt,
                 .answer = answer_to(question.spec),
                 .got = {},
                 .conversation = question.conversation,
                 .space = question.spec.namespace_digest.bytes[0]};
  const std::int64_t copies = copies_prng_.below(8) == 0 ? 2 + copies_prng_.below(5) : 1;
  question.spec.copies = copies;
  draw_scores(question.spec, asked);
  if (shares_prng_.below(4) < plan_.shares_in_4) share_prefix(question.spec);
  told_.note_asked(question.spec);
  const auto id = engine_->submit(std::move(question.spec));
  if (id.ok()) {
    note_asked(asked.space, asked.prompt);
    tally_["sim_requests"] += copies;
    for (std::int64_t copy = 0; copy < copies; ++copy) {
      asked_[RequestId(id->value() + copy)] = asked;
      asked.scores = {};
    }
  } else if (id.error().code != ErrorCode::kTooLarge) {
    fail("a request was refused: " + to_string(id.error()));
  }
}

// What its text has in common with a family of texts, it shares with every namespace.
void Simulation::share_prefix(RequestSpec& spec) {
  const std::int64_t page_size = plan_.engine.kv.page_size;
  for (std::size_t i = 0; i < texts_.families().size(); ++i) {
    const std::vector<TokenId>& family = texts_.families()[i];
    const std::int64_t shared = std::ssize(family) / page_size * page_size;
    const bool fits = shared > 0 && shared < std::ssize(spec.prompt);
    if (!fits || !std::equal(family.begin(), family.begin() + shared, spec.prompt.begin()))
      continue;
    spec.shared_prefix.emplace();
    spec.shared_prefix->digest.bytes[0] = 255;
    spec.shared_prefix->tokens = shared;
    spec.namespace_digest.bytes[8] = static_cast<std::uint8_t>(i + 1);
    ++tally_["sim_shared_prefixes"];
    return;
  }
}

void Simulation::run_engine() {
  const StepReport report = engine_->step();
  held_back_ = report.held_back;
  computed_tokens_ = report.computed_tokens;
  if (waits_for_tier()) ++tally_["sim_steps_waiting_for_tier"];
  const bool model_failed = model_.take_failed();
  for (const EngineEvent& event : report.events) take(event, model_failed);
  note(static_cast<std::uint64_t>(report.computed_tokens));
}

void Simulation::take(const EngineEvent& event, bool model_failed) {
  note(static_cast<std::uint64_t>(event.request.value()));
  note(static_cast<std::uint64_t>(event.token) << 8 | static_cast<std::uint64_t>(event.finish));
  note(static_cast<std::uint64_t>(event.stats.cached_tokens));
  const auto found = asked_.find(event.request);
  if (found == asked_.end()) {
    return fail(fmt::format("request {} speaks after its end", event.request.value()));
  }
  Asked& asked = found->second;
  if (!event.prompt_logprobs.empty()) take_scores(event, asked);
  if (event.token >= 0) {
    if (asked.got.empty()) check_scored(event.request, asked);
    const std::size_t at = asked.got.size();
    if (at >= asked.answer.size() || asked.answer[at] != event.token) {
      return fail(fmt::format("request {}: output token {} is {}, not {}", event.request.value(),
                              at, event.token, at < asked.answer.size() ? asked.answer[at] : -1));
    }
    asked.got.push_back(event.token);
  }
  if (event.finish == FinishReason::kNone) return;
  take_end(event, asked, model_failed);
  asked_.erase(found);
  cancelled_.erase(event.request);
}

void Simulation::take_end(const EngineEvent& event, const Asked& asked, bool model_failed) {
  const std::int64_t request = event.request.value();
  if (event.stats.stop == PrefixStop::kWindow) ++tally_["sim_hits_cut_by_windows"];
  if (windowed_pool_ != nullptr && event.stats.cached_tokens > plan_.engine.kv.window_tokens) {
    ++tally_["sim_hits_beyond_windows"];
  }
  switch (event.finish) {
    case FinishReason::kStop:
    case FinishReason::kLength:
      if (asked.got != asked.answer) {
        return fail(fmt::format("request {} ended after {} of {} tokens", request, asked.got.size(),
                                asked.answer.size()));
      }
      return texts_.answered(asked.conversation, asked.prompt, asked.answer);
    case FinishReason::kCancelled:
      if (!cancelled_.contains(event.request))
        fail(fmt::format("request {}: who cancelled", request));
      return;
    case FinishReason::kFailed: {
      const bool refused = asked.got.empty() && event.error.code == ErrorCode::kTooLarge;
      ++tally_[refused ? "sim_refused" : "sim_failed"];
      if (!refused && !model_failed) {
        fail(fmt::format("request {} failed: {}", request, to_string(event.error)));
      }
      return;
    }
    case FinishReason::kNone:
      return;
  }
}

void Simulation::note_asked(std::uint8_t space, const std::vector<TokenId>& prompt) {
  texts_of_[space] = prompt;
  purged_.erase(space);
}

void Simulation::check_state() {
  if (const auto contradiction = told_.check(*engine_)) return fail(*contradiction);
  if (!model_.stamps().fault().empty()) return fail(model_.stamps().fault());
  if (const auto contradiction = engine_->audit()) return fail(*contradiction);
  if (model_.spoiled_audits() == 0 && engine_->totals().shadow_audit_mismatches != 0) {
    fail("a page computed again is another one");
  }
}

// Tokens are computed one by one at worst, once and again after each preemption; and for each text
// pages are waited for.
std::int64_t Simulation::patience_steps() const {
  std::int64_t steps = 4000;
  for (const auto& [id, asked] : asked_) {
    steps += 8 * (tokens_in(asked.prompt) + tokens_in(asked.answer));
    steps += 4 * plan_.engine.kv.tiers.load_wait_us / kNapUs;
  }
  return steps;
}

void Simulation::end_faults() {
  set_weather(Weather::kCalm);
  model_.stamps().spare_next_step();
  model_.set_wrong_audits(0);
  SimulatedDiskStore* disk = disk_or_null();
  if (disk == nullptr) return;
  if (disk->is_off()) restart(End::kPower);
  disk->stay_on();
  disk->disk().let_go();
}

// The faults have stopped: whatever waits must move on and end. Copies that began in slow weather
// may hold nearly all pages for a while: who has nothing to compute naps.
void Simulation::live_on() {
  for (std::int64_t left = patience_steps(); !engine_->idle() && !failed(); --left) {
    if (left == 0) return fail(standstill());
    clock_.advance_us(1 + prng_.below(plan_.step_us_max) + (computed_tokens_ == 0 ? kNapUs : 0));
    running.step = ++step_;
    run_engine();
    check_state();
  }
  if (!failed() && !asked_.empty()) {
    return fail(fmt::format("{} requests never ended", asked_.size()));
  }
  if (!failed()) settle();
}

std::string Simulation::standstill() const {
  const KvCache& kv = engine_->kv();
  return fmt::format(
      "{} requests wait for ever (I12): held back \"{}\", {} of {} pages can be had, {} tokens are "
      "locked, copies are {}",
      asked_.size(), held_back_, kv.available_pages(), kv.total_pages(), kv.usage().locked_tokens,
      kv.transfers_underway() ? "under way" : "not under way");
}

// Until copies in flight have ended: those that hang at their deadline, the others, which are
// looked at in between, before it. What the disk was asked for too late ends later still.
void Simulation::settle() {
  run_engine();  // what the last end began
  const std::int64_t deadline_us = plan_.engine.kv.tiers.store_deadline_us;
  const std::int64_t soon_us = std::min<std::int64_t>(1'000, deadline_us / 2);
  const auto moves = [&] {
    return engine_->kv().transfers_underway() || (pending_purges() > 0 && !disk_is_gone());
  };
  for (int left = 6000; moves() && left > 0; --left) {
    clock_.advance_us(left % 2 == 0 ? soon_us : deadline_us + 1'000'000);
    run_engine();
    if (disk_or_null() != nullptr) disk_or_null()->disk().let_go();
    check_state();
  }
  if (!failed()) check_nothing_held();
}

// A disk that cannot be written keeps what was purged, and is asked again and again.
bool Simulation::disk_is_gone() {
  const SimulatedDiskStore* const disk = disk_or_null();
  return disk != nullptr && (disk->is_read_only() || !disk->is_open());
}

void Simulation::check_nothing_held() {
  const KvCache& kv = engine_->kv();
  if (kv.transfers_underway()) return fail("copies never end");
  if (kv.usage().locked_tokens != 0) {
    return fail(fmt::format("{} tokens stay locked", kv.usage().locked_tokens));
  }
  if (kv.available_pages() != kv.total_pages()) {
    return fail(fmt::format("{} of {} pages can be had", kv.available_pages(), kv.total_pages()));
  }
  if (windowed_pool_ != nullptr &&
      kv.available_windowed_pages() != plan_.engine.kv.windowed_pages) {
    return fail(fmt::format("{} of {} windowed pages can be had", kv.available_windowed_pages(),
                            plan_.engine.kv.windowed_pages));
  }
  if (tiers_or_null_ == nullptr) return;
  if (pending_purges() > 0 && !disk_is_gone()) return fail("a purge is never confirmed");
  for (const char* gauge : {"stemma_host_locked_pages", "stemma_host_arriving_pages"}) {
    if (metric_of(*engine_, gauge) != 0)
      fail(fmt::format("{} is not 0 though all has ended", gauge));
  }
}

// Runs one request to its end; how much of it was cached.
std::int64_t Simulation::answer_alone(const std::vector<TokenId>& prompt) {
  RequestSpec spec;
  spec.prompt = prompt;
  spec.max_tokens = 2;
  Asked asked = {.prompt = prompt, .answer = answer_to(spec), .got = {}};
  const auto id = engine_->submit(std::move(spec));
  if (!id.ok()) {
    fail("a request was refused: " + to_string(id.error()));
    return 0;
  }
  note_asked(0, prompt);
  asked_[*id] = std::move(asked);
  const EngineTotals before = engine_->totals();
  live_on();
  return engine_->totals().cached_tokens - before.cached_tokens;
}

// All is well again: a text is found on the device, and after a restart where it was stored.
void Simulation::check_clean_round() {
  const KvCacheOptions& kv = plan_.engine.kv;
  const auto prompt = texts_.fresh(plan_.text_tokens_max() - 3);
  const std::int64_t full = (tokens_in(prompt) - 1) / kv.page_size * kv.page_size;
  answer_alone(prompt);
  if (failed()) return;
  check_cached(answer_alone(prompt), kv.cache == "none" ? 0 : full);
  if (failed() || tiers_or_null_ == nullptr) return;
  restart(End::kProcess);
  answer_alone(prompt);
  if (!failed() && full > 0 && metric_of(*engine_, "stemma_promotions_total") > 0) {
    ++tally_["sim_found_after_restart"];
  }
}

// The window before the end of a prompt stays where there is room for it and for what comes behind.
void Simulation::check_cached(std::int64_t cached, std::int64_t full) {
  const KvCacheOptions& kv = plan_.engine.kv;
  const bool windows_stay =
      windowed_pool_ == nullptr ||
      kv.windowed_pages >= windowed_pages_max(kv.window_tokens, kv.page_size, 1) + 2;
  if (failed() || cached == full || (!windows_stay && cached < full)) return;
  fail(fmt::format("{} tokens of {} are cached after all", cached, full));
}

void Simulation::fail(const std::string& what) {
  if (failed()) return;
  const std::string pools =
      wished_.has_value() ? " --pools " + std::string(pools_name(*wished_)) : "";
  failure_ = fmt::format("seed {}, step {} of {}: {}\n{}\n  --seed {} --steps {}{}", seed_, step_,
                         steps_, what, to_string(plan_), seed_, steps_, pools);
}

}  // namespace stemma
