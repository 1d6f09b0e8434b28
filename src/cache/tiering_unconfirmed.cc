// What stores have not confirmed to have forgotten, from an earlier life and for the next one: the
// part of Tiering that reads and writes the purge file.
#include <string>
#include <utility>

#include "cache/tiering.h"
#include "stemma/log.h"

namespace stemma {

// As long as a write may have blocked the engine's thread, so that it does so seldom.
constexpr std::int64_t kKeepPauseUs = 10'000'000;

Tiering::~Tiering() {
  if (purge_file_or_null_ != nullptr) write_unconfirmed(/*all=*/true);
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

Unconfirmed Tiering::unconfirmed(bool all) const {
  Unconfirmed out = of_others_;
  out.host_file = host_file_.stays();
  purges_.list_unconfirmed(all, out);
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

// What becomes less is not written before nothing is left: to forget something twice costs time
// alone.
void Tiering::keep_unconfirmed() {
  if (purge_file_or_null_ == nullptr || unconfirmed_mark() == kept_mark_) return;
  if (clock_.now_us() >= keep_again_us_) write_unconfirmed(/*all=*/false);
}

void Tiering::write_unconfirmed(bool all) {
  const UnconfirmedMark mark = unconfirmed_mark();
  const Unconfirmed now = unconfirmed(all);
  const Unconfirmed* const said = purge_file_or_null_->said_or_null();
  const bool is_said = said != nullptr && *said == now;
  const Status kept = is_said ? Status() : purge_file_or_null_->keep(now);
  purge_file_lags_ = !kept.ok();
  if (kept.ok()) {
    kept_mark_ = mark;
    return;
  }
  STEMMA_LOG(kWarning, "cache.purge_file.not_written", kv("error", to_string(kept.error())));
  keep_again_us_ = clock_.now_us() + kKeepPauseUs;
}

}  // namespace stemma
