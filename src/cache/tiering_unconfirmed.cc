// What stores are to forget, and have not confirmed, from an earlier life and for the next one: the
// part of Tiering that reads and writes the purge file.
#include <array>
#include <string>
#include <utility>

#include "cache/tiering.h"
#include "stemma/log.h"

namespace stemma {

// As long as a write may have blocked the engine's thread, so that it does so seldom.
constexpr std::int64_t kKeepPauseUs = 10'000'000;

Tiering::~Tiering() {
  if (purge_file_or_null_ != nullptr) write_unconfirmed();
}

// What is being brought up goes first, so that nothing of it is published afterwards.
PurgeId Tiering::purge(std::span<const NamespaceFamily> namespaces) {
  promotions_.give_up_namespaces(namespaces);
  std::array<std::int64_t, 4> pages = {};
  pages[static_cast<std::size_t>(Tier::kDevice)] = device_.tree.purge(namespaces);
  pages[static_cast<std::size_t>(Tier::kHost)] = host_->tree().purge(namespaces);
  for (std::size_t tier = 0; tier < pages.size(); ++tier) counters_.purged[tier] += pages[tier];
  host_file_.forget();  // it is as old as this life, and has what is purged
  const PurgeId id = purges_.add(namespaces, pages);
  keep_unconfirmed();  // who is given the id may rely on it, however this life ends
  return id;
}

std::optional<PurgeReport> Tiering::purge_report(PurgeId id) const {
  std::optional<PurgeReport> report = purges_.report(id);
  if (!host_file_.stays() || !purges_.was_added(id)) return report;
  if (!report.has_value()) report.emplace();
  report->pending.insert(report->pending.begin(), Tier::kHost);
  return report;
}

// Of each store that is known by this label; whether there is one.
template <typename Restore>
bool Tiering::restore_at(const std::string& label, Restore restore) {
  bool found = false;
  for (std::size_t i = 0; i < stores_.size(); ++i) {
    if (purge_label(*stores_[i]) != label) continue;
    restore(static_cast<int>(i));
    found = true;
  }
  return found;
}

// A file that is damaged may have said that anything is wrong.
void Tiering::restore_unconfirmed() {
  if (purge_file_or_null_ == nullptr) return host_file_.load();
  const Unconfirmed* const said = purge_file_or_null_->said_or_null();
  if (said == nullptr) {
    STEMMA_LOG(kError, "cache.purge_file.damaged", kv("path", purge_file_or_null_->path()));
    for (std::size_t i = 0; i < stores_.size(); ++i) purges_.restore(static_cast<int>(i), {});
    return host_file_.forget();
  }
  for (const UnconfirmedPurge& purge : said->purges) {
    const auto restore = [&](int store) { purges_.restore(store, purge); };
    if (!restore_at(purge.store, restore)) of_others_.purges.push_back(purge);
  }
  for (const UnconfirmedRemoval& removal : said->removals) {
    const auto restore = [&](int store) { removals_.restore(store, removal); };
    if (!restore_at(removal.store, restore)) of_others_.removals.push_back(removal);
  }
  for (const WrongShared& wrong : said->shared) {
    if (!device_.grafts.try_note_wrong(wrong.digest, wrong.tokens)) forget_stored();
  }
  if (said->host_file) {
    host_file_.forget();
  } else {
    host_file_.load();
  }
}

Unconfirmed Tiering::unconfirmed() const {
  Unconfirmed out = of_others_;
  out.host_file = host_file_.stays();
  purges_.list_unconfirmed(out);
  removals_.list_unconfirmed(out);
  out.shared = device_.grafts.wrong();
  return out;
}

Tiering::UnconfirmedMark Tiering::unconfirmed_mark() const {
  return {.additions = purges_.additions() + removals_.additions(),
          .wrong_shared_changes = device_.grafts.wrong_changes(),
          .none_left = !removing(),
          .host_file_stays = host_file_.stays()};
}

// What becomes more is written at once, what becomes less not before nothing is left, nor often: to
// forget something twice costs time alone, and who has the same purged again and again has it
// written once in a while.
void Tiering::keep_unconfirmed() {
  if (purge_file_or_null_ == nullptr) return;
  const UnconfirmedMark mark = unconfirmed_mark();
  if (mark == kept_mark_) return;
  if (clock_.now_us() >= (is_more(mark) ? keep_again_us_ : keep_less_us_)) write_unconfirmed();
}

// Than the file says.
bool Tiering::is_more(const UnconfirmedMark& mark) const {
  return !kept_mark_.has_value() || mark.additions != kept_mark_->additions ||
         mark.wrong_shared_changes != kept_mark_->wrong_shared_changes ||
         (mark.host_file_stays && !kept_mark_->host_file_stays);
}

bool Tiering::removing_before_end() const {
  const bool is_told = purge_file_or_null_ != nullptr && !is_more(unconfirmed_mark());
  return removing() && (!is_told || removals_.gets_on() || purges_.gets_on());
}

void Tiering::write_unconfirmed() {
  const UnconfirmedMark mark = unconfirmed_mark();
  const Unconfirmed now = unconfirmed();
  const Unconfirmed* const said = purge_file_or_null_->said_or_null();
  const bool is_said = said != nullptr && *said == now;
  const Status kept = is_said ? Status() : purge_file_or_null_->keep(now);
  purge_file_lags_ = !kept.ok();
  keep_less_us_ = clock_.now_us() + kKeepPauseUs;
  if (kept.ok()) {
    kept_mark_ = mark;
    return;
  }
  STEMMA_LOG(kWarning, "cache.purge_file.not_written", kv("error", to_string(kept.error())));
  keep_again_us_ = keep_less_us_;
}

}  // namespace stemma
