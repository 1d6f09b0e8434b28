#include "cache/tiering.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/bounded_time.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/math.h"
#include "prefix/page_key.h"
#include "stemma/log.h"

namespace stemma {
namespace {

// Leaves of which one poll, at most, compares the text with host memory's, to copy what will be
// evicted next; and leaves that it passes over because it knows that they have been copied.
constexpr int kColdLeavesMax = 8;
constexpr int kPassedOverMax = 64;

constexpr TransferLimits kLimits;

TierOptions with_bounded_times(TierOptions options) {
  options.load_wait_us = bounded_us(options.load_wait_us);
  options.store_deadline_us = bounded_us(options.store_deadline_us);
  return options;
}

// Of one store at once: a slow one leaves the others their part.
std::int64_t store_jobs_max(std::int64_t stores) {
  return std::max<std::int64_t>(kLimits.writes_max / std::max<std::int64_t>(stores, 1), 1);
}

}  // namespace

Result<std::unique_ptr<Tiering>> Tiering::open(const KvCacheOptions& options, LowerTiers& lower,
                                               const Device& device, const Clock& clock) {
  const HostTier::Extent extent = {
      .pages = lower.host_pages(),
      .windowed_pages = lower.host_windowed_pages(),
      .creditors = Backups::creditors(std::ssize(lower.stores()), lower.host_windowed_pages() > 0)};
  STEMMA_ASSIGN_OR_RETURN(auto host, HostTier::open(options, extent, clock));
  std::unique_ptr<Tiering> tiering(new Tiering(options, lower, device, std::move(host), clock));
  tiering->restore_unconfirmed();
  return tiering;
}

Tiering::Tiering(const KvCacheOptions& options, LowerTiers& lower, const Device& device,
                 std::unique_ptr<HostTier> host, const Clock& clock)
    : clock_(clock),
      options_(with_bounded_times(options.tiers)),
      device_(device),
      stores_(lower.stores()),
      host_(std::move(host)),
      host_file_({.host = *host_,
                  .images = {lower.host_image_or_null(), lower.windowed_host_image_or_null()},
                  .ranks_or_null = lower.host_image_ranks_or_null(),
                  .clock = clock,
                  .options = options_,
                  .counters = counters_}),
      lanes_(lower.open_lanes(kLimits.total())),
      transfers_(kLimits, *lanes_),
      removals_({.transfers = transfers_, .stores = stores_, .clock = clock, .options = options_}),
      purges_({.transfers = transfers_, .stores = stores_, .clock = clock, .options = options_}),
      backups_({.device = device.tree,
                .device_windowed_or_null = device.windowed_or_null,
                .window = {options.window_tokens, options.page_size},
                .host = *host_,
                .transfers = transfers_,
                .stores = stores_,
                .store_jobs_max = store_jobs_max(std::ssize(stores_)),
                .clock = clock,
                .options = options_,
                .counters = counters_,
                .removals = removals_,
                .purges = purges_}),
      promotions_({.device = device.tree,
                   .device_space = device.space,
                   .device_windowed_or_null = device.windowed_or_null,
                   .window = {options.window_tokens, options.page_size},
                   .host = *host_,
                   .transfers = transfers_,
                   .stores = stores_,
                   .clock = clock,
                   .options = options_,
                   .costs = costs_,
                   .counters = counters_,
                   .removals = removals_,
                   .purges = purges_}),
      loans_(transfers_),
      purge_file_or_null_(lower.purge_file_or_null()) {
  if (options_.demote_ahead_pages < 0) {
    options_.demote_ahead_pages = std::max<std::int64_t>(options.pages / 8, 1);
  }
  passed_over_.reserve(kPassedOverMax);
}

// Under write-back what is used again and again never goes, so it would never come to a page store
// either, where a crash loses it and nobody shares it.
bool Tiering::copies_hot() const {
  return options_.write_policy == WritePolicy::kWriteThroughSelective ||
         (options_.write_policy == WritePolicy::kWriteBack && !stores_.empty());
}

void Tiering::matched(const PrefixLock& held) {
  if (!copies_hot()) return;
  const auto hits =
      static_cast<std::int32_t>(std::min<std::int64_t>(options_.selective_uses, 1 << 30));
  const std::int64_t hot = device_.tree.hot_tokens(held, hits - 1);
  if (hot > 0) back_up(held, hot);
}

void Tiering::published(const PrefixLock& held) {
  const bool at_once = options_.write_policy == WritePolicy::kWriteThrough ||
                       (copies_hot() && options_.selective_uses <= 1);
  if (at_once && held.tokens() > 0) backups_.back_up(held, held.tokens());
}

// Where what is held ends it may be gone on from.
std::int64_t Tiering::back_up(const PrefixLock& held, std::int64_t end_tokens) {
  const std::int64_t lacking = backups_.back_up(held, end_tokens);
  if (device_.windowed_or_null == nullptr) return lacking;
  return lacking + backups_.back_up_window(held, end_tokens);
}

bool Tiering::poll() {
  bool landed = false;
  while (auto ticket = transfers_.try_take_landed()) {
    landed = true;
    take(std::move(*ticket));
  }
  pay_owed();
  promotions_.advance();
  begin_next();
  return landed;
}

bool Tiering::poll_beside_steps() {
  if (!promotions_.brings_to(Tier::kDevice)) return poll();
  bool landed = false;
  while (!arrivals_wait()) {
    auto ticket = transfers_.try_take_landed();
    if (!ticket.has_value()) break;
    landed = true;
    take(std::move(*ticket));
  }
  pay_owed();
  begin_next();
  return landed;
}

// A ticket of any read that ends may be one that a promotion waits for. A removal, which has a
// place among these, brings nothing.
bool Tiering::arrivals_wait() {
  if (!promotions_.brings_to(Tier::kDevice)) return false;
  const Transfer* const next = transfers_.next_landed_or_null();
  return next != nullptr && next->kind != TransferKind::kBackup &&
         next->kind != TransferKind::kStore && next->kind != TransferKind::kRemove &&
         next->kind != TransferKind::kPurge;
}

void Tiering::take(TransferTicket ticket) {
  const TransferKind kind = ticket.job().kind;
  if (kind == TransferKind::kBackup || kind == TransferKind::kStore) {
    backups_.landed(std::move(ticket));
  } else if (kind == TransferKind::kRemove) {
    removals_.landed(ticket);
  } else if (kind == TransferKind::kPurge) {
    purges_.landed(ticket);
  } else {
    if (ticket.job().done_pages() > 0) arrived_us_ = ticket.job().ended_us;
    promotions_.landed(std::move(ticket));
  }
}

void Tiering::pay_owed() {
  backups_.back_up_owed();
  backups_.store_owed();
}

void Tiering::begin_next() {
  removals_.advance();
  purges_.advance();
  host_file_.advance();
  keep_unconfirmed();
  if (options_.write_policy == WritePolicy::kWriteBack) demote_ahead();
}

bool Tiering::holds_device() const {
  bool found = false;
  transfers_.for_each_underway([&](const TransferTicket& ticket) {
    const TransferKind kind = ticket.job().kind;
    const bool below = kind == TransferKind::kStore || kind == TransferKind::kRemove ||
                       kind == TransferKind::kPurge;
    found = found || !below;
  });
  return found;
}

bool Tiering::pages_arriving(std::int64_t since_us) const {
  return transfers_.underway() > 0 && arrived_us_.has_value() && *arrived_us_ >= since_us;
}

// What was looked at is held for the moment, so that the next one can be seen. Where host memory
// cannot keep what is copied, the same pages would be copied again and again, and be locked
// meanwhile: so no more is copied than was taken from the device.
void Tiering::demote_ahead() {
  const std::int64_t page_size = device_.tree.page_size();
  const std::int64_t taken = device_.space.taken_pages();
  ahead_budget_pages_ += taken - std::exchange(seen_taken_pages_, taken);
  ahead_budget_pages_ = std::min(ahead_budget_pages_, options_.demote_ahead_pages);
  std::int64_t spare_pages = device_.space.free_pages();
  int looks = 0;
  while (std::ssize(passed_over_) < kPassedOverMax && looks < kColdLeavesMax &&
         spare_pages < options_.demote_ahead_pages && ahead_budget_pages_ > 0 &&
         transfers_.can_open(TransferKind::kBackup)) {
    auto cold = device_.tree.try_lock_coldest();
    if (!cold.has_value()) break;
    spare_pages += cold->own_tokens / page_size;
    if (!is_covered(*cold, looks)) {
      ahead_budget_pages_ -= back_up(cold->lock, cold->lock.tokens());
    }
    passed_over_.push_back(std::move(cold->lock));
  }
  passed_over_.clear();
}

// Whether host memory has the leaf, or will; counts the looks that this takes.
bool Tiering::is_covered(const ColdLeaf& cold, int& looks) {
  const std::int64_t tokens = cold.lock.tokens();
  const std::int64_t losses = host_->space().evicted_pages() + counters_.unbacked;
  if (covered_.knows(cold.id, tokens, losses)) return true;
  ++looks;
  if (!backups_.covers(cold.lock, tokens)) return false;
  covered_.note(cold.id, tokens, losses);
  return true;
}

// Leaves that have had their turn stay locked, so that the others come to the fore.
bool Tiering::settle_more() {
  while (transfers_.can_open(TransferKind::kBackup)) {
    auto cold = device_.tree.try_lock_coldest();
    if (!cold.has_value()) return true;
    const std::int64_t tokens = cold->lock.tokens();
    if (!backups_.covers(cold->lock, tokens)) back_up(cold->lock, tokens);
    settled_.push_back(std::move(cold->lock));
  }
  return false;
}

// A store that hangs reads what it was to be given, and changes nothing of it.
void Tiering::save_host() {
  std::vector<PrefixLock> held;
  transfers_.for_each_underway([&](const TransferTicket& ticket) {
    if (ticket.job().kind != TransferKind::kStore) return;
    if (!host_->tree().is_quarantined(ticket.source)) {
      held.push_back(host_->tree().share(ticket.source));
    }
  });
  host_file_.save(held);
}

bool Tiering::end_loans(std::chrono::microseconds nap) {
  const bool right = loans_.settle();
  while (loans_.underway()) {
    wait_landed(nap);
    poll();
  }
  loans_.clear();
  return right;
}

std::span<const TokenId> Tiering::whole_pages(std::span<const TokenId> tokens) const {
  return tokens.first(static_cast<std::size_t>(
      round_down(static_cast<std::int64_t>(tokens.size()), device_.tree.page_size())));
}

std::int64_t Tiering::probe_host(NamespaceId ns, std::span<const TokenId> tokens) const {
  const NamespaceId host_ns = host_->namespace_of(ns);
  return host_ns.valid() ? host_->tree().probe(host_ns, tokens).matched_tokens : 0;
}

std::int64_t Tiering::probe_host_again(NamespaceId ns, std::span<const TokenId> tokens,
                                       WalkEnd& end) const {
  const NamespaceId host_ns = host_->namespace_of(ns);
  return host_ns.valid() ? host_->tree().probe_again(host_ns, tokens, end) : 0;
}

// Keys cost more than looking them up: no more are computed than a group beyond what is there.
std::int64_t Tiering::probe_stores(const NamespaceDigest& digest, std::span<const TokenId> tokens) {
  constexpr std::size_t kGroupPages = 32;
  const auto size = static_cast<std::size_t>(device_.tree.page_size());
  std::span<const TokenId> rest = whole_pages(tokens);
  PageKeyChain chain(digest);
  std::array<PageKey, kGroupPages> keys;
  std::int64_t found = 0;
  for (std::size_t stored = kGroupPages; stored == kGroupPages && !rest.empty();) {
    const std::size_t pages = std::min(kGroupPages, rest.size() / size);
    for (std::size_t page = 0; page < pages; ++page) {
      keys[page] = chain.append(rest.subspan(page * size, size));
    }
    rest = rest.subspan(pages * size);
    stored = stored_pages(digest, std::span(keys).first(pages));
    found += static_cast<std::int64_t>(stored * size);
  }
  return found;
}

std::size_t Tiering::stored_pages(const NamespaceDigest& digest, std::span<const PageKey> keys) {
  std::size_t stored = 0;
  for (std::size_t i = 0; i < stores_.size(); ++i) {
    PageStore& store = *stores_[i];
    if (!store.lookup_is_local() || stored == keys.size()) continue;
    if (!purges_.usable(static_cast<int>(i), digest)) continue;
    const auto more = store.lookup(keys.subspan(stored), clock_.now_us());
    stored += more.ok() ? static_cast<std::size_t>(*more) : 0;
  }
  return stored;
}

std::optional<PromotionId> Tiering::try_promote(NamespaceId ns, std::span<const TokenId> tokens,
                                                Promotion::Attendance attendance) {
  const auto text = whole_pages(tokens);
  if (const auto joined = promotions_.try_join(ns, text, Tier::kDevice)) return joined;
  if (!can_promote(ns, tokens)) return std::nullopt;
  return promotions_.try_begin(ns, text, Tier::kDevice, attendance);
}

void Tiering::bring_behind(NamespaceId ns, std::span<const TokenId> tokens) {
  const auto id = try_promote(ns, tokens, Promotion::Attendance::kUnattended);
  if (id.has_value()) promotions_.leave(*id);
}

// Some places are left to texts of host memory, which hangs never: page stores may.
bool Tiering::can_promote(NamespaceId ns, std::span<const TokenId> tokens) const {
  const std::int64_t free_places = promotions_.free_places();
  if (free_places > options_.promotions_max / 4) return true;
  return free_places > 0 && host_has_more(ns, whole_pages(tokens));
}

// Than the device; of windows it is not known.
bool Tiering::host_has_more(NamespaceId ns, std::span<const TokenId> tokens) const {
  const bool windowed = device_.windowed_or_null != nullptr;
  const std::int64_t has = windowed ? 0 : device_.tree.probe(ns, tokens).matched_tokens;
  return probe_host(ns, tokens) > has;
}

bool Tiering::asks_stores(const NamespaceDigest& digest) const {
  for (std::size_t i = 0; i < stores_.size(); ++i) {
    const bool asks = !stores_[i]->lookup_is_local();
    if (asks && purges_.usable(static_cast<int>(i), digest)) return true;
  }
  return false;
}

bool Tiering::try_prefetch(NamespaceId ns, std::span<const TokenId> tokens) {
  if (stores_.empty()) return true;
  const auto text = whole_pages(tokens);
  auto id = promotions_.try_join(ns, text, Tier::kHost);
  if (!id.has_value()) {
    if (promotions_.free_places() <= options_.promotions_max / 2) return false;
    id = promotions_.try_begin(ns, text, Tier::kHost, Promotion::Attendance::kUnattended);
  }
  if (id.has_value()) promotions_.leave(*id);
  return true;
}

void Tiering::visit_metrics(MetricVisitor& visitor) const {
  const auto of = [](const std::array<std::int64_t, 4>& counter, Tier tier) {
    return counter[static_cast<std::size_t>(tier)];
  };
  visitor.gauge("stemma_host_pages", host_->allocator().total_pages());
  visitor.gauge("stemma_host_free_pages", host_->allocator().free_pages());
  visitor.gauge("stemma_host_locked_pages",
                host_->tree().usage().locked_tokens / host_->tree().page_size());
  visitor.gauge("stemma_host_arriving_pages", host_->allocator().owned_pages());
  visitor.counter("stemma_backed_up_pages_total", counters_.backed_up);
  visitor.counter("stemma_unbacked_pages_total",
                  counters_.unbacked + device_.tree.debts().written_off_pages());
  visitor.gauge("stemma_owed_backup_pages", device_.tree.debts().owed_pages());
  if (const WindowedPages* const windowed = host_->windowed_or_null(); windowed != nullptr) {
    visitor.gauge("stemma_host_windowed_pages", windowed->total_pages());
    visitor.gauge("stemma_host_windowed_free_pages", windowed->free_pages());
    visitor.counter("stemma_windowed_backed_up_pages_total", counters_.windowed_backed_up);
    visitor.counter("stemma_windowed_loaded_pages_total", counters_.windowed_loaded);
  }
  visitor.counter("stemma_stored_pages_total", counters_.stored);
  visitor.counter("stemma_unstored_pages_total",
                  counters_.unstored + host_->tree().debts().written_off_pages());
  visitor.gauge("stemma_owed_pages", host_->tree().debts().owed_pages());
  visitor.counter("stemma_host_loaded_pages_total", of(counters_.loaded, Tier::kHost));
  visitor.counter("stemma_disk_loaded_pages_total", of(counters_.loaded, Tier::kDisk));
  visitor.counter("stemma_remote_loaded_pages_total", of(counters_.loaded, Tier::kRemote));
  visitor.counter("stemma_host_load_corrupt_pages_total", of(counters_.corrupt, Tier::kHost));
  visitor.counter("stemma_disk_load_corrupt_pages_total", of(counters_.corrupt, Tier::kDisk));
  visitor.counter("stemma_remote_load_corrupt_pages_total", of(counters_.corrupt, Tier::kRemote));
  visitor.counter("stemma_disk_load_missing_pages_total", of(counters_.missing, Tier::kDisk));
  visitor.counter("stemma_remote_load_missing_pages_total", of(counters_.missing, Tier::kRemote));
  visitor.counter("stemma_disk_load_failed_pages_total", of(counters_.failed, Tier::kDisk));
  visitor.counter("stemma_remote_load_failed_pages_total", of(counters_.failed, Tier::kRemote));
  visitor.counter("stemma_quarantined_subtrees_total", counters_.quarantined);
  visitor.gauge("stemma_wrong_stored_pages", removals_.pages());
  visitor.gauge("stemma_pending_purges", purges_.pending());
  visitor.gauge("stemma_host_file_not_removed", host_file_.stays() ? 1 : 0);
  visitor.gauge("stemma_purge_file_not_written", purge_file_lags_ ? 1 : 0);
  visitor.counter("stemma_device_purged_pages_total", of(counters_.purged, Tier::kDevice));
  visitor.counter("stemma_host_purged_pages_total", of(counters_.purged, Tier::kHost));
  visitor.counter("stemma_overtaken_pages_total", counters_.overtaken);
  visitor.counter("stemma_promotions_total", counters_.promotions);
  visitor.counter("stemma_declined_pages_total", counters_.declined);
  visitor.counter("stemma_lent_pages_total", counters_.lent);
  visitor.counter("stemma_void_loans_total", counters_.void_loans);
  visitor.counter("stemma_host_file_loaded_pages_total", counters_.host_file_loaded);
  visitor.counter("stemma_host_file_left_out_pages_total", counters_.host_file_left_out);
  visitor.gauge("stemma_host_file_saved_pages", counters_.host_file_saved);
  for (const PageStore* store : stores_) store->visit_metrics(visitor);
}

std::optional<std::string> Tiering::audit() const {
  const PageAllocator& pages = host_->allocator();
  if (auto contradiction = pages.audit()) return "host allocator: " + *contradiction;
  if (auto contradiction = host_->tree().audit()) return "host tree: " + *contradiction;
  const std::int64_t in_tree = host_->tree().usage().total_tokens() / host_->tree().page_size();
  if (in_tree != pages.released_pages()) {
    return fmt::format("I1: {} pages in the host's tree, {} given to it", in_tree,
                       pages.released_pages());
  }
  const std::int64_t moving =
      transfers_.target_pages(TransferKind::kBackup) + promotions_.owned_pages(Tier::kHost);
  if (moving != pages.owned_pages()) {
    return fmt::format("I1: {} host pages on their way, {} handed out", moving,
                       pages.owned_pages());
  }
  return audit_windowed();
}

std::optional<std::string> Tiering::audit_windowed() const {
  const WindowedPages* const windowed = host_->windowed_or_null();
  if (windowed == nullptr) return std::nullopt;
  std::vector<std::int32_t> holders(static_cast<std::size_t>(windowed->total_pages()));
  const std::int64_t taken = count_windowed(*windowed, holders);
  if (auto contradiction = windowed->audit(holders, taken)) return "host: " + *contradiction;
  return std::nullopt;
}

std::int64_t Tiering::count_windowed(const WindowedPages& pages,
                                     std::span<std::int32_t> holders) const {
  std::int64_t taken = promotions_.count_windowed(pages, holders);
  transfers_.for_each_underway([&](const TransferTicket& ticket) {
    ticket.windowed_source.count(pages, holders);
    taken += ticket.windowed_target.count(pages, holders);
  });
  return taken;
}

}  // namespace stemma
