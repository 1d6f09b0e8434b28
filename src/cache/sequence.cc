// A Sequence is registered with its KvCache by row, so that the audit can see every hold there is;
// moving one moves its registration.
#include <utility>

#include "alloc/request_table.h"
#include "base/check.h"
#include "base/clock.h"
#include "cache/windows.h"
#include "stemma/kv_cache.h"

namespace stemma {

Sequence::Sequence(KvCache* cache, RowId row, Published published,
                   std::int64_t prompt_tokens) noexcept
    : cache_(cache),
      row_(row),
      shared_(std::move(published.shared)),
      prefix_(std::move(published.own)),
      cached_tokens_(published_tokens()),
      prompt_tokens_(prompt_tokens),
      begun_us_(cache->clock_.now_us()) {
  cache_->live_[row_.index()] = this;
}

Sequence::Sequence(Sequence&& other) noexcept {
  take_from(other);
}

Sequence& Sequence::operator=(Sequence&& other) noexcept {
  if (this != &other) {
    reset();
    take_from(other);
  }
  return *this;
}

Sequence::~Sequence() {
  reset();
}

std::int64_t Sequence::capacity_tokens() const {
  return valid() ? cache_->held_pages(*this) * cache_->page_size() : 0;
}

std::span<const PageId> Sequence::pages() const {
  STEMMA_CHECK(valid(), "only a sequence that began has pages");
  return std::as_const(*cache_->rows_).pages(row_);
}

void Sequence::reset() noexcept {
  if (cache_ == nullptr) {
    return;
  }
  cache_->live_[row_.index()] = nullptr;
  if (cache_->windows_ != nullptr) {
    cache_->windows_->leave(window_, pages(), published_tokens() / cache_->page_size());
  }
  tail_.reset();
  prefix_ = PrefixLock();
  shared_ = PrefixLock();
  cache_->rows_->adopt(std::exchange(row_, RowId())).reset();
  cache_ = nullptr;
  lent_pages_ = 0;
  cached_tokens_ = 0;
  prompt_tokens_ = 0;
  begun_us_ = 0;
  priority_ = 0;
  retention_ = Retention::kDefault;
  session_closed_ = false;
  publishes_ = true;
  window_ = SequenceWindow();
}

void Sequence::take_from(Sequence& other) noexcept {
  cache_ = std::exchange(other.cache_, nullptr);
  row_ = std::exchange(other.row_, RowId());
  shared_ = std::move(other.shared_);
  prefix_ = std::move(other.prefix_);
  lent_pages_ = std::exchange(other.lent_pages_, 0);
  tail_ = std::move(other.tail_);
  cached_tokens_ = std::exchange(other.cached_tokens_, 0);
  prompt_tokens_ = std::exchange(other.prompt_tokens_, 0);
  begun_us_ = std::exchange(other.begun_us_, 0);
  priority_ = std::exchange(other.priority_, 0);
  retention_ = std::exchange(other.retention_, Retention::kDefault);
  session_closed_ = std::exchange(other.session_closed_, false);
  publishes_ = std::exchange(other.publishes_, true);
  window_ = std::exchange(other.window_, SequenceWindow());
  if (cache_ != nullptr) {
    cache_->live_[row_.index()] = this;
  }
}

}  // namespace stemma
