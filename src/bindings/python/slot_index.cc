#include "bindings/python/slot_index.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/math.h"

namespace stemma::python {

namespace {

// In the places of pages that the tree does not have.
constexpr std::int32_t kNoSlot = std::numeric_limits<std::int32_t>::min();

Status check_options(const SlotIndexOptions& options) {
  if (options.page_size < 1) {
    return Error{ErrorCode::kInvalidArgument, "page_size must be at least 1"};
  }
  if (options.tokens_max < options.page_size) {
    return Error{ErrorCode::kInvalidArgument, "tokens_max must be at least page_size"};
  }
  if (options.tokens_max / options.page_size >= (std::int64_t{1} << 30)) {
    return Error{ErrorCode::kTooLarge, "tokens_max: fewer than 2^30 pages are wanted"};
  }
  return {};
}

Error evicted_before() {
  return {ErrorCode::kNotFound, "the match is stale: its prefix was evicted before it was locked"};
}

}  // namespace

Result<std::unique_ptr<SlotIndex>> SlotIndex::open(const SlotIndexOptions& options) {
  STEMMA_RETURN_IF_ERROR(check_options(options));
  std::unique_ptr<SlotIndex> index(new SlotIndex(options));
  PrefixCacheOptions tree_options{index->allocator_};
  tree_options.page_size = options.page_size;
  tree_options.eviction = options.eviction;
  tree_options.namespaces_max = options.namespaces_max;
  tree_options.slru_protected_hits = options.slru_protected_hits;
  tree_options.events_pages_max = options.events_pages_max;
  STEMMA_ASSIGN_OR_RETURN(index->tree_, RadixPrefixCache::open(tree_options));
  return index;
}

std::optional<NamespaceId> SlotIndex::try_open_namespace(const NamespaceDigest& digest) {
  settle();
  OwnedPages evicted;
  const std::optional<NamespaceId> opened = tree_->try_open_namespace(digest, &evicted);
  move_slots(evicted, displaced_);
  return opened;
}

void SlotIndex::close_namespace(NamespaceId ns) {
  tree_->close_namespace(ns);
}

std::span<const TokenId> SlotIndex::whole_pages(std::span<const TokenId> tokens) const noexcept {
  return tokens.first(static_cast<std::size_t>(round_down(std::ssize(tokens), page_size())));
}

// The match keeps its place until something else happens.
void SlotIndex::rest(Match& match) {
  settle();
  resting_ = &match;
}

// Whoever rested goes on without a place in the tree: its tokens find it again.
void SlotIndex::settle() {
  Match* const match = std::exchange(resting_, nullptr);
  if (match == nullptr || !match->hold.valid()) return;
  match->text.resize(static_cast<std::size_t>(match->tokens));
  tree_->copy_tokens(match->hold, match->text);
  match->hold.reset();
}

// The match keeps its namespace open, whose number would else be another's one day.
void SlotIndex::name(NamespaceId ns, Match& out) {
  const auto opened = tree_->try_open_namespace(tree_->digest(ns));
  STEMMA_CHECK(opened == ns, "a namespace that is open or has pages keeps its number");
  out.ns = ns;
}

void SlotIndex::keep(PrefixLock hold, NamespaceId ns, Match& out) {
  name(ns, out);
  out.tokens = hold.tokens();
  out.hold = std::move(hold);
  rest(out);
}

void SlotIndex::match(NamespaceId ns, std::span<const TokenId> tokens, Match& out) {
  settle();
  keep(tree_->match(ns, tokens), ns, out);
}

std::int64_t SlotIndex::probe(NamespaceId ns, std::span<const TokenId> tokens) const {
  return tree_->probe(ns, tokens).matched_tokens;
}

Result<std::int64_t> SlotIndex::insert(NamespaceId ns, std::span<const TokenId> tokens,
                                       std::span<const std::int32_t> slots, std::int32_t priority,
                                       Match& out) {
  settle();
  const auto text = whole_pages(tokens);
  PrefixLock held = tree_->match(ns, text);
  const std::int64_t present = held.tokens();
  const std::int64_t new_pages = (std::ssize(text) - present) / page_size();
  auto pages = allocator_.try_allocate(new_pages);
  if (!pages.has_value()) {
    return Error{ErrorCode::kTooLarge, "the index has room for tokens_max = " +
                                           std::to_string(options_.tokens_max) + " tokens"};
  }
  scratch_.resize(static_cast<std::size_t>(new_pages));
  pages->copy_to(scratch_);
  write_slots(scratch_, slots.subspan(static_cast<std::size_t>(present)));
  keep(tree_->insert(text, std::move(held), std::move(*pages), {.priority = priority}), ns, out);
  return present;
}

void SlotIndex::write_slots(std::span<const PageId> pages, std::span<const std::int32_t> slots) {
  const auto page = static_cast<std::size_t>(page_size());
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const std::size_t at = pages[i].index() * page;
    if (at + page > slots_.size()) slots_.resize(std::max(at + page, slots_.size() * 2), kNoSlot);
    std::copy_n(slots.begin() + static_cast<std::ptrdiff_t>(i * page), page,
                slots_.begin() + static_cast<std::ptrdiff_t>(at));
  }
}

void SlotIndex::gather(std::span<const PageId> pages, std::span<std::int32_t> out) const noexcept {
  const auto page = static_cast<std::size_t>(page_size());
  if (page == 1) {
    const std::int32_t* const slots = slots_.data();
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = slots[pages[i].index()];
    return;
  }
  for (std::size_t i = 0; i * page < out.size(); ++i) {
    const std::size_t wanted = std::min(page, out.size() - i * page);
    std::memcpy(out.data() + i * page, slots_.data() + pages[i].index() * page,
                wanted * sizeof(std::int32_t));
  }
}

// Finds the match again, wherever its tokens are now.
Status SlotIndex::take_place(Match& match) {
  if (match.hold.valid()) return {};
  settle();
  PrefixLock found = tree_->match(match.ns, match.text);
  if (found.tokens() != match.tokens) return evicted_before();
  match.hold = std::move(found);
  match.text.clear();
  return {};
}

Status SlotIndex::lock(Match& match) {
  STEMMA_RETURN_IF_ERROR(take_place(match));
  if (resting_ == &match) resting_ = nullptr;
  if (match.locks++ == 0) ++locked_;
  return {};
}

Status SlotIndex::unlock(Match& match) {
  if (match.locks == 0) {
    return Error{ErrorCode::kInvalidArgument, "the match is not locked"};
  }
  if (--match.locks > 0) return {};
  --locked_;
  rest(match);
  return {};
}

void SlotIndex::forget(Match& match) noexcept {
  if (resting_ == &match) resting_ = nullptr;
  if (match.locks > 0) --locked_;
  match.locks = 0;
  match.hold.reset();
  if (match.ns.valid()) tree_->close_namespace(std::exchange(match.ns, NamespaceId()));
}

Status SlotIndex::read_slots(const Match& match, std::int64_t first_token,
                             std::span<std::int32_t> out) {
  if (out.empty()) return {};
  const auto pages = static_cast<std::size_t>(match.tokens / page_size());
  scratch_.resize(pages);
  if (match.hold.valid()) {
    match.hold.copy_pages(first_token / page_size(), scratch_);
    gather(scratch_, out);
    return {};
  }
  if (tree_->probe(match.ns, match.text, scratch_).matched_tokens != match.tokens) {
    return evicted_before();
  }
  gather(std::span(scratch_).subspan(static_cast<std::size_t>(first_token / page_size())), out);
  return {};
}

void SlotIndex::evict(std::int64_t wanted_tokens, std::vector<std::int32_t>& slots) {
  settle();
  const std::int64_t there = tree_->usage().evictable_tokens + std::ssize(displaced_);
  const std::int64_t wanted = round_up(std::min(wanted_tokens, there), page_size());
  const std::int64_t displaced = std::min(wanted, std::ssize(displaced_));
  slots.insert(slots.end(), displaced_.end() - displaced, displaced_.end());
  displaced_.resize(displaced_.size() - static_cast<std::size_t>(displaced));
  if (wanted > displaced) move_slots(tree_->evict((wanted - displaced) / page_size()), slots);
}

// Appends the slots of pages that the tree gave up; nothing names them here from now on.
void SlotIndex::move_slots(const OwnedPages& evicted, std::vector<std::int32_t>& out) {
  scratch_.resize(static_cast<std::size_t>(evicted.pages()));
  evicted.copy_to(scratch_);
  const std::size_t before = out.size();
  out.resize(before + scratch_.size() * static_cast<std::size_t>(page_size()));
  gather(scratch_, std::span(out).subspan(before));
  const auto page = static_cast<std::size_t>(page_size());
  for (const PageId id : scratch_) std::fill_n(&slots_[id.index() * page], page, kNoSlot);
}

Result<std::vector<TokenId>> SlotIndex::read_text(const Match& match) const {
  if (!match.hold.valid()) return match.text;
  std::vector<TokenId> text(static_cast<std::size_t>(match.tokens));
  tree_->copy_tokens(match.hold, text);
  return text;
}

Result<std::int64_t> SlotIndex::hot_tokens(Match& match, std::int32_t hits) {
  if (match.hold.valid()) return tree_->hot_tokens(match.hold, hits);
  STEMMA_RETURN_IF_ERROR(take_place(match));
  const std::int64_t hot = tree_->hot_tokens(match.hold, hits);
  rest(match);
  return hot;
}

std::int64_t SlotIndex::lock_coldest(Match& out) {
  settle();
  auto leaf = tree_->try_lock_coldest();
  if (!leaf.has_value()) return 0;
  name(leaf->lock.namespace_id(), out);
  out.tokens = leaf->lock.tokens();
  out.hold = std::move(leaf->lock);
  out.locks = 1;
  ++locked_;
  return leaf->own_tokens;
}

void SlotIndex::drain_events(PrefixEventSink& sink) {
  settle();
  tree_->drain_events(sink);
}

Status SlotIndex::reset() {
  if (locked_ > 0) return Error{ErrorCode::kInvalidArgument, "reset: a match is still locked"};
  settle();
  tree_->reset();
  slots_.clear();
  displaced_.clear();
  return {};
}

PrefixUsage SlotIndex::usage() {
  settle();
  PrefixUsage usage = tree_->usage();
  usage.evictable_tokens += std::ssize(displaced_);
  return usage;
}

std::vector<std::int32_t> SlotIndex::all_slots() const {
  std::vector<std::int32_t> out = slots_;
  std::erase(out, kNoSlot);
  out.insert(out.end(), displaced_.begin(), displaced_.end());
  return out;
}

std::optional<std::string> SlotIndex::audit() {
  settle();
  if (auto contradiction = tree_->audit()) return contradiction;
  return allocator_.audit();
}

}  // namespace stemma::python
