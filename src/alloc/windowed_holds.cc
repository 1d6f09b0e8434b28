#include "alloc/windowed_holds.h"

#include <utility>

#include "base/check.h"

namespace stemma {

HeldWindowedPages::HeldWindowedPages(WindowedPages& pages, std::vector<PageId> carriers)
    : pages_(&pages), carriers_(std::move(carriers)) {
  for (const PageId carrier : carriers_) pages_->hold(carrier);
}

HeldWindowedPages::HeldWindowedPages(HeldWindowedPages&& other) noexcept
    : pages_(other.pages_), carriers_(std::exchange(other.carriers_, {})) {}

HeldWindowedPages& HeldWindowedPages::operator=(HeldWindowedPages&& other) noexcept {
  if (this == &other) return *this;
  reset();
  pages_ = other.pages_;
  carriers_ = std::exchange(other.carriers_, {});
  return *this;
}

void HeldWindowedPages::reset() noexcept {
  for (const PageId carrier : carriers_) pages_->let_go(carrier);
  carriers_.clear();
}

void HeldWindowedPages::count(const WindowedPages& pages, std::span<std::int32_t> holders) const {
  if (pages_ != &pages) return;
  for (const PageId carrier : carriers_) ++holders[pages_->of(carrier).index()];
}

TakenWindowedPages TakenWindowedPages::try_take(WindowedPages& pages, std::int64_t count) {
  TakenWindowedPages taken;
  taken.pages_ = &pages;
  taken.ids_.resize(static_cast<std::size_t>(count));
  if (!pages.try_take(taken.ids_)) taken.ids_.clear();
  return taken;
}

TakenWindowedPages::TakenWindowedPages(TakenWindowedPages&& other) noexcept
    : pages_(other.pages_), ids_(std::exchange(other.ids_, {})) {}

TakenWindowedPages& TakenWindowedPages::operator=(TakenWindowedPages&& other) noexcept {
  if (this == &other) return *this;
  reset();
  pages_ = other.pages_;
  ids_ = std::exchange(other.ids_, {});
  return *this;
}

void TakenWindowedPages::reset() noexcept {
  for (const PageId id : ids_) {
    if (id.valid()) pages_->give_up_taken(id);
  }
  ids_.clear();
}

void TakenWindowedPages::drop(std::size_t place) {
  pages_->give_up_taken(std::exchange(ids_[place], PageId()));
}

bool TakenWindowedPages::hang(std::size_t place, PageId carrier) {
  if (pages_->of(carrier).valid()) {
    drop(place);
    return false;
  }
  const PageId page = std::exchange(ids_[place], PageId());
  STEMMA_CHECK(page.valid(), "a page is hung once");
  pages_->hang(carrier, page);
  pages_->let_go(carrier, WindowedPages::Return::kLikely);
  return true;
}

std::int64_t TakenWindowedPages::count(const WindowedPages& pages,
                                       std::span<std::int32_t> holders) const {
  std::int64_t owned = 0;
  if (pages_ != &pages) return owned;
  for (const PageId id : ids_) {
    if (!id.valid()) continue;
    ++holders[id.index()];
    ++owned;
  }
  return owned;
}

}  // namespace stemma
