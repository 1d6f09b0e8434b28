// RandomLife: a prefix cache that lives through everything that can happen to it, from one seed.
//
// Thread:     tests.
// Memory:     a handful of locks.
// Cost:       none.
// Not here:   what is compared.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "prefix/prefix_fixture.h"

namespace stemma {

class RandomLife {
 public:
  RandomLife(const FixtureOptions& options, std::uint64_t seed) : f(options), prng_(seed) {
    spaces_ = {f.ns, *f.cache->try_open_namespace(digest_of(1)),
               *f.cache->try_open_namespace(digest_of(2))};
  }

  // One operation, drawn.
  void step() {
    const std::int64_t drawn = prng_.below(1000);
    if (drawn < 400) {
      hold(f.begin_in(space(), text()));
    } else if (drawn < 500) {
      grow();
    } else if (drawn < 750) {
      release();
    } else if (drawn < 880) {
      f.cache->evict(prng_.below(8)).reset();
    } else if (drawn < 930) {
      const Tokens wrong = text();
      static_cast<void>(f.cache->try_discard(space(), wrong, kept_of(wrong)));
    } else if (drawn < 980) {
      std::vector<PageKey> keys;
      const Tokens wrong = text();
      f.cache->quarantine(space(), wrong, kept_of(wrong), keys);
    } else if (drawn < 998) {
      reopen();
    } else {
      held_.clear();
      f.cache->reset();
    }
  }

  // There are three.
  NamespaceId space(std::size_t i) const { return spaces_[i]; }

  PrefixFixture f;

 private:
  struct Held {
    PrefixLock lock;
    Tokens text;
  };

  NamespaceId space() { return spaces_[static_cast<std::size_t>(prng_.below(3))]; }

  // One to six pages of few different ones, so that texts share beginnings.
  Tokens text() {
    Tokens tokens;
    for (std::int64_t page = prng_.below(6); page >= 0; --page) {
      tokens.insert(tokens.end(), static_cast<std::size_t>(f.page_size - 1), 7);
      tokens.push_back(static_cast<TokenId>(prng_.below(3)));
    }
    return tokens;
  }

  std::int64_t kept_of(const Tokens& tokens) {
    return prng_.below(static_cast<std::int64_t>(tokens.size()) / f.page_size) * f.page_size;
  }

  void hold(PrefixLock lock) {
    constexpr std::size_t kHeldMax = 5;  // of six pages each, and less than all pages
    Tokens tokens(static_cast<std::size_t>(lock.tokens()));
    f.cache->copy_tokens(lock, tokens);
    held_.push_back({std::move(lock), std::move(tokens)});
    if (held_.size() > kHeldMax) held_.erase(held_.begin());
  }

  // What somebody holds goes on, be it in quarantine or not.
  void grow() {
    if (held_.empty()) return;
    const auto i = static_cast<std::size_t>(prng_.below(static_cast<std::int64_t>(held_.size())));
    Held held = std::move(held_[i]);
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
    if (held.text.size() > static_cast<std::size_t>(12 * f.page_size)) return;
    hold(f.publish(std::move(held.lock), held.text + text()));
  }

  void release() {
    if (held_.empty()) return;
    held_.erase(held_.begin() + prng_.below(static_cast<std::int64_t>(held_.size())));
  }

  // A namespace is closed and another digest takes its place, or its name.
  void reopen() {
    const auto i = static_cast<std::size_t>(1 + prng_.below(2));
    const auto fresh = f.cache->try_open_namespace(digest_of(static_cast<int>(prng_.below(9))));
    if (!fresh.has_value()) return;
    f.cache->close_namespace(spaces_[i]);
    spaces_[i] = *fresh;
  }

  Prng prng_;
  std::vector<NamespaceId> spaces_;
  std::vector<Held> held_;
};

}  // namespace stemma
