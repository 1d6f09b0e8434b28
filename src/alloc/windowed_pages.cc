#include "alloc/windowed_pages.h"

#include <utility>

#include "base/check.h"

namespace stemma {

namespace {

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

std::string of_page(std::size_t page, const char* what) {
  return "windowed page " + std::to_string(page) + " " + what;
}

}  // namespace

WindowedPages::WindowedPages(const Extent& extent)
    : allocator_(extent.pages),
      of_(at(extent.carriers)),
      carrier_(at(extent.pages)),
      holders_(at(extent.pages), 0),
      likely_(at(extent.pages), Return::kUnlikely),
      links_(at(extent.pages)) {}

std::int64_t WindowedPages::available_pages() const {
  const std::int64_t idle = idle_[0].count + idle_[1].count;
  return allocator_.free_pages() + (steps_in_flight_ == 0 ? idle : 0);
}

bool WindowedPages::try_hang(std::span<const PageId> carriers) {
  if (std::ssize(carriers) > available_pages()) return false;
  OwnedPages taken = make_room(std::ssize(carriers));
  for (const PageId carrier : carriers) hang(carrier, take_one(taken));
  return true;
}

bool WindowedPages::try_take(std::span<PageId> pages) {
  if (std::ssize(pages) > available_pages()) return false;
  OwnedPages taken = make_room(std::ssize(pages));
  for (PageId& page : pages) page = take_one(taken);
  return true;
}

void WindowedPages::keep_free(std::int64_t pages) {
  while (allocator_.free_pages() + allocator_.retiring_pages() < pages &&
         idle_[0].count + idle_[1].count > 0) {
    evict_one();
  }
}

// REQUIRES: so many are available.
OwnedPages WindowedPages::make_room(std::int64_t pages) {
  while (allocator_.free_pages() < pages) evict_one();
  return *allocator_.try_allocate(pages);
}

PageId WindowedPages::take_one(OwnedPages& taken) {
  PageId page;
  taken.take_front(1).release(std::span(&page, 1));
  holders_[page.index()] = 1;
  return page;
}

void WindowedPages::hold(PageId carrier) {
  const PageId page = of(carrier);
  STEMMA_CHECK(page.valid(), "a windowed page that is held hangs somewhere");
  if (holders_[page.index()]++ == 0) remove_idle(page);
}

void WindowedPages::let_go(PageId carrier, Return likely) {
  const PageId page = of(carrier);
  STEMMA_CHECK(page.valid() && holders_[page.index()] > 0, "a windowed page is let go once");
  likely_[page.index()] = likely;
  let_go(carrier);
}

void WindowedPages::let_go(PageId carrier) {
  const PageId page = of(carrier);
  STEMMA_CHECK(page.valid() && holders_[page.index()] > 0, "a windowed page is let go once");
  if (--holders_[page.index()] == 0) push_idle(page);
}

void WindowedPages::forget(PageId carrier) {
  const PageId page = of(carrier);
  if (page.valid() && holders_[page.index()] == 0) carrier_freed(carrier);
}

void WindowedPages::give_up(PageId carrier) {
  give_up_taken(take_off(carrier));
}

PageId WindowedPages::take_off(PageId carrier) {
  const PageId page = std::exchange(of_[carrier.index()], PageId());
  if (!page.valid()) return page;
  STEMMA_CHECK(holders_[page.index()] > 0, "what is taken off a carrier is held");
  carrier_[page.index()] = PageId();
  ++epoch_;
  return page;
}

void WindowedPages::hang(PageId carrier, PageId page) {
  STEMMA_CHECK(!of(carrier).valid(), "one windowed page hangs on a page");
  STEMMA_CHECK(!carrier_[page.index()].valid(), "a windowed page hangs on one page");
  of_[carrier.index()] = page;
  carrier_[page.index()] = carrier;
  ++epoch_;
}

void WindowedPages::give_up_taken(PageId page) {
  STEMMA_CHECK(page.valid() && holders_[page.index()] == 1, "only its holder frees a page");
  holders_[page.index()] = 0;
  give_back(page);
}

void WindowedPages::carrier_freed(PageId carrier) {
  const PageId page = of(carrier);
  if (!page.valid()) return;
  STEMMA_CHECK(holders_[page.index()] == 0, "whoever holds a windowed page holds its carrier");
  remove_idle(page);
  of_[carrier.index()] = PageId();
  carrier_[page.index()] = PageId();
  give_back(page);
}

void WindowedPages::begin_step() {
  const std::int64_t step = allocator_.begin_step();
  if (steps_in_flight_++ == 0) first_step_ = step;
}

void WindowedPages::retire_step() {
  allocator_.retire_step(first_step_++);
  --steps_in_flight_;
}

void WindowedPages::push_idle(PageId page) {
  IdleList& list = list_of(page);
  links_[page.index()] = {.before = list.back, .behind = PageId()};
  (list.count == 0 ? list.front : links_[list.back.index()].behind) = page;
  list.back = page;
  ++list.count;
}

void WindowedPages::remove_idle(PageId page) {
  IdleList& list = list_of(page);
  const Links links = links_[page.index()];
  (links.before.valid() ? links_[links.before.index()].behind : list.front) = links.behind;
  (links.behind.valid() ? links_[links.behind.index()].before : list.back) = links.before;
  --list.count;
}

void WindowedPages::evict_one() {
  const IdleList& list = idle_[idle_[0].count > 0 ? 0 : 1];
  carrier_freed(carrier_[list.front.index()]);
  ++evicted_pages_;
}

void WindowedPages::give_back(PageId page) {
  ++epoch_;
  allocator_.adopt(std::span(&page, 1)).reset();
}

std::optional<std::string> WindowedPages::audit(std::span<const std::int32_t> holders,
                                                std::int64_t taken_pages) const {
  if (auto contradiction = allocator_.audit()) return "windowed pages: " + *contradiction;
  std::int64_t hanging = 0;
  for (std::size_t carrier = 0; carrier < of_.size(); ++carrier) {
    if (!of_[carrier].valid()) continue;
    ++hanging;
    if (carrier_[of_[carrier].index()].index() != carrier) {
      return of_page(of_[carrier].index(), "hangs on two pages (I1)");
    }
  }
  if (hanging + taken_pages != allocator_.released_pages()) {
    return "I1: " + std::to_string(hanging) + " windowed pages hang and " +
           std::to_string(taken_pages) + " are taken, " +
           std::to_string(allocator_.released_pages()) + " are handed out";
  }
  std::int64_t idle = 0;
  for (std::size_t page = 0; page < holders_.size(); ++page) {
    if (holders_[page] != holders[page]) {
      return of_page(page, "has other holders than windows that it is in and copies (I2)");
    }
    idle += carrier_[page].valid() && holders_[page] == 0 ? 1 : 0;
  }
  for (const IdleList& list : idle_) {
    for (PageId page = list.front; page.valid(); page = links_[page.index()].behind) --idle;
  }
  if (idle != 0) return std::string("idle windowed pages and their lists differ");
  return std::nullopt;
}

}  // namespace stemma
