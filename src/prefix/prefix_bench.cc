#include "prefix/prefix_bench.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/prng.h"
#include "prefix/policy_bench.h"
#include "prefix/radix_prefix_cache.h"

namespace stemma {

namespace {

using Tokens = std::vector<TokenId>;

constexpr int kSamples = 21;

// Nanoseconds that `work` takes.
template <typename Work>
double nanoseconds_of(Work&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  const auto end = std::chrono::steady_clock::now();
  return std::chrono::duration<double, std::nano>(end - start).count();
}

// Keeps the compiler from computing `value` away.
template <typename T>
void keep(T& value) {
  asm volatile("" : : "r"(&value) : "memory");
}

Tokens random_tokens(Prng& random, std::int64_t count) {
  Tokens tokens(static_cast<std::size_t>(count));
  for (TokenId& token : tokens) token = static_cast<TokenId>(random.below(128'000));
  return tokens;
}

// A cache over a pool of its own.
struct Subject {
  Subject(std::int64_t pages, std::int64_t page_size) : allocator(pages) {
    PrefixCacheOptions options{allocator};
    options.page_size = page_size;
    options.hash_seed = 1;
    cache.emplace(options, EvictionOrder(EvictionPolicy::kLru));
    ns = *cache->try_open_namespace(NamespaceDigest());
  }

  void add(std::span<const TokenId> tokens) {
    PrefixLock lock = cache->match(ns, tokens);
    const auto missing =
        (static_cast<std::int64_t>(tokens.size()) - lock.tokens()) / cache->page_size();
    lock = cache->insert(tokens, std::move(lock), *allocator.try_allocate(missing), {});
  }

  PageAllocator allocator;
  std::optional<RadixPrefixCache> cache;
  NamespaceId ns;
};

// 100,000 nodes: prompts of 32 nodes, each node with a side branch of one page.
class Prompts {
 public:
  static constexpr std::int64_t kPageSize = 16;
  static constexpr std::int64_t kTokens = 8'192;
  static constexpr std::int64_t kDepth = 32;
  static constexpr std::int64_t kPrompts = 1'600;

  // With room for `spare_pages` more.
  explicit Prompts(std::int64_t spare_pages = 0)
      : subject_(kPrompts * (kTokens / kPageSize + kDepth) + spare_pages, kPageSize) {
    Prng random(1);
    for (std::int64_t i = 0; i < kPrompts; ++i) {
      prompts_.push_back(random_tokens(random, kTokens));
      subject_.add(prompts_.back());
      for (std::int64_t cut = 1; cut < kDepth; ++cut) {
        const auto end = prompts_.back().begin() + cut * (kTokens / kDepth);
        Tokens side(prompts_.back().begin(), end);
        side.resize(side.size() + kPageSize, -1);
        subject_.add(side);
      }
    }
  }

  // Walk, lock, ids into the row, unlock.
  void match(std::size_t i) {
    const PrefixLock lock = subject_.cache->match(subject_.ns, prompts_[i]);
    lock.copy_pages(0, row_);
    keep(row_);
  }

  // Nanoseconds to publish `tail` behind a prompt that is locked.
  double insert_tail_ns(std::size_t i, std::span<const TokenId> tail) {
    Tokens whole = prompts_[i];
    whole.insert(whole.end(), tail.begin(), tail.end());
    PrefixLock lock = subject_.cache->match(subject_.ns, prompts_[i]);
    OwnedPages pages = *subject_.allocator.try_allocate(std::ssize(tail) / kPageSize);
    return nanoseconds_of(
        [&] { lock = subject_.cache->insert(whole, std::move(lock), std::move(pages), {}); });
  }

  const Tokens& prompt(std::size_t i) const { return prompts_[i]; }
  std::int64_t nodes() const { return subject_.cache->nodes(); }

 private:
  Subject subject_;
  std::vector<Tokens> prompts_;
  std::vector<PageId> row_ = std::vector<PageId>(kTokens / kPageSize);
};

// The smallest of what a memcmp of one prompt takes, warm.
double memcmp_ns(const Tokens& prompt, const Tokens& twin) {
  constexpr int kRepeats = 200;
  return nanoseconds_of([&] {
           for (int i = 0; i < kRepeats; ++i) {
             int order = std::memcmp(prompt.data(), twin.data(), prompt.size() * sizeof(TokenId));
             keep(order);
             keep(twin);
           }
         }) /
         kRepeats;
}

BenchLine match_line(const char* caches, const std::vector<double>& ns,
                     const std::vector<double>& bound_ns, std::int64_t nodes) {
  const double bound = median(bound_ns);
  const std::string allowed = std::to_string(static_cast<std::int64_t>(1.5 * bound + 1000));
  return {.bench = "match",
          .params = {{"caches", caches},
                     {"prompt_tokens", std::to_string(Prompts::kTokens)},
                     {"page_size", std::to_string(Prompts::kPageSize)},
                     {"depth_nodes", std::to_string(Prompts::kDepth)},
                     {"tree_nodes", std::to_string(nodes)},
                     {"allowed_ns", allowed}},
          .value = median(ns),
          .unit = "ns",
          .bound = bound,
          .bound_name = "memcmp",
          .ratio = bound / median(ns),
          .repeats = static_cast<int>(ns.size()),
          .spread = spread(ns)};
}

}  // namespace

std::vector<BenchLine> bench_match() {
  constexpr int kRepeats = 100;
  Prompts prompts;
  const Tokens twin = prompts.prompt(0);
  std::vector<double> warm;
  std::vector<double> bound;
  for (int sample = 0; sample < kSamples; ++sample) {
    bound.push_back(memcmp_ns(prompts.prompt(0), twin));
    prompts.match(0);
    warm.push_back(nanoseconds_of([&] {
                     for (int i = 0; i < kRepeats; ++i) prompts.match(0);
                   }) /
                   kRepeats);
  }
  std::vector<double> cold;
  Prng random(2);
  for (int sample = 0; sample < Prompts::kPrompts / 2; ++sample) {
    const auto i = static_cast<std::size_t>(random.below(Prompts::kPrompts));
    cold.push_back(nanoseconds_of([&] { prompts.match(i); }));
  }
  return {match_line("warm", warm, bound, prompts.nodes()),
          match_line("cold", cold, bound, prompts.nodes())};
}

namespace {

constexpr std::int64_t kEvictPageSize = 16;

// Groups of ten leaves below a shared node; the leaves then used in random order.
std::unique_ptr<Subject> make_leaves(std::int64_t leaves, std::int64_t leaf_pages, Prng& random) {
  constexpr std::int64_t kGroup = 10;
  auto subject = std::make_unique<Subject>(leaves * leaf_pages + leaves, kEvictPageSize);
  std::vector<Tokens> texts;
  for (std::int64_t i = 0; i < leaves; ++i) {
    Tokens text = i % kGroup == 0
                      ? random_tokens(random, kEvictPageSize)
                      : Tokens(texts.back().begin(), texts.back().begin() + kEvictPageSize);
    const Tokens own = random_tokens(random, leaf_pages * kEvictPageSize);
    text.insert(text.end(), own.begin(), own.end());
    texts.push_back(std::move(text));
    subject->add(texts.back());
  }
  for (std::size_t i = texts.size(); i > 1; --i) {
    std::swap(texts[i - 1],
              texts[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(i)))]);
  }
  for (const Tokens& text : texts) subject->cache->match(subject->ns, text).reset();
  return subject;
}

// Nanoseconds a page, of each call that takes a few pages and frees them, until `share` of all
// pages is gone: a call is a sample, so that what interrupts one call spoils one sample.
std::vector<double> evict_samples(std::int64_t leaves, std::int64_t leaf_pages, double share) {
  constexpr std::int64_t kWanted = 32;
  Prng random(3);
  const auto subject = make_leaves(leaves, leaf_pages, random);
  const auto target = static_cast<std::int64_t>(static_cast<double>(leaves * leaf_pages) * share);
  std::vector<double> samples;
  for (std::int64_t evicted = 0; evicted < target; evicted += kWanted) {
    const double ns = nanoseconds_of([&] { subject->cache->evict(kWanted).reset(); });
    samples.push_back(ns / static_cast<double>(kWanted));
  }
  return samples;
}

}  // namespace

std::vector<BenchLine> bench_evict() {
  std::vector<BenchLine> lines;
  for (const std::int64_t leaf_pages : {1, 4, 16}) {
    const std::vector<double> few = evict_samples(1'000, leaf_pages, 0.9);
    const std::vector<double> many = evict_samples(100'000, leaf_pages, 0.3);
    for (const auto& [leaves, ns] : {std::pair{1'000, &few}, std::pair{100'000, &many}}) {
      lines.push_back({.bench = "evict",
                       .params = {{"leaves", std::to_string(leaves)},
                                  {"leaf_pages", std::to_string(leaf_pages)},
                                  {"page_size", std::to_string(kEvictPageSize)},
                                  {"order", "lru"},
                                  {"allowed_ns", "1000"}},
                       .value = median(*ns),
                       .unit = "ns/page",
                       .bound = median(few),
                       .bound_name = "1000_leaves",
                       .ratio = median(few) / median(*ns),
                       .repeats = static_cast<int>(ns->size()),
                       .spread = spread(*ns)});
    }
  }
  for (BenchLine& line : bench_policies()) lines.push_back(std::move(line));
  return lines;
}

namespace {

// Nanoseconds to publish `tokens` in steps of `chunk_tokens`, each from where the last one ended.
double insert_ns(Subject& subject, std::span<const TokenId> tokens, std::int64_t chunk_tokens) {
  const auto total = static_cast<std::int64_t>(tokens.size());
  std::vector<OwnedPages> pages;
  for (std::int64_t end = chunk_tokens; end <= total; end += chunk_tokens) {
    pages.push_back(*subject.allocator.try_allocate(chunk_tokens / subject.cache->page_size()));
  }
  PrefixLock lock = subject.cache->match(subject.ns, {});
  const double ns = nanoseconds_of([&] {
    std::int64_t end = 0;
    for (OwnedPages& chunk : pages) {
      end += chunk_tokens;
      lock = subject.cache->insert(tokens.first(static_cast<std::size_t>(end)), std::move(lock),
                                   std::move(chunk), {});
    }
  });
  lock.reset();
  subject.cache->reset();
  return ns;
}

double memcpy_ns(std::span<const TokenId> tokens) {
  Tokens copy(tokens.size());
  constexpr int kRepeats = 200;
  return nanoseconds_of([&] {
           for (int i = 0; i < kRepeats; ++i) {
             std::memcpy(copy.data(), tokens.data(), tokens.size_bytes());
             keep(copy);
           }
         }) /
         kRepeats;
}

// Each sample behind another prompt of a large tree.
BenchLine bench_insert_tail(Prompts& prompts, std::int64_t tail_tokens, std::size_t samples,
                            std::size_t first_prompt) {
  Prng random(5);
  std::vector<double> ns;
  std::vector<double> bound;
  for (std::size_t i = 0; i < samples; ++i) {
    const Tokens tail = random_tokens(random, tail_tokens);
    ns.push_back(prompts.insert_tail_ns(first_prompt + i, tail));
    bound.push_back(memcpy_ns(tail));
  }
  return {.bench = "insert",
          .params = {{"tail_tokens", std::to_string(tail_tokens)},
                     {"prompt_tokens", std::to_string(Prompts::kTokens)},
                     {"page_size", std::to_string(Prompts::kPageSize)},
                     {"tree_nodes", std::to_string(prompts.nodes())},
                     {"allowed_ns", "3000"}},
          .value = median(ns),
          .unit = "ns",
          .bound = median(bound),
          .bound_name = "memcpy",
          .ratio = median(bound) / median(ns),
          .repeats = static_cast<int>(samples),
          .spread = spread(ns)};
}

}  // namespace

std::vector<BenchLine> bench_insert() {
  constexpr std::int64_t kTokens = 32'768;
  constexpr std::int64_t kChunkTokens = 512;
  Prng random(4);
  const Tokens tokens = random_tokens(random, kTokens);
  std::vector<BenchLine> lines;
  for (const std::int64_t page_size : {1, 16, 64}) {
    Subject subject(kTokens / page_size, page_size);
    std::vector<double> whole;
    std::vector<double> chunks;
    insert_ns(subject, tokens, kTokens);  // first touch
    for (int sample = 0; sample < kSamples; ++sample) {
      whole.push_back(insert_ns(subject, tokens, kTokens));
      chunks.push_back(insert_ns(subject, tokens, kChunkTokens));
    }
    lines.push_back({.bench = "insert",
                     .params = {{"tokens", std::to_string(kTokens)},
                                {"chunk_tokens", std::to_string(kChunkTokens)},
                                {"page_size", std::to_string(page_size)}},
                     .value = median(chunks),
                     .unit = "ns",
                     .bound = median(whole),
                     .bound_name = "one_insert",
                     .ratio = median(whole) / median(chunks),
                     .repeats = static_cast<int>(chunks.size()),
                     .spread = spread(chunks)});
  }
  constexpr std::size_t kTails = 400;
  constexpr std::int64_t kTailTokensMax = 512;
  Prompts prompts(2 * kTails * kTailTokensMax / Prompts::kPageSize);
  lines.push_back(bench_insert_tail(prompts, Prompts::kPageSize, kTails, 0));
  lines.push_back(bench_insert_tail(prompts, kTailTokensMax, kTails, kTails));
  return lines;
}

}  // namespace stemma
