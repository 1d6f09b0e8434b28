#include "cache/promotion.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "prefix/page_key.h"

namespace stemma {

void Promotion::begin(NamespaceId device_ns, std::span<const TokenId> tokens, Tier target,
                      Attendance attendance, std::int64_t cookie) {
  STEMMA_CHECK(!active_, "one text at a time");
  STEMMA_CHECK_EQ(static_cast<std::int64_t>(tokens.size()) % page_size(), 0);
  const NamespaceId host_ns = parts_.host.name_namespace(device_ns);
  if (!host_ns.valid()) return;
  active_ = true;
  abandoned_ = false;
  target_ = target;
  attended_ = target == Tier::kDevice && attendance == Attendance::kAttended;
  device_ns_ = device_ns;
  cookie_ = cookie;
  digest_ = parts_.host.tree().digest(host_ns);
  tokens_.assign(tokens.begin(), tokens.end());
  pieces_.clear();
  lookups_ = 0;
  window_next_ = window_end_ = 0;
  window_store_ = -1;
  wrong_host_page_ = -1;
  outcome_ = {};
  RadixPrefixCache& host = parts_.host.tree();
  host_ = host.extend(host.match(host_ns, {}), tokens_);
  parts_.host.use_shared(device_ns);
  anchor_ = target == Tier::kHost
                ? host.share(host_)
                : parts_.device.extend(parts_.device.match(device_ns, {}), tokens_);
  if (windowed()) copy_rows();
  asked_ = false;
  look_below(anchor_.tokens() / page_size());
  const bool too_long = decide() > parts_.options.load_wait_us;
  if (windowed() && lookups_ == 0) settle_window(0);
  join_host_pieces();
  wait_until_us_ = parts_.clock.now_us() + (too_long ? 0 : parts_.options.load_wait_us);
  advance();
}

bool Promotion::bringing() const noexcept {
  const auto wanted = [](const Piece& piece) { return piece.state == PieceState::kWanted; };
  return active_ && !abandoned_ &&
         (underway_ > 0 || window_next_ < window_end_ ||
          std::any_of(pieces_.begin(), pieces_.end(), wanted));
}

std::int64_t Promotion::owned_pages() const {
  std::int64_t pages = parts_.transfers.promised_pages(cookie_);
  for (const Piece& piece : pieces_) pages += piece.arrived.pages();
  return pages;
}

Transfer* Promotion::lendable_or_null() const {
  const auto open = [](const Piece& piece) { return piece.state != PieceState::kGone; };
  const auto piece = std::find_if(pieces_.begin(), pieces_.end(), open);
  if (!active_ || abandoned_ || target_ != Tier::kDevice || underway_ != 1) return nullptr;
  if (windowed()) return nullptr;  // windowed pages are not lent
  if (piece == pieces_.end() || piece->state != PieceState::kLoading) return nullptr;
  const bool alone = std::none_of(std::next(piece), pieces_.end(), open);
  if (!alone || piece->first_page * page_size() > anchor_.tokens()) return nullptr;
  return parts_.transfers.only_job_or_null(TransferKind::kPromote, cookie_);
}

bool Promotion::covers(NamespaceId device_ns, std::span<const TokenId> tokens, Tier target) const {
  if (!active_ || abandoned_ || target != target_) return false;
  if (parts_.device.digest(device_ns) != digest_) return false;
  const auto common = std::mismatch(tokens_.begin(), tokens_.end(), tokens.begin(), tokens.end());
  const std::int64_t pages = (common.first - tokens_.begin()) / page_size();
  return pages > anchor_.tokens() / page_size() || (window_end_ > 0 && pages >= window_end_);
}

bool Promotion::passes(const NamespaceDigest& digest, std::span<const TokenId> text) const {
  return active_ && is_of(digest, text);
}

bool Promotion::serves(NamespaceId device_ns, std::span<const TokenId> text) const {
  return !abandoned_ && is_of(parts_.device.digest(device_ns), text);
}

// By the digest: what is brought to host memory holds no name of the device.
bool Promotion::is_of(const NamespaceDigest& digest, std::span<const TokenId> text) const {
  return digest == digest_ && text.size() <= tokens_.size() &&
         std::equal(text.begin(), text.end(), tokens_.begin());
}

RadixPrefixCache& Promotion::target_tree() {
  return target_ == Tier::kHost ? parts_.host.tree() : parts_.device;
}

PageSpace& Promotion::target_space() {
  return target_ == Tier::kHost ? parts_.host.space() : parts_.device_space;
}

std::span<const TokenId> Promotion::text_to(std::int64_t end_page) const {
  return std::span(tokens_).first(static_cast<std::size_t>(end_page * page_size()));
}

const PageKey& Promotion::key(std::int64_t page) const {
  const std::int64_t place = page - first_key_page_ + 1;
  STEMMA_CHECK(0 <= place && place < std::ssize(keys_), "a page whose key was found");
  return keys_[static_cast<std::size_t>(place)];
}

// Keys of the pages from `first_page` on, and of the one before: as far as host memory goes they
// are known there, from then on they are computed.
void Promotion::find_keys(std::int64_t first_page) {
  const std::int64_t host_pages = host_.tokens() / page_size();
  const std::int64_t from = std::min(first_page, host_pages);
  first_key_page_ = from;
  keys_.assign(1, PageKeyHasher::root(digest_));
  if (from > 0) {
    keys_.resize(static_cast<std::size_t>(host_pages - from + 1));
    host_.copy_page_keys(from - 1, keys_);
  } else {
    keys_.resize(static_cast<std::size_t>(host_pages + 1));
    host_.copy_page_keys(0, std::span(keys_).subspan(1));
  }
  PageKeyHasher hasher;
  const auto size = static_cast<std::size_t>(page_size());
  for (std::int64_t page = host_pages; page < text_pages(); ++page) {
    const auto tokens = std::span(tokens_).subspan(static_cast<std::size_t>(page) * size, size);
    keys_.push_back(hasher.next(keys_.back(), tokens));
  }
}

// What the target lacks: first as far as host memory goes, then what the stores have beyond.
void Promotion::look_below(std::int64_t first_page) {
  const std::int64_t host_end = host_.tokens() / page_size();
  if (windowed()) {
    if (parts_.stores.empty() && host_end == 0) return;
    find_keys(parts_.window.first_page_before(usable_pages()));  // no window is looked for before
  } else {
    if (first_page == text_pages()) return;
    if (parts_.stores.empty() && host_end <= first_page) return;
    find_keys(first_page);
  }
  if (host_end > first_page) add_pieces(first_page, host_end, Tier::kHost, 0);
  look_in_stores(0, std::max(first_page, host_end));
}

void Promotion::look_in_stores(std::size_t store, std::int64_t first_page) {
  for (; store < parts_.stores.size() && first_page < text_pages(); ++store) {
    PageStore& from = *parts_.stores[store];
    if (!parts_.purges.usable(static_cast<int>(store), digest_)) continue;
    if (!from.lookup_is_local()) return look_remote(static_cast<int>(store), first_page);
    const auto found = from.lookup(keys_for_stores(first_page), parts_.clock.now_us());
    const std::int64_t end_page = first_page + (found.ok() ? *found : 0);
    add_pieces(first_page, end_page, from.tier(), static_cast<int>(store));
    first_page = end_page;
  }
}

// Those of the pages from there on that stores may be asked for.
std::span<const PageKey> Promotion::keys_for_stores(std::int64_t first_page) {
  const auto keys =
      std::span(keys_).subspan(static_cast<std::size_t>(first_page - first_key_page_ + 1));
  const std::int64_t usable = parts_.removals.usable_pages(keys);
  return keys.first(static_cast<std::size_t>(usable));
}

void Promotion::look_remote(int store, std::int64_t first_page) {
  const auto wanted = keys_for_stores(first_page);
  if (wanted.empty()) return;
  auto ticket = parts_.transfers.try_open(TransferKind::kLookup, store);
  if (!ticket.has_value()) return;
  Transfer& job = ticket->job();
  job.digest = digest_;
  job.first_page = first_page;
  job.deadline_us = parts_.clock.now_us() + parts_.options.store_deadline_us;
  job.keys.assign(wanted.begin(), wanted.end());
  ticket->cookie = cookie_;
  ++underway_;
  ++lookups_;
  parts_.transfers.submit(std::move(*ticket));
}

void Promotion::add_pieces(std::int64_t first_page, std::int64_t end_page, Tier tier, int store) {
  for (std::int64_t page = first_page; page < end_page;) {
    const std::int64_t pages = std::min(end_page - page, parts_.options.load_pages_max);
    Piece& piece = pieces_.emplace_back();
    piece.first_page = page;
    piece.pages = pages;
    piece.tier = tier;
    piece.store = store;
    page += pages;
  }
}

// Loading a piece from the back takes its time while the front is computed: as long as all that is
// asked for is there before computing it would be, the request is no later for it. What is beyond
// that is not asked for. A tier or a model never seen at work is given the chance, and with one
// piece so is a tier that was left alone for a while. What has that chance keeps it when this is
// decided again. Returns how long the loads will take, as far as that is known.
std::int64_t Promotion::decide() {
  std::int64_t load_us = 0;
  for (auto piece = pieces_.rbegin(); piece != pieces_.rend(); ++piece) {
    if (piece->state != PieceState::kWanted) continue;
    const std::int64_t gap_tokens = piece->end_page() * page_size() - anchor_.tokens();
    const auto load = parts_.costs.load_us(piece->tier, piece->pages);
    const auto compute = parts_.costs.compute_us(anchor_.tokens(), gap_tokens);
    const bool is_late = load.has_value() && compute.has_value() && load_us + *load > *compute;
    if (is_late && !piece->by_doubt) {
      if (!may_doubt(*piece)) {
        decline(*piece);
        continue;
      }
      piece->by_doubt = true;
    }
    load_us += load.value_or(0);
  }
  return load_us;
}

// Not where nobody computes what is missing before it. Nor where more of its tier, behind it, is
// brought anyway: that will say what the tier costs now.
bool Promotion::may_doubt(const Piece& piece) const {
  if (!attended_ || !parts_.costs.may_doubt(piece.tier, parts_.clock.now_us())) return false;
  return std::none_of(pieces_.rbegin(), pieces_.rend(), [&](const Piece& other) {
    return other.tier == piece.tier && other.first_page > piece.first_page &&
           other.state != PieceState::kGone;
  });
}

void Promotion::decline(Piece& piece) {
  piece.state = PieceState::kGone;
  parts_.counters.declined += piece.pages;
}

// Decided on one by one, copied as one: a layer of all of them comes before the next layer of any.
void Promotion::join_host_pieces() {
  const auto joins = [](const Piece& piece) {
    return piece.state == PieceState::kWanted && piece.tier == Tier::kHost;
  };
  if (target_ != Tier::kDevice) return;
  const auto first = std::find_if(pieces_.begin(), pieces_.end(), joins);
  auto end = first;
  for (; end != pieces_.end() && joins(*end); ++end) {
    if (end != first) first->pages += end->pages;
  }
  if (first != end) pieces_.erase(std::next(first), end);
}

void Promotion::advance() {
  if (!active_) return;
  if (abandoned_) {
    const bool copies = std::any_of(pieces_.begin(), pieces_.end(), [](const Piece& piece) {
      return piece.state == PieceState::kLoading && piece.tier == Tier::kHost;
    });
    if (!copies) let_host_go();
    if (underway_ == 0) end();
    return;
  }
  if (windowed() && lookups_ > 0) return;  // what is worth bringing is not known yet
  publish();
  if (!attended_ && has_hole()) return abandon();
  if (target_space().frees_at_once()) {  // else it is asked for once the steps have retired
    ask();
    ask_for_window();
  }
  const bool waiting =
      window_next_ < window_end_ ||
      std::any_of(pieces_.begin(), pieces_.end(), [](const Piece& piece) {
        return piece.state == PieceState::kWanted || piece.state == PieceState::kArrived;
      });
  if (underway_ == 0 && !waiting) end();
}

// Whether a page is missing that nobody will bring, before others that are there or on their way.
bool Promotion::has_hole() const {
  const auto next = std::find_if(pieces_.begin(), pieces_.end(), [](const Piece& piece) {
    return piece.state != PieceState::kGone;
  });
  return next != pieces_.end() && next->first_page > anchor_.tokens() / page_size();
}

void Promotion::publish() {
  anchor_ = target_tree().extend(std::move(anchor_), tokens_);
  for (Piece& piece : pieces_) {
    const std::int64_t has = anchor_.tokens() / page_size();
    if (piece.state == PieceState::kLoading || piece.state == PieceState::kGone) continue;
    if (piece.end_page() <= has) {  // somebody else was faster
      if (piece.state == PieceState::kArrived) parts_.counters.overtaken += piece.pages;
      piece.arrived.reset();
      piece.state = PieceState::kGone;
    } else if (piece.state == PieceState::kArrived && piece.first_page <= has) {
      publish_piece(piece);
    }
  }
  if (windowed()) hang_windows();
}

void Promotion::publish_piece(Piece& piece) {
  const std::int64_t has = anchor_.tokens() / page_size();
  const std::int64_t late = has - piece.first_page;
  parts_.counters.overtaken += late;
  piece.arrived.take_front(late).reset();
  const std::int64_t fresh = piece.arrived.pages();
  const auto text = text_to(piece.end_page());
  anchor_ = target_tree().insert(text, std::move(anchor_), std::move(piece.arrived), {});
  if (target_ == Tier::kHost) parts_.host.use_shared(device_ns_);
  piece.state = PieceState::kGone;
  parts_.counters.of(&TierCounters::loaded, piece.tier) += fresh;
  outcome_.tokens.of(piece.tier) += fresh * page_size();
}

// From the back where a request may compute from the front; from the front where nobody does, so
// that what has come is of use whenever it ends.
void Promotion::ask() {
  const auto wanted = [](const Piece& piece) { return piece.state == PieceState::kWanted; };
  if (attended_) {
    for (auto piece = pieces_.rbegin(); piece != pieces_.rend(); ++piece) {
      if (wanted(*piece) && !ask_for(*piece)) return;
    }
  } else {
    for (Piece& piece : pieces_) {
      if (wanted(piece) && !ask_for(piece)) return;
    }
  }
}

// False if there is no ticket now. Only what is asked for is a trial of its tier; another text may
// have been one meanwhile.
bool Promotion::ask_for(Piece& piece) {
  const std::int64_t now_us = parts_.clock.now_us();
  if (piece.by_doubt && !parts_.costs.may_doubt(piece.tier, now_us)) {
    decline(piece);
    return true;
  }
  const TransferKind kind = piece.tier == Tier::kHost  ? TransferKind::kPromote
                            : target_ == Tier::kDevice ? TransferKind::kLoad
                                                       : TransferKind::kFetch;
  auto ticket = parts_.transfers.try_open(kind, piece.store);
  if (!ticket.has_value()) return false;
  if (!take_pages_for(piece, *ticket)) {
    piece.state = PieceState::kGone;
    return true;
  }
  fill(ticket->job(), piece);
  ticket->job().to.resize(static_cast<std::size_t>(piece.pages));
  ticket->target.copy_to(ticket->job().to);
  ticket->cookie = cookie_;
  parts_.costs.asked(piece.tier, now_us);
  if (piece.by_doubt) parts_.costs.doubt(piece.tier);
  piece.state = PieceState::kLoading;
  if (!std::exchange(asked_, true)) ++parts_.counters.promotions;
  ++underway_;
  parts_.transfers.submit(std::move(*ticket));
  return true;
}

// Without pages for it a piece is given up: they are needed more elsewhere. Of what comes from host
// memory as much as fits is worth bringing.
bool Promotion::take_pages_for(Piece& piece, TransferTicket& ticket) {
  if (piece.tier == Tier::kHost) {
    ticket.target = target_space().take_up_to(piece.pages);
    piece.pages = ticket.target.pages();
    return piece.pages > 0;
  }
  std::optional<OwnedPages> target = target_space().try_take(piece.pages);
  if (target.has_value()) ticket.target = std::move(*target);
  return target.has_value();
}

// What a job says of the pages that it moves.
void Promotion::name_pages(Transfer& job, std::int64_t first_page, std::int64_t end_page) const {
  job.digest = digest_;
  job.first_page = first_page;
  job.deadline_us = parts_.clock.now_us() + parts_.options.store_deadline_us;
  job.parent = key(first_page - 1);
  for (std::int64_t page = first_page; page < end_page; ++page) job.keys.push_back(key(page));
  const auto text = text_to(end_page);
  const auto tokens = text.subspan(static_cast<std::size_t>(first_page * page_size()));
  job.tokens.assign(tokens.begin(), tokens.end());
}

void Promotion::fill(Transfer& job, const Piece& piece) const {
  name_pages(job, piece.first_page, piece.end_page());
  if (piece.tier != Tier::kHost) return;
  job.from.resize(static_cast<std::size_t>(host_.tokens() / page_size() - piece.first_page));
  host_.copy_pages(piece.first_page, job.from);
  job.from.resize(job.keys.size());
}

void Promotion::landed(TransferTicket ticket) {
  STEMMA_CHECK(active_ && ticket.cookie == cookie_, "a ticket comes back to its promotion");
  --underway_;
  const Transfer& job = ticket.job();
  if (job.kind == TransferKind::kLookup) return landed_lookup(job);
  if (job.group == LayerGroup::kWindowed) return landed_window(ticket);
  const auto piece = std::find_if(pieces_.begin(), pieces_.end(), [&](const Piece& other) {
    return other.first_page == job.first_page && other.state == PieceState::kLoading;
  });
  STEMMA_CHECK(piece != pieces_.end(), "what lands was asked for");
  landed_piece(ticket, *piece);
}

void Promotion::landed_lookup(const Transfer& job) {
  --lookups_;
  if (abandoned_) return;
  if (job.group == LayerGroup::kWindowed) return landed_window_lookup(job);
  const Tier tier = parts_.stores[static_cast<std::size_t>(job.store)]->tier();
  const std::int64_t end_page = job.first_page + job.found_pages;
  add_pieces(job.first_page, end_page, tier, job.store);
  look_in_stores(static_cast<std::size_t>(job.store) + 1, end_page);
  decide();
  if (windowed() && lookups_ == 0) settle_window(0);
}

// The usable beginning follows from the verdicts. What is behind a page that is missing is not lost
// with it where a request computes that page; here it is given up.
void Promotion::landed_piece(TransferTicket& ticket, Piece& piece) {
  const Transfer& job = ticket.job();
  const std::int64_t done = job.done_pages();
  if (!job.cancelled.load(std::memory_order_relaxed)) {
    count_losses(job, piece.tier);
    if (done < piece.pages) outcome_.lost_pages = true;
  }
  outcome_.us.of(piece.tier) += job.ended_us - job.started_us;
  if (done == piece.pages) parts_.costs.loaded(piece.tier, done, job.ended_us - job.started_us);
  const bool usable = done > 0 && !abandoned_;
  piece.state = usable ? PieceState::kArrived : PieceState::kGone;
  if (usable) piece.arrived = ticket.target.take_front(done);
  piece.pages = done;
}

void Promotion::count_losses(const Transfer& job, Tier tier, bool of_text) {
  for (std::size_t i = 0; i < job.verdicts.size(); ++i) {
    switch (job.verdicts[i]) {
      case PageVerdict::kDone:
        break;
      case PageVerdict::kMissing:
        ++parts_.counters.of(&TierCounters::missing, tier);
        break;
      case PageVerdict::kCorrupt:
        ++parts_.counters.of(&TierCounters::corrupt, tier);
        if (of_text && tier == Tier::kHost && wrong_host_page_ < 0) {
          wrong_host_page_ = job.first_page + static_cast<std::int64_t>(i);
        }
        break;
      case PageVerdict::kRefused:
      case PageVerdict::kFailed:
        ++parts_.counters.of(&TierCounters::failed, tier);
        break;
    }
  }
}

void Promotion::abandon() {
  if (!active_ || abandoned_) return;
  publish();
  abandoned_ = true;
  for (Piece& piece : pieces_) {
    piece.arrived.reset();
    if (piece.state != PieceState::kLoading) piece.state = PieceState::kGone;
  }
  window_next_ = window_end_;
  window_pieces_.clear();
  anchor_ = PrefixLock();
  parts_.transfers.abandon(cookie_);
  advance();
}

void Promotion::end() {
  active_ = false;
  pieces_.clear();
  window_pieces_.clear();
  anchor_ = PrefixLock();
  let_host_go();
}

// The lock goes first: what was found wrong in host memory can then be dropped.
void Promotion::let_host_go() {
  if (!host_.valid()) return;
  const NamespaceId host_ns = host_.namespace_id();
  host_ = PrefixLock();
  if (wrong_host_page_ < 0) return;
  if (parts_.host.tree().try_discard(host_ns, tokens_, wrong_host_page_ * page_size())) {
    ++parts_.counters.quarantined;
  }
}

}  // namespace stemma
