// A second sequence with the text of a first one.
#include <utility>

#include "alloc/request_table.h"
#include "base/check.h"
#include "base/math.h"
#include "cache/windows.h"
#include "prefix/radix_prefix_cache.h"
#include "stemma/kv_cache.h"

namespace stemma {

std::optional<ForkedSequence> KvCache::try_fork(const Sequence& sequence,
                                                std::int64_t computed_tokens) {
  STEMMA_CHECK(sequence.cache_ == this && !sequence.on_loan(), "the sequence began here");
  const std::int64_t full_pages = computed_tokens / page_size();
  const std::int64_t own_pages = ceil_div(computed_tokens, page_size()) - full_pages;
  if (!shares() || !sequence.publishes_ || !can_get(own_pages)) return std::nullopt;
  // The page that is copied too: where the sequence went on beyond it, its windowed one may be
  // gone.
  const auto copied_row = sequence.pages().first(static_cast<std::size_t>(full_pages + own_pages));
  if (windows_ != nullptr && !windows_->can_enter(copied_row, computed_tokens)) return std::nullopt;
  STEMMA_CHECK_EQ(sequence.published_tokens(), full_pages * page_size());
  auto row = rows_->try_take();
  if (!row.has_value()) return std::nullopt;
  Sequence::Published same = {.shared = {}, .own = tree().share(sequence.prefix_)};
  if (sequence.shared_.valid()) same.shared = tree().share(sequence.shared_);
  ForkedSequence fork;
  fork.sequence = Sequence(this, row->release(), std::move(same), sequence.prompt_tokens_);
  rows_->grow(fork.sequence.row_, full_pages);
  name_published(fork.sequence, 0);
  fork.sequence.set_priority(sequence.priority_);
  fork.sequence.set_retention(sequence.retention_);
  if (windows_ != nullptr) {
    fork.sequence.window_.ends = sequence.window_.ends;
    windows_->enter(fork.sequence.window_, fork.sequence.pages(), computed_tokens);
  }
  if (own_pages == 0) return fork;
  const bool reserved = reserve(fork.sequence, computed_tokens);
  STEMMA_CHECK(reserved, "that was asked above");
  fork.tail_from = sequence.pages()[static_cast<std::size_t>(full_pages)];
  fork.tail_to = fork.sequence.pages()[static_cast<std::size_t>(full_pages)];
  if (windows_ != nullptr) {
    fork.windowed_from = windows_->pages().of(fork.tail_from);
    fork.windowed_to = windows_->pages().of(fork.tail_to);
  }
  return fork;
}

}  // namespace stemma
