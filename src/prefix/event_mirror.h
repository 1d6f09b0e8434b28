// EventMirror: the pages of a cache as told by its events, and everything that events must not say.
//
// Thread:     tests.
// Memory:     a map entry a page.
// Cost:       a look-up and a hash a page.
// Not here:   wires (events/).
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "prefix/page_key.h"
#include "prefix/prefix_fixture.h"

namespace stemma {

class EventMirror final : public PrefixEventSink {
 public:
  struct Page {
    std::optional<PageKey> parent;  // nullopt: a text begins with it
    Tokens tokens;
    NamespaceDigest digest;
    friend bool operator==(const Page&, const Page&) = default;
  };

  // A page is stored once, behind one that is there, under the key that its text in its namespace
  // gives it; what is removed is there, and nothing continues it.
  void take(const PrefixEvent& event) override {
    switch (event.kind) {
      case PrefixEvent::Kind::kCleared:
        ++cleared_events;
        pages.clear();
        continued_.clear();
        return;
      case PrefixEvent::Kind::kStored:
        ++stored_events;
        return store(event);
      case PrefixEvent::Kind::kRemoved:
        ++removed_events;
        for (const PageKey& key : event.keys) remove(key);
        return;
    }
  }

  std::map<PageKey, Page> pages;
  int stored_events = 0;
  int removed_events = 0;
  int cleared_events = 0;

 private:
  void store(const PrefixEvent& event) {
    ASSERT_FALSE(event.keys.empty());
    const std::size_t page_size = event.tokens.size() / event.keys.size();
    ASSERT_EQ(event.tokens.size(), event.keys.size() * page_size);
    std::optional<PageKey> parent = event.parent;
    for (std::size_t i = 0; i < event.keys.size(); ++i) {
      const auto tokens = event.tokens.subspan(i * page_size, page_size);
      PageKey above = PageKeyHasher::root(event.digest);
      if (parent.has_value()) {
        const auto page = pages.find(*parent);
        ASSERT_NE(page, pages.end()) << "stored before what it continues";
        if (page->second.digest == event.digest) above = *parent;
        continued_.insert(*parent);
      }
      ASSERT_EQ(event.keys[i], hasher_.next(above, tokens)) << "not the key of its text";
      const Page page{parent, Tokens(tokens.begin(), tokens.end()), event.digest};
      const bool stored = pages.try_emplace(event.keys[i], page).second;
      ASSERT_TRUE(stored) << "stored twice";
      parent = event.keys[i];
    }
  }

  void remove(const PageKey& key) {
    const auto page = pages.find(key);
    ASSERT_NE(page, pages.end()) << "removed and not there";
    ASSERT_FALSE(continued_.contains(key)) << "removed before what continues it";
    if (page->second.parent.has_value()) {
      continued_.erase(continued_.find(*page->second.parent));
    }
    pages.erase(page);
  }

  std::multiset<PageKey> continued_;  // once for each page that continues it
  PageKeyHasher hasher_;
};

// What the cache finds now, as it tells itself. Its log must be drained.
inline std::map<PageKey, EventMirror::Page> pages_found(RadixPrefixCache& cache) {
  EventMirror mirror;
  cache.resend_events();
  cache.drain_events(mirror);
  return std::move(mirror.pages);
}

}  // namespace stemma
