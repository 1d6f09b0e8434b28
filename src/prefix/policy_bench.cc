#include "prefix/policy_bench.h"

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/prng.h"
#include "prefix/radix_prefix_cache.h"

namespace stemma {

namespace {

constexpr std::int64_t kPages = 1'000'000;
constexpr std::int64_t kPageSize = 16;
constexpr std::int64_t kTurnPages = 32;
constexpr std::int64_t kChats = kPages / kTurnPages;
constexpr int kRequests = 20'000;
constexpr int kWarmRequests = 180'000;  // until all memory is in use, that of ghosts too

// Nanoseconds a page, a sample a request.
struct Samples {
  std::vector<double> touched_ns;
  std::vector<double> evicted_ns;
};

class Chats {
 public:
  explicit Chats(const char* policy) : allocator_(kPages) {
    PrefixCacheOptions options{allocator_};
    options.page_size = kPageSize;
    options.eviction = policy;
    options.hash_seed = 1;
    options.clock = &clock_;
    cache_ = RadixPrefixCache::open(options).value();
    ns_ = *cache_->try_open_namespace({});
  }

  // Some chats go on, others begin anew.
  Samples run() {
    for (int request = 0; request < kWarmRequests + kRequests; ++request) {
      if (request == kWarmRequests) samples_ = {};
      serve(random_.below(2 * kChats), kTurnPages * (1 + random_.below(2)));
    }
    return samples_;
  }

 private:
  void serve(std::int64_t chat, std::int64_t pages) {
    clock_.advance_us(300'000);
    write_text(chat, pages);
    const std::int64_t cached = cache_->probe(ns_, text_).matched_tokens / kPageSize;
    const std::int64_t missing = pages - cached;
    PrefixLock lock;
    double touched_ns = nanoseconds_of([&] { lock = cache_->match(ns_, text_); });
    if (const std::int64_t wanted = missing - allocator_.free_pages(); wanted > 0) {
      const double ns = nanoseconds_of([&] { cache_->evict(wanted).reset(); });
      samples_.evicted_ns.push_back(ns / static_cast<double>(wanted));
    }
    OwnedPages fresh = *allocator_.try_allocate(missing);
    touched_ns += nanoseconds_of([&] {
      lock = cache_->insert(text_, std::move(lock), std::move(fresh), {});
      cache_->complete(lock, {.prompt_tokens = pages * kPageSize, .output_tokens = 100});
      lock.reset();
    });
    samples_.touched_ns.push_back(touched_ns / static_cast<double>(pages));
  }

  void write_text(std::int64_t chat, std::int64_t pages) {
    Prng words(static_cast<std::uint64_t>(chat));
    text_.resize(static_cast<std::size_t>(pages * kPageSize));
    for (TokenId& token : text_) token = static_cast<TokenId>(words.below(128'000));
  }

  // Of this thread at work: in a mean, what interrupts it would count.
  static double thread_ns() {
    timespec now = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
  }
  template <typename Work>
  static double nanoseconds_of(Work&& work) {
    const double start = thread_ns();
    work();
    return thread_ns() - start;
  }

  FakeClock clock_;
  PageAllocator allocator_;
  std::unique_ptr<RadixPrefixCache> cache_;
  NamespaceId ns_;
  Prng random_{1};
  std::vector<TokenId> text_;
  Samples samples_;
};

// The mean: what is rare and long, as learning is, counts as well.
double mean(std::span<const double> samples) {
  double sum = 0;
  for (const double sample : samples) sum += sample;
  return sum / static_cast<double>(samples.size());
}

BenchLine line(const char* what, const char* policy, std::span<const double> samples, double lru_ns,
               double allowed_more_ns) {
  return {.bench = "policy",
          .params = {{"page", what},
                     {"order", policy},
                     {"pages", std::to_string(kPages)},
                     {"page_size", std::to_string(kPageSize)},
                     {"allowed_ns", std::to_string(static_cast<int>(lru_ns + allowed_more_ns))}},
          .value = mean(samples),
          .unit = "ns/page",
          .bound = lru_ns,
          .bound_name = "lru",
          .ratio = lru_ns / mean(samples),
          .repeats = static_cast<int>(samples.size()),
          .spread = spread(samples)};
}

}  // namespace

std::vector<BenchLine> bench_policies() {
  std::vector<BenchLine> lines;
  Samples lru;
  for (const char* policy : {"lru", "hazard"}) {
    const Samples samples = Chats(policy).run();
    if (lines.empty()) lru = samples;
    lines.push_back(line("touched", policy, samples.touched_ns, mean(lru.touched_ns), 150));
    lines.push_back(line("evicted", policy, samples.evicted_ns, mean(lru.evicted_ns), 1'000));
  }
  return lines;
}

}  // namespace stemma
