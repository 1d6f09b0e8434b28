#include "cache/host_image_windows.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "cache/job_text.h"
#include "cache/page_row.h"

namespace stemma {
namespace {

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

}  // namespace

WindowsLoad::WindowsLoad(HostTier& host, const HostImage& image, const ImageTexts& texts,
                         HostImageRanks* ranks_or_null)
    : host_(host), image_(image), texts_(texts), ranks_(ranks_or_null) {
  places_.reserve(at(texts_.pages()));
  for (std::int64_t place = 0; place < texts_.pages(); ++place) {
    places_[identity_of(place).key] = place;
  }
}

// Of the windowed page that may hang on that one.
PageIdentity WindowsLoad::identity_of(std::int64_t place) {
  const ImageTexts::Page& page = texts_.page(place);
  return windowed_identity({.key = page.key,
                            .parent = texts_.parent_key(place),
                            .namespace_digest = page.namespace_digest,
                            .ordinal = page.ordinal,
                            .tokens = texts_.tokens(place)},
                           hasher_);
}

bool WindowsLoad::take(const PageFrameView& frame) {
  const auto found = places_.find(frame.identity.key);
  if (found == places_.end()) return false;
  const std::int64_t place = found->second;
  if (frame.identity != identity_of(place)) return false;
  if (!run_.empty() && texts_.page(place).parent != run_.back()) end();
  TakenWindowedPages target = TakenWindowedPages::try_take(*host_.windowed_or_null(), 1);
  if (target.empty()) return false;
  const PageId to = target.ids().front();
  if (image_.pages.write_image(to, texts_.page(place).key, frame.body, frame.layer_sums) !=
      MoveVerdict::kDone) {
    return false;
  }
  if (ranks_ != nullptr) note(place, to);
  run_.push_back(place);
  taken_.push_back(std::move(target));
  return true;
}

// What other ranks are to bring of the run.
void WindowsLoad::note(std::int64_t place, PageId to) {
  const ImageTexts::Page& page = texts_.page(place);
  if (run_.empty()) {
    others_.clear();
    others_.group = LayerGroup::kWindowed;
    others_.digest = page.namespace_digest;
    others_.first_page = page.ordinal;
    others_.parent = texts_.parent_key(place);
  }
  const auto tokens = texts_.tokens(place);
  others_.keys.push_back(page.key);
  others_.tokens.insert(others_.tokens.end(), tokens.begin(), tokens.end());
  others_.to.push_back(to);
}

void WindowsLoad::end() {
  if (run_.empty()) return;
  hang_run(ranks_ == nullptr ? std::ssize(run_) : ranks_->load(others_));
  run_.clear();
  taken_.clear();
}

// The first `pages` of the run, on what is still there of their text: in a smaller memory the
// coldest pages have gone.
void WindowsLoad::hang_run(std::int64_t pages) {
  RadixPrefixCache& tree = host_.tree();
  const auto name = tree.try_open_namespace(texts_.page(run_.front()).namespace_digest);
  row_.clear();
  PrefixLock held;
  if (name.has_value()) {
    texts_.read_text(run_.back(), text_);
    held = tree.extend(tree.match(*name, {}), text_);
    copy_row(held, tree.page_size(), row_);
  }
  const std::int64_t first = texts_.page(run_.front()).ordinal;
  for (std::int64_t i = 0; i < std::ssize(run_); ++i) {
    const bool there = i < pages && first + i < std::ssize(row_);
    if (!there || !taken_[at(i)].hang(0, row_[at(first + i)])) ++dropped_pages_;
  }
  held.reset();
  if (name.has_value()) tree.close_namespace(*name);
}

bool WindowsSave::is_to_be_written(const SavedText& text, std::int64_t page) const {
  return host_.windowed_or_null()->of(text.ids[at(page)]).valid() &&
         !written_.contains(text.keys[at(page)]);
}

Status WindowsSave::write(const PrefixLock& held, const SavedText& text, std::int64_t pages) {
  for (std::int64_t first = 0; first < pages; ++first) {
    std::int64_t end = first;
    while (end < pages && is_to_be_written(text, end)) ++end;
    if (end == first) continue;
    if (ranks_ != nullptr) tell_others(held, text, first, end);
    for (; first < end; ++first) STEMMA_RETURN_IF_ERROR(write_page(text, first));
  }
  return {};
}

// They write at the same time.
void WindowsSave::tell_others(const PrefixLock& held, const SavedText& text, std::int64_t first,
                              std::int64_t end) {
  others_.clear();
  others_.group = LayerGroup::kWindowed;
  others_.digest = text.digest;
  fill_text(others_, held, std::span(text.tokens).first(at(end * text.page_size)), text.page_size,
            first);
  for (std::int64_t page = first; page < end; ++page) {
    others_.from.push_back(host_.windowed_or_null()->of(text.ids[at(page)]));
  }
  ranks_->save(others_);
}

// One that is wrong in host memory is left out.
Status WindowsSave::write_page(const SavedText& text, std::int64_t page) {
  const PageKey& key = text.keys[at(page)];
  STEMMA_ASSIGN_OR_RETURN(
      const bool right,
      writer_.write_page(image_.pages, host_.windowed_or_null()->of(text.ids[at(page)]), key,
                         windowed_identity(text.identity(at(page)), hasher_)));
  if (right) written_.insert(key);
  return {};
}

}  // namespace stemma
