// PrefixTwins: a radix prefix cache and the naive model, driven by the same commands and compared.
//
// Thread:     tests and fuzzing.
// Memory:     the pool's.
// Cost:       difference() is O(tree).
// Not here:   anything that ships; what the commands are (exhaustive, random or fuzzed).
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "prefix/naive_prefix_model.h"
#include "prefix/radix_prefix_cache.h"

namespace stemma {

struct TwinsOptions {
  std::int64_t page_size = 1;
  std::int64_t pages = 4;
  std::int64_t namespaces = 1;
  std::string eviction = "lru";
  int hash_bits = 32;
  std::vector<std::int64_t> quotas = {};  // in pages, of the first namespaces' tenants
};

class PrefixTwins {
 public:
  using Tokens = NaivePrefixModel::Tokens;
  using Pages = NaivePrefixModel::Pages;

  // What one request holds, in both twins.
  struct Held {
    PrefixLock lock;
    NaivePrefixModel::Node* node = nullptr;
    Tokens tokens;  // the text that is being computed; the lock covers its beginning
  };

  explicit PrefixTwins(const TwinsOptions& options)
      : options_(options),
        allocator_(options.pages),
        model_(options.page_size, EvictionOrder::make(options.eviction).value(),
               options.namespaces) {
    PrefixCacheOptions cache_options{allocator_};
    cache_options.page_size = options.page_size;
    cache_options.eviction = options.eviction;
    cache_options.namespaces_max = options.namespaces;
    cache_options.lookup_hash_bits = options.hash_bits;
    cache_options.hash_seed = 7;
    cache_ = RadixPrefixCache::open(cache_options).value();
    for (std::int64_t ns = 0; ns < options.namespaces; ++ns) {
      NamespaceDigest digest;
      digest.bytes[0] = static_cast<std::uint8_t>(ns);
      namespaces_.push_back(*cache_->try_open_namespace(digest));
    }
    for (std::size_t ns = 0; ns < options.quotas.size(); ++ns) set_quota(ns, options.quotas[ns]);
  }

  void set_quota(std::size_t ns, std::int64_t pages) {
    cache_->set_quota(family_of(cache_->digest(namespaces_[ns])), pages);
    model_.set_quota(ns, pages);
  }

  std::int64_t free_pages() const { return allocator_.free_pages(); }
  std::size_t held() const { return held_.size(); }
  const Held& held(std::size_t i) const { return held_[i]; }

  // Locks what is cached of `tokens`, which are whole pages.
  void match(std::size_t ns, Tokens tokens) {
    note_epoch();
    PrefixLock lock = cache_->match(namespaces_[ns], tokens);
    NaivePrefixModel::Node* node = model_.match(ns, tokens);
    held_.push_back({std::move(lock), node, std::move(tokens)});
    if (cache_->epoch() != epoch_before_) fail("a match raised the epoch");
  }

  // Publishes up to `pages` more of what request i computes, as many as are free.
  void insert(std::size_t i, std::int64_t pages, std::int32_t priority) {
    Held& held = held_[i];
    const std::int64_t missing = static_cast<std::int64_t>(held.tokens.size()) - held.lock.tokens();
    pages = std::min({pages, missing / options_.page_size, allocator_.free_pages()});
    OwnedPages fresh = *allocator_.try_allocate(pages);
    Pages ids(static_cast<std::size_t>(pages));
    fresh.copy_to(ids);
    const auto end = held.lock.tokens() + pages * options_.page_size;
    const Tokens published(held.tokens.begin(), held.tokens.begin() + end);
    const auto [node, duplicates] = model_.insert(published, held.node, ids, priority);
    held.node = node;
    held.lock = cache_->insert(published, std::move(held.lock), std::move(fresh), {priority});
  }

  void unlock(std::size_t i) {
    NaivePrefixModel::unlock(held_[i].node);
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
  }

  void evict(std::int64_t pages) {
    note_epoch();
    const OwnedPages out = cache_->evict(pages);
    Pages ids(static_cast<std::size_t>(out.pages()));
    out.copy_to(ids);
    if (ids != model_.evict(pages)) fail("other pages were evicted");
    if ((cache_->epoch() != epoch_before_) == out.empty()) fail("the epoch did not follow");
  }

  void probe(std::size_t ns, const Tokens& tokens) {
    if (cache_->probe(namespaces_[ns], tokens).matched_tokens != model_.probe(ns, tokens)) {
      fail("a probe found another length");
    }
  }

  // Drops everything, if nothing is held.
  void reset() {
    if (!held_.empty()) return;
    cache_->reset();
    model_.evict(options_.pages);
  }

  // The first command that gave different results, other victims above all; nullopt if none did.
  const std::optional<std::string>& failure() const { return failure_; }

  // What the twins disagree on, or what contradicts itself; nullopt if nothing. For nodes short
  // enough that `draw` shows them whole.
  std::optional<std::string> difference() const {
    if (failure_.has_value()) return failure_;
    if (auto fault = cache_->audit()) return fault;
    if (auto fault = allocator_.audit()) return fault;
    if (cache_->draw() != model_.draw()) {
      return "trees differ:\n" + cache_->draw() + "model:\n" + model_.draw();
    }
    const PrefixUsage usage = cache_->usage();
    if (usage.evictable_tokens != model_.usage().evictable_tokens) return "evictable tokens differ";
    if (usage.locked_tokens != model_.usage().locked_tokens) return "locked tokens differ";
    if (allocator_.free_pages() + usage.total_tokens() / options_.page_size != options_.pages) {
      return "pages are neither free nor cached (I1)";
    }
    for (const Held& held : held_) {
      Pages pages(static_cast<std::size_t>(held.lock.tokens() / options_.page_size));
      held.lock.copy_pages(0, pages);
      if (pages != NaivePrefixModel::path_pages(held.node)) return "a lock names other pages (I2)";
    }
    return std::nullopt;
  }

 private:
  void note_epoch() { epoch_before_ = cache_->epoch(); }
  void fail(std::string why) {
    if (!failure_.has_value()) failure_ = std::move(why);
  }

  TwinsOptions options_;
  PageAllocator allocator_;
  NaivePrefixModel model_;
  std::unique_ptr<RadixPrefixCache> cache_;
  std::vector<NamespaceId> namespaces_;
  std::vector<Held> held_;
  std::optional<std::string> failure_;
  std::uint64_t epoch_before_ = 0;
};

}  // namespace stemma
