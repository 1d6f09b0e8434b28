// What a request found is learned when it ends, not when it begins: its pages' records are as the
// requests before it left them, and ghosts of pages that it computed anew have come back with
// `published`. Ages are taken at its begin.
#include "prefix/hazard_policy.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/check.h"
#include "base/math.h"
#include "prefix/page_fingerprint.h"

namespace stemma {

namespace {

constexpr std::array<double, 3> kBiasFactors = {0.25, 1, 4};

std::uint16_t saturated(std::int64_t value) noexcept {
  return static_cast<std::uint16_t>(
      std::min<std::int64_t>(value, std::numeric_limits<std::uint16_t>::max()));
}

std::int8_t bias_of(const RequestEnd& end) noexcept {
  const bool up = end.retention == Retention::kLong || end.priority > 0;
  const bool down = end.retention == Retention::kShort || end.session_closed || end.priority < 0;
  return static_cast<std::int8_t>((up ? 1 : 0) - (down ? 1 : 0));
}

}  // namespace

HazardPolicy::HazardPolicy(const PagePolicyOptions& options)
    : clock_(*options.clock),
      page_size_(options.page_size),
      pages_(options.pages),
      ghosts_(std::max<std::int64_t>(options.pages * kGhostsPerPage, 1)),
      records_(static_cast<std::size_t>(options.pages)),
      queues_(options.nodes_max, kKinds),
      last_pages_(static_cast<std::size_t>(options.nodes_max)),
      ends_(kKinds) {}

void HazardPolicy::published(const Published& what) {
  std::uint64_t fingerprint = what.above.valid() ? records_[what.above.index()].fingerprint
                                                 : root_fingerprint(what.namespace_seed);
  const auto page_size = static_cast<std::size_t>(page_size_);
  const std::int64_t now_us = clock_.now_us();
  for (std::size_t i = 0; i < what.pages.size(); ++i) {
    fingerprint = next_fingerprint(fingerprint, what.tokens.subspan(i * page_size, page_size));
    ghosts_.prefetch(fingerprint);
    PageRecord& record = records_[what.pages[i].index()];
    record = PageRecord();
    record.fingerprint = fingerprint;
    record.used_us = now_us;
    record.request = requests_;
    record.page_class = PageClass::kClasses;
  }
  for (const PageId page : what.pages) ghosts_.prefetch_ghost(records_[page.index()].fingerprint);
  for (const PageId page : what.pages) {
    PageRecord& record = records_[page.index()];
    const std::optional<PageRecord> ghost = ghosts_.take(record.fingerprint);
    if (!ghost.has_value()) continue;
    record = *ghost;
    record.came_back = true;
  }
}

void HazardPolicy::completed(std::span<const PageId> path, const PathPlaces& places,
                             const RequestEnd& end) {
  if (places.text_pages == 0) return;
  advance_time();
  ++requests_;
  const Ending ending = look_at(path, places, end);
  leave_classes(path, ending);
  enter_classes(path, ending);
  // A round has the pages of so many requests: where a cache has a sample of them, rounds are as
  // many times longer, for few pages would make either side win by chance.
  round_requests_ += static_cast<double>(path.size()) / static_cast<double>(places.text_pages);
  if (round_requests_ >= LruDuel::kRequestsPerRound) {
    round_requests_ -= LruDuel::kRequestsPerRound;
    duel_.end_round();
  }
  if (table_.count_request(now_us_)) stale_ = filled_;
}

HazardPolicy::Ending HazardPolicy::look_at(std::span<const PageId> path, const PathPlaces& places,
                                           const RequestEnd& end) const {
  Ending ending;
  ending.places = places;
  ending.begun_us = end.begun_us.value_or(now_us_);
  ending.bias = bias_of(end);
  for (std::size_t i = path.size(); i > 0 && ending.known_pages == 0; --i) {
    if (record(path[i - 1]).known) ending.known_pages = static_cast<std::int64_t>(i);
  }
  const std::int64_t found_pages = find_continued(path, ending);
  const std::int64_t pages = places.text_pages;
  const std::int64_t prompt_tokens = end.prompt_tokens > 0 ? end.prompt_tokens : pages * page_size_;
  ending.prompt_pages = std::min(pages, ceil_div(prompt_tokens, page_size_));
  const std::int64_t new_pages = std::max<std::int64_t>(ending.prompt_pages - found_pages, 0);
  ending.turn.new_text_tokens = prompt_tokens * new_pages / ending.prompt_pages;
  ending.turn.output_tokens = end.output_tokens;
  return ending;
}

// Finds the request that this one continues, if any, and returns how many pages of its text were
// known. It continues the one that used its deepest known page last if it reaches the last page but
// one of that one's prompt. In a sample of the pages that may lie between the deepest known page
// and the next one: then it is taken for reached, and what is known otherwise for half of that gap.
std::int64_t HazardPolicy::find_continued(std::span<const PageId> path, Ending& ending) const {
  if (ending.known_pages == 0) return 0;
  const auto next = static_cast<std::size_t>(ending.known_pages);
  const PageRecord& deepest = record(path[next - 1]);
  const std::int64_t text_pages = ending.places.text_pages;
  const std::int64_t least = ending.places.of(next - 1) + 1;
  const std::int64_t most = next < path.size() ? ending.places.of(next) : text_pages;
  const std::int64_t last = least - 1 + deepest.before_end;  // of that one's prompt
  if (text_pages < 2 || last < 1 || last > most) return least + (most - least) / 2;
  ending.continued = deepest.request;
  ending.turn.turn = deepest.turn + 1;
  return std::clamp(last, least, most);
}

// Pages that were known are used again: learned, counted for the duel, and out of their classes.
void HazardPolicy::leave_classes(std::span<const PageId> path, const Ending& ending) {
  duel_.ask(std::ssize(path));
  const std::int64_t lru_since_us = table_.used_since_us(pages_);
  for (std::int64_t i = 0; i < ending.known_pages; ++i) {
    PageRecord& page = records_[path[static_cast<std::size_t>(i)].index()];
    if (page.known) {
      duel_.count(!page.came_back, page.used_us >= lru_since_us);
      depart({page.page_class, page.weight, page.used_us, ending.begun_us, true, 1});
    }
    if (static_cast<std::int64_t>(page.request) != ending.continued) {
      page.other_texts = saturated(std::int64_t{page.other_texts} + 1);
    }
  }
  flush_departures();
}

// Pages of one request mostly leave together: the table is told once.
void HazardPolicy::depart(const HazardTable::Departure& departure) {
  if (!departing_.alike(departure)) {
    flush_departures();
    departing_ = departure;
    departing_.pages = 0;
  }
  departing_.pages += departure.pages;
}

void HazardPolicy::flush_departures() {
  if (departing_.pages > 0) table_.depart(departing_);
  departing_.pages = 0;
}

void HazardPolicy::enter_classes(std::span<const PageId> path, const Ending& ending) {
  for (std::size_t i = 0; i < path.size(); ++i) {
    PageRecord& page = records_[path[i].index()];
    if (static_cast<std::int64_t>(i) >= ending.known_pages) page.other_texts = 0;
    const bool last = ending.places.of(i) + 1 == ending.places.text_pages;
    const int page_class = class_of(page, last, ending);
    page.page_class = static_cast<std::int16_t>(page_class);
    ++group_pages_[static_cast<std::size_t>(page_class)];
  }
  int above = -1;
  std::uint16_t alike_pages = 0;
  for (std::size_t i = 0; i < path.size(); ++i) {
    PageRecord& page = records_[path[i].index()];
    alike_pages =
        page.page_class == above ? saturated(std::int64_t{alike_pages} + 1) : std::uint16_t{1};
    above = page.page_class;
    page.weight = static_cast<std::int32_t>(
        HazardTable::weight_of_each(group_pages_[static_cast<std::size_t>(page.page_class)]));
    page.used_us = now_us_;
    page.request = requests_;
    page.alike_pages = alike_pages;
    page.turn = saturated(ending.turn.turn);
    page.before_end =
        saturated(std::max<std::int64_t>(ending.prompt_pages - 1 - ending.places.of(i), 0));
    page.bias = ending.bias;
    page.known = true;
    page.came_back = false;
  }
  for (const PageId id : path) {
    const PageRecord& page = records_[id.index()];
    std::int64_t& pages = group_pages_[static_cast<std::size_t>(page.page_class)];
    if (pages > 0) table_.arrive(page.page_class, page.weight, pages, now_us_);
    pages = 0;
  }
}

int HazardPolicy::class_of(const PageRecord& page, bool last, const Ending& ending) const noexcept {
  if (last) return PageClass::kLast;
  if (page.other_texts > 0) return PageClass::shared(page.other_texts);
  return PageClass::chat(ending.turn, page.known);
}

void HazardPolicy::add_leaf(const Leaf& leaf) {
  const PageRecord& page = record(leaf.last_page);
  const int kind = kind_of(page);
  queues_.add(kind, {page.request, leaf.id, leaf.slot});
  last_pages_[leaf.slot.index()] = leaf.last_page;
  const auto word = static_cast<std::size_t>(kind) / 64;
  filled_[word] |= std::uint64_t{1} << (kind % 64);
  stale_[word] |= std::uint64_t{1} << (kind % 64);
}

void HazardPolicy::remove_leaf(NodeSlot slot) {
  const int kind = queues_.kind_of(slot);
  queues_.remove(slot);
  const auto word = static_cast<std::size_t>(kind) / 64;
  stale_[word] |= std::uint64_t{1} << (kind % 64);
  if (queues_.empty(kind)) filled_[word] &= ~(std::uint64_t{1} << (kind % 64));
}

void HazardPolicy::begin_eviction() {
  advance_time();
}

void HazardPolicy::advance_time() noexcept {
  const std::int64_t now_us = clock_.now_us();
  if (now_us <= now_us_) return;
  now_us_ = now_us;
  stale_ = filled_;
}

PagePolicy::Victim HazardPolicy::next_victim() {
  STEMMA_CHECK(leaves() > 0, "a victim is one of the leaves");
  const Candidate* worst = nullptr;
  const Candidate* oldest = nullptr;
  for_each_kind([&](int kind) {
    const Ends& ends = ends_of(kind);
    if (worst == nullptr || ends.worst.before(*worst)) worst = &ends.worst;
    if (oldest == nullptr || ends.oldest.leaf < oldest->leaf) oldest = &ends.oldest;
  });
  const bool clear = worst->index < kClearlyLess * oldest->index && !duel_.lru_leads();
  return victim_of(clear ? worst->leaf.slot : oldest->leaf.slot);
}

const HazardPolicy::Ends& HazardPolicy::ends_of(int kind) {
  Ends& ends = ends_[static_cast<std::size_t>(kind)];
  std::uint64_t& stale = stale_[static_cast<std::size_t>(kind) / 64];
  const std::uint64_t bit = std::uint64_t{1} << (kind % 64);
  if ((stale & bit) == 0) return ends;
  stale &= ~bit;
  ends.oldest = end_of(queues_.oldest(kind));
  ends.worst = end_of(queues_.youngest(kind));
  if (ends.oldest.before(ends.worst)) ends.worst = ends.oldest;
  return ends;
}

HazardPolicy::Candidate HazardPolicy::end_of(const QueuedLeaf& leaf) const noexcept {
  return {index(last_pages_[leaf.slot.index()]), leaf};
}

PagePolicy::Victim HazardPolicy::victim_of(NodeSlot slot) const noexcept {
  return {slot, record(last_pages_[slot.index()]).alike_pages};
}

double HazardPolicy::index(PageId page) const noexcept {
  const PageRecord& known = record(page);
  const std::int64_t age_us = std::max<std::int64_t>(now_us_ - known.used_us, 0);
  return table_.index(known.page_class, age_us) *
         kBiasFactors[static_cast<std::size_t>(known.bias + 1)];
}

void HazardPolicy::evicted(std::span<const PageId> pages) {
  for (std::size_t i = 0; i < pages.size(); ++i) {
    ghosts_.prefetch(record(pages[i]).fingerprint);
    ghosts_.prefetch_forgotten(static_cast<std::int64_t>(i));
  }
  for (auto page = pages.rbegin(); page != pages.rend(); ++page) {
    const PageRecord& gone = record(*page);
    if (!gone.known) continue;
    const std::optional<PageRecord> forgotten = ghosts_.push(gone);
    if (!forgotten.has_value()) continue;
    depart({forgotten->page_class, forgotten->weight, forgotten->used_us, now_us_, false, 1});
  }
  flush_departures();
}

// Calls visit(kind) for each kind that has leaves, in order.
template <typename Visit>
void HazardPolicy::for_each_kind(Visit&& visit) const {
  for (std::size_t word = 0; word < filled_.size(); ++word) {
    for (std::uint64_t bits = filled_[word]; bits != 0; bits &= bits - 1) {
      visit(static_cast<int>(word) * 64 + std::countr_zero(bits));
    }
  }
}

std::optional<std::string> HazardPolicy::audit() const {
  std::int64_t leaves = 0;
  for (int kind = 0; kind < kKinds; ++kind) {
    const bool filled = (filled_[static_cast<std::size_t>(kind) / 64] >> (kind % 64) & 1) != 0;
    if (filled == queues_.empty(kind)) return "hazard: a kind's leaves are not where its bit says";
    leaves += queues_.leaves_of(kind);
  }
  if (leaves != queues_.leaves()) return "hazard: leaves are miscounted";
  return std::nullopt;
}

}  // namespace stemma
