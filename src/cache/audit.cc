// The whole-state audit. Allocator and tree check themselves; this checks what lies between them:
// every page counted once, every row naming its own sequence's pages only.
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "alloc/request_table.h"
#include "base/check.h"
#include "cache/grafts.h"
#include "cache/tiering.h"
#include "cache/windows.h"
#include "stemma/kv_cache.h"

namespace stemma {

// One pass over a KvCache; the first contradiction ends it.
class KvCacheAudit {
 public:
  explicit KvCacheAudit(const KvCache& cache)
      : cache_(cache),
        in_tail_(static_cast<std::size_t>(cache.total_pages())),
        in_prefix_(static_cast<std::size_t>(cache.total_pages())),
        in_window_(static_cast<std::size_t>(cache.options().windowed_pages)) {}

  std::optional<std::string> run() {
    for (auto check :
         {&KvCacheAudit::check_parts, &KvCacheAudit::check_sequences, &KvCacheAudit::check_owners,
          &KvCacheAudit::check_counts, &KvCacheAudit::check_windows}) {
      if (auto contradiction = (this->*check)()) {
        return contradiction;
      }
    }
    return std::nullopt;
  }

 private:
  using Finding = std::optional<std::string>;

  Finding check_parts() {
    if (auto contradiction = cache_.allocator_.audit()) {
      return "allocator: " + *contradiction;
    }
    if (auto contradiction = cache_.prefix_->audit()) {
      return "prefix cache: " + *contradiction;
    }
    if (cache_.tiering_ != nullptr) return cache_.tiering_->audit();
    return std::nullopt;
  }

  // I2: a row is its locks' pages, then its tail's; nothing else. What goes on from a prefix that
  // everybody shares is held only where that is held whole.
  Finding check_sequences() {
    std::int64_t held_rows = 0;
    for (const Sequence* sequence : cache_.live_) {
      if (sequence == nullptr) {
        continue;
      }
      ++held_rows;
      if (auto contradiction = check_row(*sequence)) {
        return contradiction;
      }
    }
    if (held_rows + cache_.free_rows() != cache_.rows_->rows()) {
      return fmt::format("{} rows held by sequences, {} free, {} in all", held_rows,
                         cache_.free_rows(), cache_.rows_->rows());
    }
    return std::nullopt;
  }

  Finding check_row(const Sequence& sequence) {
    if (sequence.on_loan()) {
      return fmt::format("I9: row {} names pages on loan after its step", sequence.row_.value());
    }
    const std::int64_t whole = cache_.grafts_->shared_tokens(sequence.prefix_.namespace_id());
    if (sequence.prefix_.tokens() > 0 && sequence.shared_.tokens() != whole) {
      return fmt::format("I7: row {} goes on from {} shared tokens, of which it holds {}",
                         sequence.row_.value(), whole, sequence.shared_.tokens());
    }
    const auto row = sequence.pages();
    if (static_cast<std::int64_t>(row.size()) != cache_.held_pages(sequence)) {
      return fmt::format("I2: row {} names {} pages, its sequence holds {}", sequence.row_.value(),
                         row.size(), cache_.held_pages(sequence));
    }
    std::vector<PageId> held(row.size());
    const auto locked = static_cast<std::size_t>(sequence.published_tokens() / cache_.page_size());
    const auto shared = static_cast<std::size_t>(sequence.shared_.tokens() / cache_.page_size());
    if (shared > 0) sequence.shared_.copy_pages(0, std::span(held).first(shared));
    sequence.prefix_.copy_pages(0, std::span(held).subspan(shared, locked - shared));
    sequence.tail_.copy_to(std::span(held).subspan(locked));
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (row[i] != held[i]) {
        return fmt::format("I2: row {} names page {} at {}, its {} holds page {}",
                           sequence.row_.value(), row[i].value(), i, i < locked ? "lock" : "tail",
                           held[i].value());
      }
      (i < locked ? in_prefix_ : in_tail_)[row[i].index()] += 1;
    }
    return check_window(sequence);
  }

  // I2: what computing goes on to read of the windowed layers is there.
  Finding check_window(const Sequence& sequence) {
    if (cache_.windows_ == nullptr) return std::nullopt;
    const auto row = sequence.pages();
    const auto begin = static_cast<std::size_t>(sequence.window_.begin_page);
    for (std::size_t i = begin; i < row.size(); ++i) {
      const PageId windowed = cache_.windows_->pages().of(row[i]);
      if (!windowed.valid()) {
        return fmt::format("I2: row {} has no windowed page at {}, in its window",
                           sequence.row_.value(), i);
      }
      in_window_[windowed.index()] += 1;
    }
    return std::nullopt;
  }

  // Windowed pages hang on pages that somebody has, and are held by whoever's window they are in,
  // and by copies.
  Finding check_windows() {
    if (cache_.windows_ == nullptr) return std::nullopt;
    std::int64_t taken = 0;
    if (cache_.tiering_ != nullptr) {
      taken = cache_.tiering_->count_windowed(cache_.windows_->pages(), in_window_);
    }
    return cache_.windows_->pages().audit(in_window_, taken);
  }

  // I1: a tail page is in one tail and in no tree.
  Finding check_owners() {
    for (std::size_t page = 0; page < in_tail_.size(); ++page) {
      if (in_tail_[page] > 1) {
        return fmt::format("I1: page {} is in {} tails", page, in_tail_[page]);
      }
      if (in_tail_[page] == 1 && in_prefix_[page] > 0) {
        return fmt::format("I1: page {} is in a tail and in the tree", page);
      }
      tail_pages_ += in_tail_[page];
      locked_pages_ += in_prefix_[page] > 0 ? 1 : 0;
    }
    return std::nullopt;
  }

  // I1: free + retiring + tails + tree = all. I3: what sequences hold, eviction cannot take.
  Finding check_counts() {
    const PageAllocator& allocator = cache_.allocator_;
    const std::int64_t arriving = cache_.tiering_ == nullptr ? 0 : cache_.tiering_->device_pages();
    if (tail_pages_ + arriving != allocator.owned_pages()) {
      return fmt::format("I1: {} pages in tails and {} arriving, {} handed out", tail_pages_,
                         arriving, allocator.owned_pages());
    }
    const PrefixUsage usage = cache_.prefix_->usage();
    if (usage.total_tokens() != allocator.released_pages() * cache_.page_size()) {
      return fmt::format("I1: {} tokens in the tree, {} pages given to it", usage.total_tokens(),
                         allocator.released_pages());
    }
    const std::int64_t all = allocator.free_pages() + allocator.retiring_pages() + tail_pages_ +
                             arriving + allocator.released_pages();
    if (all != cache_.total_pages()) {
      return fmt::format("I1: {} pages accounted for, {} in all", all, cache_.total_pages());
    }
    if (locked_pages_ * cache_.page_size() > usage.locked_tokens) {
      return fmt::format("I3: sequences hold {} pages of the tree, {} tokens are locked",
                         locked_pages_, usage.locked_tokens);
    }
    return std::nullopt;
  }

  const KvCache& cache_;
  std::vector<std::int32_t> in_tail_;    // how many tails hold a page
  std::vector<std::int32_t> in_prefix_;  // how many locks hold a page
  std::vector<std::int32_t> in_window_;  // how many windows a windowed page is in
  std::int64_t tail_pages_ = 0;
  std::int64_t locked_pages_ = 0;
};

std::optional<std::string> KvCache::audit() const {
  return KvCacheAudit(*this).run();
}

}  // namespace stemma
