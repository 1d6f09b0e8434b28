// PolicyTwins: a cache under an eviction policy, and a plain reference of that policy, driven by
// the requests of a trace alike and compared victim by victim.
//
// A reference has resident_pages(request), evict(tip, now_us), which names the page that goes while
// `tip` is held, and end(request, pages, now_us); pages are known by their hashes.
//
// Thread:     tests.
// Memory:     the pool's.
// Cost:       the reference's.
// Not here:   anything that ships; the references.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "prefix/prefix_cache_factory.h"
#include "replay/replayer.h"

namespace stemma {

template <typename Reference>
class PolicyTwins {
 public:
  PolicyTwins(const std::string& policy, std::int64_t pages, Reference reference)
      : allocator_(pages),
        naive_(std::move(reference)),
        hash_of_page_(static_cast<std::size_t>(pages), -1) {
    PrefixCacheOptions options{allocator_};
    options.page_size = kHashPageTokens;
    options.eviction = policy;
    options.clock = &clock_;
    cache_ = make_prefix_cache("radix", options).value();
    ns_ = *cache_->try_open_namespace({});
  }

  // Fails the test where the twins part.
  void serve(const TraceRequest& request) {
    const auto now_us = static_cast<std::int64_t>(request.timestamp_ms * 1000);
    clock_.advance_us(now_us - clock_.now_us());
    std::vector<TokenId> tokens;
    append_hash_tokens(request.page_hashes, tokens);
    PrefixLock lock = cache_->match(ns_, tokens);
    const std::int64_t hit_pages = lock.tokens() / kHashPageTokens;
    ASSERT_EQ(hit_pages, naive_.resident_pages(request));
    const auto pages = std::ssize(request.page_hashes);
    const std::int64_t tip =
        hit_pages > 0 ? request.page_hashes[static_cast<std::size_t>(hit_pages - 1)] : -1;
    while (allocator_.free_pages() < pages - hit_pages) {
      ASSERT_NO_FATAL_FAILURE(evict_one(tip, now_us));
    }
    std::vector<PageId> ids(static_cast<std::size_t>(pages - hit_pages));
    OwnedPages fresh = *allocator_.try_allocate(pages - hit_pages);
    fresh.copy_to(ids);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      hash_of_page_[ids[i].index()] = request.page_hashes[static_cast<std::size_t>(hit_pages) + i];
    }
    lock = cache_->insert(tokens, std::move(lock), std::move(fresh), {});
    cache_->complete(
        lock, {.prompt_tokens = request.input_tokens, .output_tokens = request.output_tokens});
    naive_.end(request, pages, now_us);
  }

  std::int64_t evictions() const { return evictions_; }
  // What the cache says against itself, or nullopt.
  std::optional<std::string> audit() const { return cache_->audit(); }

 private:
  void evict_one(std::int64_t tip, std::int64_t now_us) {
    const OwnedPages gone = cache_->evict(1);
    ASSERT_EQ(gone.pages(), 1);
    PageId id;
    gone.copy_to(std::span(&id, 1));
    ASSERT_EQ(hash_of_page_[id.index()], naive_.evict(tip, now_us)) << "victim " << evictions_;
    ++evictions_;
  }

  FakeClock clock_;
  PageAllocator allocator_;
  Reference naive_;
  std::unique_ptr<PrefixCache> cache_;
  NamespaceId ns_;
  std::vector<std::int64_t> hash_of_page_;
  std::int64_t evictions_ = 0;
};

}  // namespace stemma
