// A page is in one of four states; each hand-over is one transition, checked where it happens:
//
//   free ──try_allocate──► owned ──release──► released
//    ▲                      │  ▲───adopt────────┘
//    │◄────give back────────┤
//    └◄──retire_step── retiring     (given back while a step was in flight)
//
// Free pages are bits in words, with a second level of bits that says which words are not zero, so
// that the lowest free page is found in a few instructions and long free runs by whole words.
// Owners' lists are threaded through next_.
#include "stemma/page_allocator.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "alloc/windowed_pages.h"
#include "base/check.h"
#include "base/math.h"

namespace stemma {

namespace {

constexpr std::int64_t kBits = 64;
// How far a contiguous run is searched for before scattered pages are taken: 16,384 pages.
constexpr std::int64_t kRunSearchWordsMax = 256;

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

// The bits at which so many ones begin; those that go on in the next word are not seen.
std::uint64_t starts_of_runs(std::uint64_t bits, std::int64_t ones) {
  if (ones > 64) return 0;
  for (std::int64_t seen = 1; seen < ones && bits != 0;) {
    const std::int64_t more = std::min(seen, ones - seen);
    bits &= bits >> more;
    seen += more;
  }
  return bits;
}

}  // namespace

OwnedPages& OwnedPages::operator=(OwnedPages&& other) noexcept {
  if (this == &other) return *this;
  reset();
  std::swap(allocator_, other.allocator_);
  std::swap(first_, other.first_);
  std::swap(last_, other.last_);
  std::swap(count_, other.count_);
  return *this;
}

void OwnedPages::append(OwnedPages more) noexcept {
  if (more.empty()) return;
  if (empty()) {
    *this = std::move(more);
    return;
  }
  STEMMA_CHECK(allocator_ == more.allocator_, "pages of two allocators never mix");
  allocator_->next_[last_.index()] = more.first_;
  last_ = more.last_;
  count_ += more.count_;
  more.allocator_ = nullptr;
  more.count_ = 0;
}

OwnedPages OwnedPages::take_front(std::int64_t pages) noexcept {
  STEMMA_CHECK(pages >= 0 && pages <= count_, "only pages that are held can be split off");
  if (pages == 0) return {};
  if (pages == count_) return std::move(*this);
  PageId last = first_;
  for (std::int64_t i = 1; i < pages; ++i) last = allocator_->next_[last.index()];
  OwnedPages front(allocator_, first_, last, pages);
  first_ = allocator_->next_[last.index()];
  count_ -= pages;
  return front;
}

void OwnedPages::copy_to(std::span<PageId> out) const noexcept {
  STEMMA_CHECK_EQ(static_cast<std::int64_t>(out.size()), count_);
  PageId page = first_;
  for (PageId& id : out) {
    id = page;
    page = allocator_->next_[page.index()];
  }
}

void OwnedPages::release(std::span<PageId> out) noexcept {
  if (count_ == 0) return;
  copy_to(out);
  for (const PageId page : out) {
    allocator_->change(page, PageAllocator::PageState::kOwned, PageAllocator::PageState::kReleased,
                       "released pages were owned");
  }
  allocator_->owned_pages_ -= count_;
  allocator_->released_pages_ += count_;
  allocator_ = nullptr;
  count_ = 0;
}

void OwnedPages::reset() noexcept {
  if (count_ != 0) allocator_->give_back({first_, last_, count_});
  allocator_ = nullptr;
  count_ = 0;
}

PageAllocator::PageAllocator(std::int64_t pages) {
  STEMMA_CHECK(pages >= 0 && pages <= std::numeric_limits<std::int32_t>::max(),
               "page ids are 31 bits");
  state_.assign(at(pages), PageState::kFree);
  next_.assign(at(pages), PageId());
  free_bits_.assign(at(ceil_div(pages, kBits)), ~std::uint64_t{0});
  if (pages % kBits != 0) free_bits_.back() = (std::uint64_t{1} << (pages % kBits)) - 1;
  const auto words = static_cast<std::int64_t>(free_bits_.size());
  free_words_.assign(at(ceil_div(words, kBits)), ~std::uint64_t{0});
  if (words % kBits != 0) free_words_.back() = (std::uint64_t{1} << (words % kBits)) - 1;
  free_pages_ = pages;
}

PageAllocator::~PageAllocator() {
  STEMMA_CHECK(owned_pages_ == 0, "every OwnedPages is gone before its allocator");
}

std::optional<OwnedPages> PageAllocator::try_allocate(std::int64_t pages) {
  STEMMA_CHECK(pages >= 0, "a number of pages is not negative");
  if (pages > free_pages_) return std::nullopt;
  PageList taken;
  const std::int64_t run = pages == 0 ? 0 : find_run(pages);
  if (run >= 0) {
    for (std::int64_t page = run; page < run + pages; ++page) take(page, taken);
  } else {
    for (std::int64_t word = next_free_word(0); taken.count < pages; word = next_free_word(word)) {
      take(word * kBits + std::countr_zero(free_bits_[at(word)]), taken);
    }
  }
  free_pages_ -= pages;
  owned_pages_ += pages;
  if (pages == 0) return OwnedPages();
  return OwnedPages(this, taken.first, taken.last, taken.count);
}

OwnedPages PageAllocator::adopt(std::span<const PageId> pages) {
  PageList taken;
  for (const PageId page : pages) {
    STEMMA_CHECK(page.valid() && page.value() < total_pages(), "an adopted page is of this pool");
    change(page, PageState::kReleased, PageState::kOwned, "adopted pages were released");
    push_back(page, taken);
  }
  released_pages_ -= taken.count;
  owned_pages_ += taken.count;
  if (taken.count == 0) return {};
  return OwnedPages(this, taken.first, taken.last, taken.count);
}

std::int64_t PageAllocator::begin_step() {
  STEMMA_CHECK(last_step_ - retired_step_ < kStepsInFlightMax, "steps in flight are bounded");
  return ++last_step_;
}

void PageAllocator::retire_step(std::int64_t step) {
  STEMMA_CHECK(step == retired_step_ + 1 && step <= last_step_, "steps retire in order, once");
  retired_step_ = step;
  PageList& pages = retiring_[at(step % kStepsInFlightMax)];
  retiring_pages_ -= pages.count;
  make_free(std::exchange(pages, PageList{}), PageState::kRetiring);
}

std::optional<std::string> PageAllocator::audit() const {
  std::array<std::int64_t, 4> counts = {};
  for (std::size_t page = 0; page < state_.size(); ++page) {
    ++counts[static_cast<std::size_t>(state_[page])];
    const bool bit = (free_bits_[page / kBits] >> (page % kBits) & 1) != 0;
    if (bit != (state_[page] == PageState::kFree)) {
      return "page " + std::to_string(page) + ": its free bit contradicts its state";
    }
  }
  for (std::size_t word = 0; word < free_bits_.size(); ++word) {
    const bool bit = (free_words_[word / kBits] >> (word % kBits) & 1) != 0;
    if (bit != (free_bits_[word] != 0)) {
      return "word " + std::to_string(word) + " of the free bits is summed up wrongly";
    }
  }
  if (counts != std::array{free_pages_, owned_pages_, released_pages_, retiring_pages_}) {
    return std::string("a counter of pages contradicts the pages' states (I1)");
  }
  std::int64_t retiring = 0;
  for (const PageList& pages : retiring_) retiring += pages.count;
  if (retiring != retiring_pages_) return std::string("retiring lists contradict their counter");
  return std::nullopt;
}

void PageAllocator::free_carried(PageList pages) noexcept {
  PageId page = pages.first;
  for (std::int64_t i = 0; i < pages.count; ++i, page = next_[page.index()]) {
    windowed_or_null_->carrier_freed(page);
  }
}

void PageAllocator::give_back(PageList pages) noexcept {
  if (windowed_or_null_ != nullptr) free_carried(pages);
  owned_pages_ -= pages.count;
  if (last_step_ == retired_step_) {
    make_free(pages, PageState::kOwned);
    return;
  }
  PageId page = pages.first;
  for (std::int64_t i = 0; i < pages.count; ++i) {
    change(page, PageState::kOwned, PageState::kRetiring, "a page is freed once, by its owner");
    page = next_[page.index()];
  }
  retiring_pages_ += pages.count;
  PageList& waiting = retiring_[at(last_step_ % kStepsInFlightMax)];
  if (waiting.count == 0) {
    waiting = pages;
    return;
  }
  next_[waiting.last.index()] = pages.first;
  waiting.last = pages.last;
  waiting.count += pages.count;
}

void PageAllocator::make_free(PageList pages, PageState from) noexcept {
  PageId page = pages.first;
  for (std::int64_t i = 0; i < pages.count; ++i) {
    change(page, from, PageState::kFree, "a page is freed once, by its owner");
    const std::size_t word = page.index() / kBits;
    free_bits_[word] |= std::uint64_t{1} << (page.index() % kBits);
    free_words_[word / kBits] |= std::uint64_t{1} << (word % kBits);
    page = next_[page.index()];
  }
  free_pages_ += pages.count;
}

// The first page of a free run of `pages`, or −1 if none begins within the words that are searched.
// A few operations a word, however its free pages lie.
std::int64_t PageAllocator::find_run(std::int64_t pages) const noexcept {
  std::int64_t run = 0;  // of free pages before `word`
  std::int64_t word = next_free_word(0);
  const auto words = static_cast<std::int64_t>(free_bits_.size());
  for (std::int64_t searched = 0; searched < kRunSearchWordsMax && word < words; ++searched) {
    const std::uint64_t bits = free_bits_[at(word)];
    if (run + std::countr_one(bits) >= pages) return word * kBits - run;
    if (const std::uint64_t starts = starts_of_runs(bits, pages); starts != 0) {
      return word * kBits + std::countr_zero(starts);
    }
    run = bits == ~std::uint64_t{0} ? run + kBits : std::countl_one(bits);
    const std::int64_t next = next_free_word(word + 1);
    if (next != word + 1) run = 0;
    word = next;
  }
  return -1;
}

// The first word at or after `word` that has a free page; the number of words if there is none.
std::int64_t PageAllocator::next_free_word(std::int64_t word) const noexcept {
  const auto words = static_cast<std::int64_t>(free_bits_.size());
  if (word >= words) return words;
  std::int64_t group = word / kBits;
  std::uint64_t bits = free_words_[at(group)] & (~std::uint64_t{0} << (word % kBits));
  while (bits == 0) {
    if (++group == static_cast<std::int64_t>(free_words_.size())) return words;
    bits = free_words_[at(group)];
  }
  return group * kBits + std::countr_zero(bits);
}

void PageAllocator::take(std::int64_t page, PageList& into) noexcept {
  const PageId id(static_cast<std::int32_t>(page));
  change(id, PageState::kFree, PageState::kOwned, "only a free page is handed out");
  std::uint64_t& bits = free_bits_[at(page / kBits)];
  bits &= ~(std::uint64_t{1} << (page % kBits));
  if (bits == 0) {
    const std::int64_t word = page / kBits;
    free_words_[at(word / kBits)] &= ~(std::uint64_t{1} << (word % kBits));
  }
  push_back(id, into);
}

void PageAllocator::push_back(PageId page, PageList& into) noexcept {
  if (into.count == 0) {
    into.first = page;
  } else {
    next_[into.last.index()] = page;
  }
  into.last = page;
  ++into.count;
}

void PageAllocator::change(PageId page, PageState from, PageState to, const char* why) noexcept {
  STEMMA_CHECK(state_[page.index()] == from, why);
  state_[page.index()] = to;
}

}  // namespace stemma
