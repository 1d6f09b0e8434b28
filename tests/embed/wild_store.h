// WildStore: a page store in terms of the callbacks of stemma/c.h that does what stores do at their
// worst: it forgets, refuses, fails, damages, answers with another page, and is not always purged.
// Its frames outlive the caches that use it.
//
// Thread:     as stemma_store_callbacks says; what else a test asks of it from any.
// Memory:     its frames.
// Cost:       a copy of a frame.
// Not here:   hanging (tests/sim has clocks that are simulated).
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/prng.h"
#include "stemma/c.h"
#include "stemma/prefix_cache.h"
#include "tier/page_frame.h"

namespace stemma {

class WildStore {
 public:
  // `mischief`: of a hundred pages, so many are treated badly.
  WildStore(std::uint64_t seed, std::int64_t mischief) : prng_(seed), mischief_(mischief) {}

  stemma_store* open(bool can_purge, bool can_remove) {
    stemma_store_callbacks callbacks = {};
    callbacks.struct_size = sizeof(callbacks);
    callbacks.context = this;
    callbacks.name = "wild";
    callbacks.lookup = lookup;
    callbacks.read = read;
    callbacks.write = write;
    callbacks.remove = can_remove ? remove : nullptr;
    callbacks.purge = can_purge ? purge : nullptr;
    callbacks.close = close;
    {
      const std::lock_guard lock(mutex_);
      ++open_;
    }
    stemma_store* store = nullptr;
    EXPECT_EQ(stemma_store_open(&callbacks, &store), STEMMA_OK) << stemma_last_error();
    return store;
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    frames_.clear();
  }
  // Whether each store that was opened over it was closed.
  bool is_closed() {
    const std::lock_guard lock(mutex_);
    return open_ == 0;
  }

 private:
  static WildStore& of(void* context) { return *static_cast<WildStore*>(context); }
  static std::string key_of(const std::uint8_t* key) {
    return {reinterpret_cast<const char*>(key), 32};
  }
  bool is_bad() { return prng_.below(100) < mischief_; }

  static std::int64_t lookup(void* context, const std::uint8_t* keys, std::size_t count,
                             std::int64_t) {
    WildStore& self = of(context);
    const std::lock_guard lock(self.mutex_);
    if (self.is_bad()) return self.prng_.below(3) == 0 ? -1 : static_cast<std::int64_t>(count);
    std::size_t found = 0;
    while (found < count && self.frames_.contains(key_of(keys + 32 * found))) ++found;
    return static_cast<std::int64_t>(found);
  }

  static void read(void* context, stemma_stored_page* pages, std::size_t count, std::int64_t) {
    WildStore& self = of(context);
    const std::lock_guard lock(self.mutex_);
    for (std::size_t i = 0; i < count; ++i) self.read_one(pages[i]);
  }
  void read_one(stemma_stored_page& page) {
    auto found = frames_.find(key_of(page.key));
    const bool bad = is_bad();
    if (bad && !frames_.empty())
      found = std::next(frames_.begin(), prng_.below(std::ssize(frames_)));
    if (found == frames_.end() || found->second.size() != page.frame_bytes) {
      page.verdict = bad ? static_cast<std::int32_t>(prng_.below(9)) - 2 : 1;
      if (page.verdict == 0) page.verdict = 1;
      return;
    }
    std::memcpy(page.frame, found->second.data(), page.frame_bytes);
    page.verdict = 0;
    if (!bad || prng_.below(2) == 0) return;  // another page, or damage
    auto* const bytes = static_cast<std::byte*>(page.frame);
    bytes[prng_.below(static_cast<std::int64_t>(page.frame_bytes))] ^=
        std::byte(1 << prng_.below(8));
    page.verdict = static_cast<std::int32_t>(prng_.below(5));
  }

  static void write(void* context, stemma_stored_page* pages, std::size_t count, std::int64_t) {
    WildStore& self = of(context);
    const std::lock_guard lock(self.mutex_);
    for (std::size_t i = 0; i < count; ++i) {
      pages[i].verdict = 0;
      if (self.is_bad()) {
        pages[i].verdict = static_cast<std::int32_t>(self.prng_.below(5));
        continue;
      }
      self.frames_.try_emplace(key_of(pages[i].key), static_cast<const char*>(pages[i].frame),
                               pages[i].frame_bytes);
    }
  }

  static void remove(void* context, stemma_stored_page* pages, std::size_t count, std::int64_t) {
    WildStore& self = of(context);
    const std::lock_guard lock(self.mutex_);
    for (std::size_t i = 0; i < count; ++i) {
      const auto found = self.frames_.find(key_of(pages[i].key));
      if (found == self.frames_.end() || found->second.size() != pages[i].frame_bytes) continue;
      if (std::memcmp(found->second.data(), pages[i].frame, pages[i].frame_bytes) == 0) {
        self.frames_.erase(found);
      }
    }
  }

  static std::int64_t purge(void* context, const std::uint8_t* families, std::size_t count,
                            std::int64_t) {
    WildStore& self = of(context);
    const std::lock_guard lock(self.mutex_);
    if (self.is_bad()) return -1;
    std::vector<NamespaceFamily> named(count);
    for (std::size_t i = 0; i < count; ++i) std::memcpy(named[i].bytes.data(), families + 8 * i, 8);
    return static_cast<std::int64_t>(std::erase_if(self.frames_, [&](const auto& entry) {
      return peek_is_behind(std::as_bytes(std::span(entry.second)), named, 0);
    }));
  }

  static void close(void* context) {
    WildStore& self = of(context);
    const std::lock_guard lock(self.mutex_);
    --self.open_;
  }

  std::mutex mutex_;
  Prng prng_;
  std::int64_t mischief_;
  std::map<std::string, std::string> frames_;
  std::int64_t open_ = 0;
};

}  // namespace stemma
