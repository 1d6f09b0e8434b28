// Free runs hang in lists by size class: class 4k+s holds runs of at least 2^k·(1+s/4) pages. A
// request takes the first run of the smallest class all of whose runs are long enough, so it is
// found by two bit scans. Where no run is long enough the longest class serves a part, and the
// chain goes on in another run: the arena can be fragmented, but it cannot fail while it has units.
#include "prefix/page_arena.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/math.h"

namespace stemma {

namespace {

constexpr std::int64_t kBits = 64;
// Tokens compared at once before the differing page is looked for: 4 KiB.
constexpr std::int64_t kCompareTokens = 1024;

// In pages of fewer tokens, headers are most of what a run takes, and lie far apart in it.
constexpr std::int64_t kFewTokens = 8;

// The class of a run of `pages`.
std::size_t class_of(std::int32_t pages) {
  const auto n = static_cast<std::uint32_t>(pages);
  const auto power = static_cast<std::uint32_t>(std::bit_width(n) - 1);
  return power * 4 + (((std::uint64_t{n} << 2) >> power) & 3);
}

// The smallest class all of whose runs have at least `pages`.
std::size_t class_that_fits(std::int32_t pages) {
  const std::size_t own = class_of(pages);
  const std::uint64_t smallest = ((4 + own % 4) << (own / 4)) >> 2;
  return smallest == static_cast<std::uint64_t>(pages) ? own : own + 1;
}

UnitId unit_after(UnitId unit, std::int64_t pages) {
  return UnitId(static_cast<std::int32_t>(unit.value() + pages));
}

bool same(const TokenId* a, const TokenId* b, std::int64_t tokens) {
  return std::memcmp(a, b, static_cast<std::size_t>(tokens) * sizeof(TokenId)) == 0;
}

}  // namespace

PageArena::PageArena(std::int64_t pages_max, std::int64_t page_size)
    : page_size_(page_size), pages_max_(pages_max), units_(pages_max + pages_max / 4) {
  STEMMA_CHECK(pages_max >= 0 && pages_max <= std::int64_t{1} << 30, "units are 31 bits");
  STEMMA_CHECK_GE(page_size, 1);
  const auto units = static_cast<std::size_t>(units_);
  tokens_ = UntouchedArray<TokenId>(units * static_cast<std::size_t>(page_size));
  ids_ = UntouchedArray<PageId>(units);
  runs_ = UntouchedArray<Run>(units, page_size < kFewTokens ? Backing::kSmall : Backing::kHuge);
  unused_ = UntouchedArray<std::uint64_t>(static_cast<std::size_t>(ceil_div(units_, kBits)), 0);
  if (units_ != 0) give_back(UnitId(0), static_cast<std::int32_t>(units_));
  used_pages_ = 0;
}

void PageArena::append(PageChain& chain, std::span<const TokenId> tokens, OwnedPages pages) {
  STEMMA_CHECK_EQ(static_cast<std::int64_t>(tokens.size()), pages.pages() * page_size_);
  STEMMA_CHECK_LE(used_pages_ + pages.pages(), pages_max_);
  std::int64_t done_tokens = 0;
  while (!pages.empty()) {
    const auto wanted = static_cast<std::int32_t>(pages.pages());
    std::int32_t taken = extend_last(chain, wanted);
    if (taken == 0) taken = append_run(chain, wanted);
    const UnitId first = unit_after(chain.last, run(chain.last).pages - taken);
    pages.take_front(taken).release({ids_.data() + first.index(), static_cast<std::size_t>(taken)});
    std::copy_n(tokens.begin() + done_tokens, taken * page_size_,
                tokens_.data() + token_offset(first));
    done_tokens += taken * page_size_;
  }
}

PageChain PageArena::take_front(PageChain& chain, std::int64_t pages) {
  STEMMA_CHECK(pages > 0 && pages < chain.pages, "a cut leaves pages on both sides");
  std::int64_t before = 0;
  UnitId cut = chain.first;
  while (before + run(cut).pages <= pages) {
    before += run(cut).pages;
    cut = run(cut).next;
  }
  PageChain front{chain.first, cut, static_cast<std::int32_t>(pages)};
  if (before == pages) {  // between two runs
    front.last = run(cut).previous;
  } else {
    const auto kept = static_cast<std::int32_t>(pages - before);
    const UnitId rest = unit_after(cut, kept);
    run(rest) = {run(cut).pages - kept, run(cut).next, UnitId()};
    if (run(rest).next.valid()) run(run(rest).next).previous = rest;
    if (chain.last == cut) chain.last = rest;
    run(cut).pages = kept;
    cut = rest;
  }
  run(front.last).next = UnitId();
  run(cut).previous = UnitId();
  chain.first = cut;
  chain.pages -= front.pages;
  return front;
}

void PageArena::take_back(PageChain& chain, std::span<PageId> ids) {
  auto left = static_cast<std::int64_t>(ids.size());
  STEMMA_CHECK(left <= chain.pages, "only pages that are there can be taken");
  while (left > 0) {
    const UnitId last = chain.last;
    const auto taken = static_cast<std::int32_t>(std::min<std::int64_t>(left, run(last).pages));
    const UnitId first = unit_after(last, run(last).pages - taken);
    left -= taken;
    std::copy_n(&ids_[first.index()], taken, ids.begin() + left);
    run(last).pages -= taken;
    chain.pages -= taken;
    if (run(last).pages == 0) {
      chain.last = run(last).previous;
      if (chain.last.valid()) run(chain.last).next = UnitId();
      if (!chain.last.valid()) chain.first = UnitId();
    }
    give_back(first, taken);
  }
}

std::int64_t PageArena::common_pages(const PageChain& chain,
                                     std::span<const TokenId> tokens) const noexcept {
  std::int64_t common = 0;
  for (UnitId unit = chain.first; unit.valid(); unit = run(unit).next) {
    const auto left = tokens.subspan(static_cast<std::size_t>(common * page_size_));
    const std::int64_t here = pages_in_common(unit, left);
    common += here;
    if (here < run(unit).pages) break;
  }
  return common;
}

// One run against `tokens`: 4 KiB at a time while they are the same, then page by page.
std::int64_t PageArena::pages_in_common(UnitId first,
                                        std::span<const TokenId> tokens) const noexcept {
  const std::int64_t pages = std::min<std::int64_t>(
      run(first).pages, static_cast<std::int64_t>(tokens.size()) / page_size_);
  const TokenId* const ours = tokens_.data() + token_offset(first);
  if (pages == 0 || ours[0] != tokens[0]) return 0;
  const std::int64_t step = std::max<std::int64_t>(kCompareTokens / page_size_, 1);
  std::int64_t common = 0;
  while (common < pages) {
    const std::int64_t next = std::min(step, pages - common);
    if (!same(ours + common * page_size_, tokens.data() + common * page_size_, next * page_size_)) {
      break;
    }
    common += next;
  }
  while (common < pages &&
         same(ours + common * page_size_, tokens.data() + common * page_size_, page_size_)) {
    ++common;
  }
  return common;
}

std::int64_t PageArena::copy_ids(const PageChain& chain, std::int64_t skip,
                                 std::span<PageId> out) const noexcept {
  std::int64_t written = 0;
  const auto room = static_cast<std::int64_t>(out.size());
  for (UnitId unit = chain.first; unit.valid() && written < room; unit = run(unit).next) {
    const std::int64_t pages = run(unit).pages;
    const std::int64_t from = std::min(skip, pages);
    const std::int64_t here = std::min(pages - from, room - written);
    std::copy_n(ids_.data() + unit.index() + from, here, out.begin() + written);
    written += here;
    skip -= from;
  }
  return written;
}

std::span<PageKey> PageArena::keys_of(UnitId first, std::int64_t pages) {
  if (keys_.empty()) keys_ = UntouchedArray<PageKey>(static_cast<std::size_t>(units_));
  return {keys_.data() + first.index(), static_cast<std::size_t>(pages)};
}

std::int64_t PageArena::reserved_bytes() const noexcept {
  const std::int64_t unit_bytes = page_size_ * static_cast<std::int64_t>(sizeof(TokenId)) +
                                  static_cast<std::int64_t>(sizeof(PageId) + sizeof(Run)) +
                                  (!keys_.empty() ? std::int64_t{sizeof(PageKey)} : 0);
  return units_ * unit_bytes + static_cast<std::int64_t>(unused_.size() * sizeof(std::uint64_t));
}

// Lengthens the last run by up to `pages` of the unused units right behind it; returns by how many.
std::int32_t PageArena::extend_last(PageChain& chain, std::int32_t pages) {
  if (!chain.last.valid()) return 0;
  const UnitId behind = unit_after(chain.last, run(chain.last).pages);
  if (behind.value() >= units_ || !unused(behind.value())) return 0;
  const std::int32_t taken = take_unused(behind, pages);
  run(chain.last).pages += taken;
  chain.pages += taken;
  return taken;
}

// Puts a new run of up to `pages` behind the last one; returns how many it has.
std::int32_t PageArena::append_run(PageChain& chain, std::int32_t pages) {
  const UnitId unit = find_unused(pages);
  const std::int32_t taken = take_unused(unit, pages);
  run(unit) = {taken, UnitId(), chain.last};
  if (chain.last.valid()) {
    run(chain.last).next = unit;
  } else {
    chain.first = unit;
  }
  chain.last = unit;
  chain.pages += taken;
  return taken;
}

// Takes up to `pages` from the front of the unused run at `unit`; returns how many.
std::int32_t PageArena::take_unused(UnitId unit, std::int32_t pages) {
  const std::int32_t available = run(unit).pages;
  const std::int32_t taken = std::min(available, pages);
  unlink_unused(unit);
  if (taken < available) link_unused(unit_after(unit, taken), available - taken);
  mark(unit, taken, false);
  used_pages_ += taken;
  return taken;
}

// Makes units unused again, as one run with the unused ones before and behind them.
void PageArena::give_back(UnitId first, std::int32_t pages) {
  mark(first, pages, true);
  used_pages_ -= pages;
  if (first.value() > 0 && unused(first.value() - 1)) {
    const std::int32_t before = run(unit_after(first, -1)).pages;
    first = unit_after(first, -before);
    pages += before;
    unlink_unused(first);
  }
  const UnitId behind = unit_after(first, pages);
  if (behind.value() < units_ && unused(behind.value())) {
    pages += run(behind).pages;
    unlink_unused(behind);
  }
  link_unused(first, pages);
}

// An unused run of at least `pages`, or of the longest class if none is sure to be so long.
UnitId PageArena::find_unused(std::int32_t pages) const {
  const std::size_t fits = class_that_fits(pages);
  std::size_t word = fits / 64;
  if (word < classes_in_use_.size()) {
    std::uint64_t bits = classes_in_use_[word] & (~std::uint64_t{0} << (fits % 64));
    while (bits == 0 && ++word < classes_in_use_.size()) bits = classes_in_use_[word];
    if (bits != 0) {
      return unused_runs_[word * 64 + static_cast<std::size_t>(std::countr_zero(bits))];
    }
  }
  for (word = classes_in_use_.size(); word-- > 0;) {
    if (classes_in_use_[word] == 0) continue;
    const auto top = static_cast<std::size_t>(std::bit_width(classes_in_use_[word]) - 1);
    return unused_runs_[word * 64 + top];
  }
  check_failed(__FILE__, __LINE__, "an unused unit", "there are more units than pages");
}

void PageArena::link_unused(UnitId unit, std::int32_t pages) {
  const std::size_t size_class = class_of(pages);
  UnitId& head = unused_runs_[size_class];
  run(unit_after(unit, pages - 1)).pages = pages;
  run(unit) = {pages, head, UnitId()};
  if (head.valid()) run(head).previous = unit;
  head = unit;
  classes_in_use_[size_class / 64] |= std::uint64_t{1} << (size_class % 64);
}

void PageArena::unlink_unused(UnitId unit) {
  const Run gone = run(unit);
  const std::size_t size_class = class_of(gone.pages);
  if (gone.next.valid()) run(gone.next).previous = gone.previous;
  if (gone.previous.valid()) {
    run(gone.previous).next = gone.next;
    return;
  }
  unused_runs_[size_class] = gone.next;
  if (!gone.next.valid()) {
    classes_in_use_[size_class / 64] &= ~(std::uint64_t{1} << (size_class % 64));
  }
}

bool PageArena::unused(std::int64_t unit) const noexcept {
  return (unused_[static_cast<std::size_t>(unit / kBits)] >> (unit % kBits) & 1) != 0;
}

void PageArena::mark(UnitId first, std::int64_t pages, bool unused_now) noexcept {
  std::int64_t unit = first.value();
  const std::int64_t end = unit + pages;
  while (unit < end) {
    const std::int64_t bit = unit % kBits;
    const std::int64_t count = std::min(kBits - bit, end - unit);
    const std::uint64_t ones = count == kBits ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
    std::uint64_t& word = unused_[static_cast<std::size_t>(unit / kBits)];
    STEMMA_DCHECK((word & (ones << bit)) == (unused_now ? 0 : ones << bit),
                  "a unit is taken once and given back once");
    word = unused_now ? word | ones << bit : word & ~(ones << bit);
    unit += count;
  }
}

std::optional<std::string> PageArena::audit() const {
  std::int64_t listed = 0;
  for (std::size_t size_class = 0; size_class < kClasses; ++size_class) {
    const bool in_use = (classes_in_use_[size_class / 64] >> (size_class % 64) & 1) != 0;
    if (in_use != unused_runs_[size_class].valid()) return "arena: a class bit is wrong";
    UnitId previous;
    for (UnitId unit = unused_runs_[size_class]; unit.valid(); unit = run(unit).next) {
      const Run& here = run(unit);
      if (class_of(here.pages) != size_class) return "arena: a run is in another class's list";
      if (here.previous != previous) return "arena: a list of unused runs is broken";
      if (run(unit_after(unit, here.pages - 1)).pages != here.pages) return "arena: a torn run";
      for (std::int64_t i = 0; i < here.pages; ++i) {
        if (!unused(unit.value() + i)) return "arena: a used unit in a list of unused runs";
      }
      listed += here.pages;
      previous = unit;
    }
  }
  std::int64_t marked = 0;
  for (const std::uint64_t word : unused_) marked += std::popcount(word);
  if (listed != marked) return "arena: unused units are marked but not listed";
  if (marked + used_pages_ != units_) return "arena: used pages are counted wrongly";
  return std::nullopt;
}

std::optional<std::string> PageArena::audit_chain(const PageChain& chain) const {
  std::int64_t pages = 0;
  UnitId previous;
  for (UnitId unit = chain.first; unit.valid(); unit = run(unit).next) {
    if (run(unit).previous != previous || run(unit).pages < 1) return "a chain is broken";
    for (std::int64_t i = 0; i < run(unit).pages; ++i) {
      if (unused(unit.value() + i)) return "a chain holds an unused unit";
    }
    pages += run(unit).pages;
    previous = unit;
  }
  if (chain.last != previous) return "a chain ends elsewhere than it says";
  if (pages != chain.pages) return "a chain holds another number of pages than it says";
  return std::nullopt;
}

}  // namespace stemma
