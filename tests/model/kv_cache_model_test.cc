// KvCache against a naive model: random operations, and every short sequence of operations.
//
// The model keeps, for each slot, which token prefix was computed into it, and which prefixes were
// ever published. After each operation every token of every live sequence must lie in a slot with
// exactly its prefix (a stale, doubly used or misrouted page shows), what a look-up finds must have
// been published and not purged, all of it while nothing was evicted, and the audit must find
// nothing. Sequences are forked, go on from what others published, and are purged as they run.
//
// At least 50,000 random operations a run; 1,000,000 with STEMMA_LONG_TESTS=1. Each failure names
// its seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/long_tests_fixture.h"
#include "base/prng.h"
#include "stemma/kv_cache.h"

namespace stemma {
namespace {

std::uint64_t extend(std::uint64_t hash, TokenId token) {
  return mix64(hash ^ mix64(static_cast<std::uint64_t>(token) + 1));
}

// A cache, its model, and the sequences that live in both.
class World {
 public:
  static constexpr std::int64_t kContext = 24;

  // Layers that look back over `tokens` only, with so many pages of their own; 0: none.
  struct Window {
    std::int64_t tokens = 0;
    std::int64_t pages = 0;
  };

  World(std::int64_t page_size, std::int64_t pages, const std::string& cache = "radix",
        const std::string& eviction = "lru", const Window& window = {0, 0})
      : content_(static_cast<std::size_t>(page_size * pages)),
        windowed_content_(static_cast<std::size_t>(page_size * window.pages)) {
    KvCacheOptions options;
    options.window_tokens = window.tokens;
    options.windowed_pages = window.pages;
    options.page_size = page_size;
    options.pages = pages;
    options.requests_max = 4;
    options.context_tokens_max = kContext;
    options.cache = cache;
    options.eviction = eviction;
    kv_ = std::move(KvCache::open(options)).value();
    ns_ = *kv_->try_open_namespace({});
    live_.resize(4);
  }

  std::int64_t places() const { return static_cast<std::int64_t>(live_.size()); }
  bool is_live(std::int64_t place) const { return at(place).sequence.valid(); }

  void begin(std::int64_t place, const std::vector<TokenId>& tokens) {
    Live& live = at(place);
    const std::int64_t probed = kv_->probe(ns_, tokens);
    live.sequence = *kv_->begin(ns_, tokens);
    live.tokens = tokens;
    live.computed = live.sequence.cached_tokens();
    EXPECT_EQ(live.computed, probed);
    expect_found(tokens, probed);
  }

  // Reserves for `count` more tokens and computes them, with new tokens beyond the prompt.
  void compute(std::int64_t place, std::int64_t count, TokenId next) {
    Live& live = at(place);
    const std::int64_t end = std::min(live.computed + count, kContext);
    const std::int64_t capacity = live.sequence.capacity_tokens();
    const bool fits = kv_->reservable_tokens(live.sequence) >= end;
    EXPECT_EQ(kv_->reserve(live.sequence, end), fits || end <= capacity);
    if (live.sequence.capacity_tokens() < end) {
      EXPECT_EQ(live.sequence.capacity_tokens(), capacity) << "all or nothing";
      return;
    }
    while (live.size() < end) {
      live.tokens.push_back(next);
    }
    for (; live.computed < end; ++live.computed) {
      content_[slot(live, live.computed)] = hash_of(live, live.computed);
      if (has_window()) {
        windowed_content_[windowed_slot(live, live.computed)] = hash_of(live, live.computed);
      }
    }
  }

  // What is computed next does not read what lies before its window.
  void advance(std::int64_t place) { kv_->advance(at(place).sequence, at(place).computed); }

  void commit(std::int64_t place) {
    Live& live = at(place);
    kv_->commit(live.sequence, live.known());
    note_published(live);
  }

  void finish(std::int64_t place) {
    Live& live = at(place);
    note_published(live);
    const std::vector<TokenId> known(live.known().begin(), live.known().end());
    kv_->finish(std::move(live.sequence), known);
    live = Live();
  }

  void abort(std::int64_t place) { at(place) = Live(); }

  // A second sequence with the same text, in a place that is free, if there is one.
  void fork(std::int64_t place) {
    const auto unused = std::find_if(live_.begin(), live_.end(),
                                     [](const Live& live) { return !live.sequence.valid(); });
    Live& live = at(place);
    if (unused == live_.end() || step_ >= 0 || live.computed == 0) return;
    commit(place);
    auto forked = kv_->try_fork(live.sequence, live.computed);
    if (!forked.has_value()) return;
    EXPECT_EQ(forked->tail_from.valid(), live.computed % kv_->page_size() != 0);
    copy_page(content_, forked->tail_from, forked->tail_to);
    copy_page(windowed_content_, forked->windowed_from, forked->windowed_to);
    *unused = {.sequence = std::move(forked->sequence),
               .tokens = live.tokens,
               .computed = live.computed,
               .publishes = live.publishes};
  }

  // Goes on from what others have published meanwhile of all that it will compute.
  void adopt(std::int64_t place) {
    Live& live = at(place);
    note_published(live);
    const std::int64_t computed = kv_->adopt(live.sequence, live.tokens, live.computed);
    EXPECT_GE(computed, live.computed);
    live.computed = computed;
  }

  void want(const std::vector<TokenId>& tokens) { kv_->want(ns_, tokens, turn_++); }

  void evict(std::int64_t pages) {
    if (step_ < 0) kv_->evict(pages);
  }

  // Nothing is found any more, and whoever has begun publishes nothing.
  void purge() {
    if (step_ >= 0) return;
    ASSERT_TRUE(kv_->purge({}).ok());
    published_.clear();
    for (Live& live : live_) {
      if (live.sequence.valid()) live.publishes = !kv_->shares();
    }
    EXPECT_EQ(kv_->usage().evictable_tokens, 0);
  }

  void toggle_step() {
    if (step_ < 0) {
      step_ = kv_->begin_step();
    } else {
      kv_->retire_step(std::exchange(step_, -1));
    }
  }

  void check() {
    for (const Live& live : live_) {
      for (std::int64_t position = 0; live.sequence.valid() && position < live.computed;
           ++position) {
        ASSERT_EQ(content_[slot(live, position)], hash_of(live, position))
            << "position " << position << " lies in a slot of another prefix";
      }
      if (live.sequence.valid() && has_window()) check_window(live);
    }
    const auto contradiction = kv_->audit();
    ASSERT_FALSE(contradiction.has_value()) << *contradiction << "\n" << kv_->draw();
  }

  void close() {
    if (step_ >= 0) {
      toggle_step();
    }
    for (std::int64_t place = 0; place < places(); ++place) {
      abort(place);
    }
    check();
    EXPECT_EQ(kv_->available_pages(), kv_->total_pages()) << "nothing leaks";
    if (has_window()) {
      EXPECT_EQ(kv_->available_windowed_pages(), kv_->options().windowed_pages);
    }
  }

  KvCache& kv() { return *kv_; }

 private:
  struct Live {
    Sequence sequence;
    std::vector<TokenId> tokens;
    std::int64_t computed = 0;
    bool publishes = true;  // it was not purged

    std::int64_t size() const { return static_cast<std::int64_t>(tokens.size()); }
    std::span<const TokenId> known() const {
      return std::span<const TokenId>(tokens).first(static_cast<std::size_t>(computed));
    }
  };

  Live& at(std::int64_t place) { return live_[static_cast<std::size_t>(place)]; }
  const Live& at(std::int64_t place) const { return live_[static_cast<std::size_t>(place)]; }

  std::size_t slot(const Live& live, std::int64_t position) const {
    const std::int64_t page_size = kv_->page_size();
    const PageId page = live.sequence.pages()[static_cast<std::size_t>(position / page_size)];
    return static_cast<std::size_t>(page.value() * page_size + position % page_size);
  }

  bool has_window() const { return kv_->options().window_tokens > 0; }

  std::size_t windowed_slot(const Live& live, std::int64_t position) const {
    const std::int64_t page_size = kv_->page_size();
    std::vector<PageId> row(live.sequence.pages().size());
    kv_->copy_windowed(live.sequence, live.computed, row);
    const PageId page = row[static_cast<std::size_t>(position / page_size)];
    return static_cast<std::size_t>(page.value() * page_size + position % page_size);
  }

  // What the next token's window reaches is there and right.
  void check_window(const Live& live) const {
    const std::int64_t first = live.computed - kv_->options().window_tokens + 1;
    for (auto position = std::max<std::int64_t>(first, 0); position < live.computed; ++position) {
      ASSERT_EQ(windowed_content_[windowed_slot(live, position)], hash_of(live, position))
          << "position " << position << " of the window lies in a slot of another prefix";
    }
  }

  static std::uint64_t hash_of(const Live& live, std::int64_t position) {
    return prefix_hash(live.tokens, position + 1);
  }

  static std::uint64_t prefix_hash(const std::vector<TokenId>& tokens, std::int64_t count) {
    std::uint64_t hash = 1;
    for (std::int64_t i = 0; i < count; ++i) {
      hash = extend(hash, tokens[static_cast<std::size_t>(i)]);
    }
    return hash;
  }

  void copy_page(std::vector<std::uint64_t>& content, PageId from, PageId to) const {
    if (!from.valid()) return;
    const std::int64_t size = kv_->page_size();
    std::copy_n(content.begin() + from.value() * size, size, content.begin() + to.value() * size);
  }

  void note_published(const Live& live) {
    if (!kv_->shares() || !live.publishes) {
      return;
    }
    for (std::int64_t end = kv_->page_size(); end <= live.computed; end += kv_->page_size()) {
      published_.insert(prefix_hash(live.tokens, end));
    }
  }

  // What was found was published; and as long as nothing was evicted, all that was is found.
  void expect_found(const std::vector<TokenId>& tokens, std::int64_t found) {
    const auto tokens_max = static_cast<std::int64_t>(tokens.size()) - 1;
    std::int64_t published = 0;
    while (published + kv_->page_size() <= tokens_max &&
           published_.contains(prefix_hash(tokens, published + kv_->page_size()))) {
      published += kv_->page_size();
    }
    EXPECT_LE(found, published);
    if (kv_->evicted_pages() == 0 && !has_window()) {
      EXPECT_EQ(found, published);
    }
  }

  std::unique_ptr<KvCache> kv_;
  NamespaceId ns_;
  std::vector<std::uint64_t> content_;  // the prefix in each slot
  std::vector<std::uint64_t> windowed_content_;
  std::set<std::uint64_t> published_;
  std::int64_t step_ = -1;
  std::int64_t turn_ = 0;  // of the next want
  std::vector<Live> live_;
};

std::vector<TokenId> random_prompt(Prng& prng) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(1 + prng.below(16)));
  for (TokenId& token : tokens) {
    token = prng.below(5) == 0 ? 1 : 0;  // two tokens, mostly equal: deep sharing, many splits
  }
  return tokens;
}

// What is no sequence's own.
void random_event(World& world, Prng& prng) {
  const std::int64_t choice = prng.below(8);
  if (choice < 4) return world.want(random_prompt(prng));
  if (choice < 6) return world.evict(prng.below(4));
  choice == 6 ? world.kv().forget_wants() : world.purge();
}

void random_operation(World& world, Prng& prng) {
  if (prng.below(12) == 0) return random_event(world, prng);
  const std::int64_t place = prng.below(world.places());
  if (!world.is_live(place)) {
    return world.begin(place, random_prompt(prng));
  }
  const std::int64_t choice = prng.below(26);
  if (choice >= 24) {
    world.fork(place);
  } else if (choice >= 22) {
    world.adopt(place);
  } else if (choice >= 20) {
    world.advance(place);
  } else if (choice < 11) {
    world.compute(place, 1 + prng.below(6), static_cast<TokenId>(prng.below(2)));
  } else if (choice < 15) {
    world.commit(place);
  } else if (choice < 17) {
    world.finish(place);
  } else if (choice < 19) {
    world.abort(place);
  } else {
    world.toggle_step();
  }
}

struct RunOptions {
  std::int64_t page_size;
  std::int64_t pages;
  const char* cache;
  const char* eviction;
  World::Window window = {0, 0};
};

void random_run(const RunOptions& run, std::int64_t operations, std::uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed) + ", page size " + std::to_string(run.page_size) +
               ", pages " + std::to_string(run.pages) + ", " + run.cache + " " + run.eviction +
               ", window " + std::to_string(run.window.tokens));
  Prng prng(seed);
  World world(run.page_size, run.pages, run.cache, run.eviction, run.window);
  for (std::int64_t i = 0; i < operations; ++i) {
    random_operation(world, prng);
    world.check();
    ASSERT_FALSE(::testing::Test::HasFailure()) << "operation " << i;
  }
  world.close();
}

TEST(KvCacheModel, RandomOperations) {
  const RunOptions runs[] = {
      {1, 48, "radix", "lru"},
      {2, 16, "radix", "lfu"},
      {3, 14, "radix", "fifo"},
      {4, 12, "radix", "slru"},
      {1, 24, "radix", "mru"},
      {16, 6, "radix", "filo"},
      {2, 24, "none", "lru"},
      {1, 30, "radix", "priority"},
      {2, 20'000, "radix", "lru"},
      {64, 4, "radix", "lru"},
      {1, 24, "radix", "hazard"},
      {3, 20, "radix", "hazard"},
      {1, 40, "radix", "lru", {3, 12}},
      {2, 20, "radix", "lru", {5, 14}},
      {4, 16, "radix", "slru", {4, 6}},
      {3, 14, "none", "lru", {2, 10}},
      {2, 200, "radix", "lru", {7, 60}},
      {1, 48, "radix", "hazard", {1, 9}},
  };
  const std::int64_t operations = (long_tests() ? 1'200'000 : 60'000) / 10;
  for (const RunOptions& run : runs) {
    // The run whose pool is never full audits many pages each time; it needs no more operations.
    random_run(run, run.pages > 1000 ? operations / 50 : operations, 20'260'101);
    ASSERT_FALSE(HasFailure());
  }
  if (long_tests()) {
    random_run({2, 13, "radix", "lru"}, 1'000'000, 7);
  }
}

// Every sequence of operations up to a length, over two sequences, two tokens and four pages.
constexpr std::int64_t kOperations = 14;

void small_operation(World& world, std::int64_t operation) {
  static const std::vector<std::vector<TokenId>> prompts = {{0, 0, 0}, {0, 0, 1}, {0, 1, 0, 0}};
  const std::int64_t place = operation / 7;
  const std::int64_t verb = operation % 7;
  if (verb < 3) {
    if (!world.is_live(place)) {
      world.begin(place, prompts[static_cast<std::size_t>(verb)]);
    }
    return;
  }
  if (!world.is_live(place)) {
    return;
  }
  switch (verb) {
    case 3:
      return world.compute(place, 2, 0);
    case 4:
      return world.commit(place);
    case 5:
      return world.finish(place);
    default:
      return world.abort(place);
  }
}

TEST(KvCacheModel, EveryShortSequenceOfOperations) {
  const int length = long_tests() ? 5 : 4;
  std::int64_t sequences = 1;
  for (int i = 0; i < length; ++i) {
    sequences *= kOperations;
  }
  for (const std::int64_t page_size : {1, 2}) {
    for (std::int64_t number = 0; number < sequences; ++number) {
      World world(page_size, 4);
      std::int64_t rest = number;
      // Something must begin for anything to happen: the first operation is always a begin.
      world.begin(1, {0, 0, 1});
      world.compute(1, 3, 0);
      for (int i = 0; i < length; ++i, rest /= kOperations) {
        small_operation(world, rest % kOperations);
        world.check();
      }
      world.close();
      ASSERT_FALSE(HasFailure()) << "sequence " << number << ", page size " << page_size;
    }
  }
}

}  // namespace
}  // namespace stemma
